// ConnectionPlan: which ranks hold a connection (PeerConnections), and at which addresses.
//
// Only ranks of different nodes hold connections. In a small job every rank holds one with each
// rank of the other nodes. In a larger job each node is connected with the next two nodes on both
// sides and with the node half way around: with all others of up to seven nodes, and with at most
// six of any number. So if any five nodes are lost at once, or any half of them in a row, such as a
// rack, a remaining node sees each of them. Between two connected nodes, ranks with the same local
// rank hold a connection, counted around on the smaller node: each rank is watched for itself. If
// one rank spoke for its node, the loss of that rank could not be told from the loss of the node.
#ifndef MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_
#define MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "liveness/stream.h"
#include "node/membership.h"

namespace multiverso {

// A random number that only the ranks of the session know.
struct ConnectionToken {
  uint8_t bytes[16] = {};

  bool operator==(const ConnectionToken& other) const {
    return std::memcmp(bytes, other.bytes, sizeof(bytes)) == 0;
  }
};

// Sent to all ranks when the session is opened.
struct ConnectionAddress {
  static constexpr int kMaxAddresses = 12;

  int64_t process = 0;
  ConnectionToken token;
  char network[96] = {};  // ranks with the same text reach each other over loopback
  uint16_t port = 0;      // 0 if the rank accepts no connections
  uint16_t count = 0;
  NetworkAddress addresses[kMaxAddresses];
};

// This machine's addresses, with a new token. TransportError if the system has no random numbers.
Result<ConnectionAddress> DescribeAddress(uint16_t port);

// The addresses at which `mine` can try to reach `other`, the best first.
std::vector<NetworkAddress> AddressesOf(const ConnectionAddress& mine,
                                        const ConnectionAddress& other);

// A rank with which this one holds a connection.
struct ConnectionPeer {
  int rank = 0;
  bool is_called = false;  // this rank calls it, not the other way round
};

// The peers in rank order.
std::vector<ConnectionPeer> PlanConnections(const Membership& members);

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_
