// Sockets and pipes that never block, and that programs which this process starts do not inherit.
#pragma once

namespace multiverso {

// These functions return what the system calls do: -1 or false with errno after a failure. Not on
// Windows.
int NewSocket(int family, int protocol = 0);
int AcceptSocket(int listener);
bool NewPipe(int ends[2]);  // the end to read, and the end to write

}  // namespace multiverso
