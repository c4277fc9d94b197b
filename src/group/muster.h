// Muster: what a Bridge does, in a session that goes on without lost ranks: who has come to a
// meeting, from node to node, whoever of them dies meanwhile.
//
// When every rank of a node has come or will not come any more, who came, with what, and who did
// not stands in the node's control segment, and stays until a rank comes to the next meeting but
// one. It can do so when all nodes have come to the one between, and they have when they knew of
// this one. So any rank of the node can tell it as long as anybody has to know, and always tells
// the same. The leader, who is the first that is left, tells it to the leader of every other node,
// and writes what they tell into the control segment; a meeting is over on a node when that of all
// nodes is there. If a leader dies the next takes over: it tells its part again, which does no
// harm, and asks the other nodes for theirs, which may have been lost with the one before. A node
// whose ranks have not all come does not answer, but tells when they have. So everybody finds the
// same, and waits for nobody who is not there.
#ifndef MULTIVERSO_GROUP_MUSTER_H_
#define MULTIVERSO_GROUP_MUSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

class NodeGroup;

// What the ranks of this node brought to that meeting, as bytes. False if it is not known yet, and
// if it is known no more, nor asked for by anybody who still waits: one of them writes what it
// brings to the next but one. Thread-safe: a service thread is asked at any time.
bool PackMuster(const NodeGroup& group, int circle, uint64_t meeting, std::string* bytes);

// Used by one thread at a time.
class Muster {
 public:
  // Group number `circle` of the group, of these ranks of the session.
  Muster(NodeGroup* group, int circle, const std::vector<int>& members);

  // The first member on this node that is not counted out: it makes the exchange.
  int Leader() const;
  // All members of this node have come to that meeting, or will not. Ok when what those of all
  // nodes brought is in the control segment; pending before that. Never waits.
  Status Exchange(uint64_t meeting);
  // The nodes of which it is not.
  std::vector<int> Missing(uint64_t meeting) const;

 private:
  std::atomic<uint64_t>& mustered(size_t node) const;
  // False if it makes no sense.
  bool Understand(const std::string& bytes, uint64_t meeting);

  NodeGroup* group_;
  int circle_;
  std::vector<int> first_;                 // by node: its first rank
  std::vector<std::vector<int>> members_;  // by node
  std::vector<std::string> early_;         // by node: what came before its turn
  uint64_t told_ = 0;                      // the meeting for which this node's part has been sent
  Instant asked_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_MUSTER_H_
