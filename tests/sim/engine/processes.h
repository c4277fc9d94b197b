// Ranks as processes: their ids, and descriptors of them.
#pragma once

#include <string>

#include "engine/simulator.h"

namespace sim {

// Process ids that no process of the machine has, since they are above the largest that Linux
// gives.
inline constexpr int kFirstProcess = 10000000;

// Returns the rank that is a process with that id on the machine of the current rank, or null. It
// may have ended.
Rank* FindProcess(int64_t pid);
// Returns the file /proc/<pid>/stat of a rank.
std::string StatOf(const Rank& rank);

// What the system calls pidfd_open and pidfd_send_signal do.
int OpenProcess(int pid);
int SignalProcess(int descriptor, int signal);

}  // namespace sim
