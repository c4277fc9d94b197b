// Bridge: carries what the ranks of a circle bring to a meeting from node to node.
//
// On each node the circle's first rank there is its leader. When all members of the node have
// arrived the leader sends what they brought to the leader of the first node; that one waits for
// all nodes and sends everything to everybody. So a meeting costs two messages per node, whatever
// the number of ranks, and each rank finds in its own node's control segment what all others
// brought.
#ifndef MULTIVERSO_GROUP_BRIDGE_H_
#define MULTIVERSO_GROUP_BRIDGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

class NodeGroup;

// One rank's part in a meeting, as it travels.
struct Brought {
  int rank = 0;
  CollectiveKind kind = CollectiveKind::kJoin;
  std::string data;
};

// A message of the bridge as bytes, and back. False unless the bytes are what `ranks`, exactly,
// brought to that meeting: nothing in them is believed.
std::string PackBrought(int circle, uint64_t meeting, const std::vector<Brought>& all);
bool UnpackBrought(const std::string& bytes, int circle, uint64_t meeting,
                   const std::vector<int>& ranks, std::vector<Brought>* all);

// Used by the leader, one thread at a time.
class Bridge {
 public:
  // Group number `circle` of the group, of these ranks of the session.
  Bridge(NodeGroup* group, int circle, const std::vector<int>& members);

  // The session's number of the rank that leads on this node; -1 if it has no members.
  int leader() const { return leader_; }
  // Of all nodes that have members; the first receives from all.
  const std::vector<int>& leaders() const { return leaders_; }

  // All members of this node have arrived at that meeting. Ok when those of all nodes have, and
  // what they brought is in the control segment; pending before that. Never waits.
  Status Exchange(uint64_t meeting);

 private:
  std::vector<Brought> BroughtHere(const std::vector<int>& ranks, uint64_t meeting) const;
  void Keep(const std::vector<Brought>& all, uint64_t meeting) const;
  // To the leader number `node`, if it lives.
  Status Post(size_t node, std::string bytes);
  // Whether what the leader number `node` sends has come.
  Status TakeFrom(size_t node, const std::vector<int>& ranks, uint64_t meeting, bool* came);

  NodeGroup* group_;
  int circle_;
  std::vector<int> members_;
  std::vector<int> leaders_;
  std::vector<std::vector<int>> ranks_;  // by leader: the members of its node
  size_t mine_ = 0;                      // this node's place among the leaders
  int leader_ = -1;
  uint64_t begun_ = 0;  // the meeting that is being exchanged
  std::vector<bool> came_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_BRIDGE_H_
