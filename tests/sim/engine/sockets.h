// Descriptors that only the simulation knows: of TCP connections, pipes and processes.
//
// A connection takes a latency to be made, and bytes and its end take one to arrive, in order. It
// accepts any number of bytes at once. All other descriptors are those of the machine (files.cc).
#pragma once

#include "engine/simulator.h"

namespace sim {

bool IsSocket(int descriptor);
void CloseSocket(int descriptor);

// Opens a descriptor that poll reports once the process of that rank has ended.
int OpenEndOf(int rank);
// Returns the rank whose process the descriptor is for, or -1.
int ProcessOf(int descriptor);

}  // namespace sim
