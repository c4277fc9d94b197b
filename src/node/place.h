// Where this process runs.
#ifndef MULTIVERSO_NODE_PLACE_H_
#define MULTIVERSO_NODE_PLACE_H_

#include <string>

namespace multiverso {

std::string HostName();

// Equal in two processes if they can open each other's segments.
std::string MemoryDomain();

// Equal in two processes if they reach each other over the loopback interface.
std::string NetworkDomain();

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_PLACE_H_
