// Descriptors of the machine, and the simulated folders under /proc.
#pragma once

#include <string>
#include <vector>

namespace sim {

// Returns the path of the folder of the simulation that the descriptor is open for, or null.
const std::string* FolderBehind(int fd);
// Returns the descriptors of the machine that a rank has.
std::vector<int> DescriptorsOf(int rank);
// Takes a descriptor from its rank, because the C library closes it by itself.
void Disown(int fd);

}  // namespace sim
