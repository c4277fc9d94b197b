// Where this process runs.
#ifndef MULTIVERSO_NODE_PLACE_H_
#define MULTIVERSO_NODE_PLACE_H_

#include <string>

namespace multiverso {

std::string HostName();

// The same text in all processes that can open each other's segments, and in no others.
std::string MemoryDomain();

// The same text in all processes that reach each other over the loopback interface.
std::string NetworkDomain();

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_PLACE_H_
