// NodeSnapshot: what can be seen of a node's ranks in their control segment, also from outside: who
// is there, what each did last, what it waits for, and what the tables have been used for.
#ifndef MULTIVERSO_NODE_NODE_SNAPSHOT_H_
#define MULTIVERSO_NODE_NODE_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

// Over memory that starts with a NodeControl: the segment itself, or a copy. Reads only.
class NodeSnapshot {
 public:
  // UnsupportedError unless the bytes are those of a control segment of this version, as they say
  // themselves and as far as their number goes.
  static Result<NodeSnapshot> Of(const char* data, int64_t bytes);

  // The same, of a file of which it takes a copy. The file is read, and never mapped, so that
  // nobody can make the reader fail by cutting it off.
  static Result<NodeSnapshot> OfFile(const std::string& path);
  // Whether there is such a file: memory that has a descriptor and no name.
  static bool CanBeSeen();

  // "add of table 'w' (400 bytes), 0.31 s ago", or "in barrier for 2.5 s"; empty if nothing is
  // known of that rank, such as one of another node.
  std::string LastCall(int rank) const;
  // The name of the table that the rank's last call was about; empty if that was about none.
  std::string LastTable(int rank) const;
  // The last `most` calls, the latest first, one a line.
  std::string LastCalls(int rank, int most) const;
  // All there is to see, as one JSON object.
  std::string Json() const;

 private:
  // More than any machine has.
  static constexpr int32_t kMostRanks = 65536;

  explicit NodeSnapshot(const NodeControl* control) : control_(control), ranks_(control->ranks) {}

  struct Call;
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Call> CallsOf(int rank, int most) const;
  std::string Describe(const Call& call) const;
  std::string TableName(int64_t table) const;
  // Empty if it is not known.
  std::string NameOfTable(int64_t table) const;
  std::vector<int> Awaited(int rank) const;

  const NodeControl* control_;
  int ranks_;
  std::shared_ptr<const std::vector<Line>> copy_;  // if it is of a file
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_NODE_SNAPSHOT_H_
