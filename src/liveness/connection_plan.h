// Who holds a lifeline with whom, and where each rank is to be found for it.
//
// Ranks of different nodes hold lifelines: on one node they see each other without. In a job of a
// few ranks each of them does with each other, and learns of its end before it sends it anything
// more. In a larger one every node has some with those next to it in the order of the nodes, those
// after the next, and those half the way around: with all others of up to seven nodes, and with at
// most six of any number. So each of any five nodes that are lost at once, and of any half of them
// in a row, as of a rack, has been seen by one that is left. Between two such nodes the ranks with
// the same place on their node hold one, counted around on the smaller: each rank is seen for
// itself. If only one rank spoke for its node, nobody could tell a node that is lost as a whole
// from one that has lost this rank.
#ifndef MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_
#define MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "liveness/stream.h"
#include "node/membership.h"

namespace multiverso {

// A number that only the ranks of the session know.
struct ConnectionToken {
  uint8_t bytes[16] = {};

  bool operator==(const ConnectionToken& other) const {
    return std::memcmp(bytes, other.bytes, sizeof(bytes)) == 0;
  }
};

// What a rank tells the others when the session is opened. Travels as bytes.
struct ConnectionAddress {
  static constexpr int kMost = 12;

  int64_t process = 0;
  ConnectionToken token;
  char network[96] = {};  // those with the same text reach each other over loopback
  uint16_t port = 0;      // none: nobody can connect to it
  uint16_t count = 0;
  NetworkAddress addresses[kMost];
};

// With a new token, and the addresses of this machine. TransportError if there is no randomness.
Result<ConnectionAddress> DescribeLifeline(uint16_t port);

// Where `mine` can try to reach `other`, the best first.
std::vector<NetworkAddress> WaysTo(const ConnectionAddress& mine, const ConnectionAddress& other);

// A rank with which this one holds a lifeline.
struct ConnectionPeer {
  int rank = 0;
  bool is_called = false;  // this rank connects to it, and not it to this one
};

// In rank order.
std::vector<ConnectionPeer> PlanLifelines(const Membership& members);

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_CONNECTION_PLAN_H_
