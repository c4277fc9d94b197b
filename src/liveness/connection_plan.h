// ConnectionPlan: which pairs of ranks hold a connection (PeerConnections), and at which address.
//
// Only ranks of different nodes hold connections. In a small job every rank holds one with each
// rank of the other nodes. In a larger job each node is connected with the next two nodes on both
// sides and with the node half way around: with all others if there are up to seven nodes, and with
// at most six otherwise. So if any five nodes are lost at once, or half of all nodes in a row, such
// as a rack, a remaining node sees each loss. Between two connected nodes, local rank i of the
// larger one holds a connection with local rank i modulo the size of the smaller one. So each rank
// is watched separately: the loss of a rank can be told from the loss of its node.
#pragma once

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

// The address of a rank. It is sent to all ranks when the session is opened.
struct ConnectionAddress {
  static constexpr int kMaxAddresses = 12;  // a machine's further addresses are not sent

  int64_t process = 0;  // the process id
  ConnectionToken token;
  char network[96] = {};  // ranks with the same text reach each other over loopback
  uint16_t port = 0;      // 0 if the rank accepts no connections
  uint16_t num_addresses = 0;
  NetworkAddress addresses[kMaxAddresses];
};

// Returns this machine's addresses and a new token. Fails if the system has no random numbers.
Result<ConnectionAddress> NewAddress(uint16_t port);

// Returns the addresses at which `mine` can try to reach `other`, the best first.
std::vector<NetworkAddress> AddressesOf(const ConnectionAddress& mine,
                                        const ConnectionAddress& other);

// A rank with which this rank holds a connection.
struct ConnectionPeer {
  int rank = 0;
  bool is_called = false;  // this rank calls the peer, rather than being called
};

// Returns the peers of this rank in rank order.
std::vector<ConnectionPeer> PlanConnections(const Membership& members);

}  // namespace multiverso
