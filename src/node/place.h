// The host, memory domain and network domain of this process.
#ifndef MULTIVERSO_NODE_PLACE_H_
#define MULTIVERSO_NODE_PLACE_H_

#include <string>

namespace multiverso {

std::string HostName();

// Returns a text that is equal in two processes if they can open each other's segments.
std::string MemoryDomain();

// Returns a text that is equal in two processes if they reach each other over loopback.
std::string NetworkDomain();

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_PLACE_H_
