// Where this process runs: its host, and the domains in which processes share memory or loopback.
#pragma once

#include <string>

namespace multiverso {

std::string HostName();

// Returns a text that is the same in two processes only if they can open each other's segments.
std::string MemoryDomain();

// Returns a text that is the same in two processes only if they reach each other over loopback.
std::string NetworkDomain();

}  // namespace multiverso
