// NodeSnapshot: the state of a node's ranks, read from their control segment, also from outside:
// the alive ranks, their last calls, the ranks they wait for, and the traffic of each table.
#ifndef MULTIVERSO_NODE_NODE_SNAPSHOT_H_
#define MULTIVERSO_NODE_NODE_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

// A reader of memory that starts with a NodeControl: the segment itself, or a copy.
class NodeSnapshot {
 public:
  // Returns UnsupportedError unless the bytes are a control segment of this version, according to
  // their header and number.
  static Result<NodeSnapshot> Of(const char* data, int64_t bytes);

  // Reads a copy from a file. The file is never mapped, so truncating it cannot crash the reader.
  static Result<NodeSnapshot> OfFile(const std::string& path);
  // Returns whether control segments of this system can be read as files.
  static bool CanBeSeen();

  // Returns a text such as "add of table 'w' (400 bytes), 0.31 s ago"; empty if no call of the rank
  // is known, as for ranks of other nodes.
  std::string LastCall(int rank) const;
  // Returns the name of the table of the rank's last call; empty if there is none.
  std::string LastTable(int rank) const;
  // Returns the last `most` calls, the latest first, one per line.
  std::string LastCalls(int rank, int most) const;
  // Returns the whole state as one JSON object.
  std::string Json() const;

 private:
  // The limit for a valid number of ranks; no machine has more.
  static constexpr int32_t kMostRanks = 65536;

  explicit NodeSnapshot(const NodeControl* control) : control_(control), ranks_(control->ranks) {}

  struct Call;
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Call> CallsOf(int rank, int most) const;
  std::string Describe(const Call& call) const;
  std::string TableName(int64_t table) const;
  // Returns the name of the table, or an empty text if it is unknown.
  std::string NameOfTable(int64_t table) const;
  std::vector<int> Awaited(int rank) const;

  const NodeControl* control_;
  int ranks_;
  std::shared_ptr<const std::vector<Line>> copy_;  // null unless it was read from a file
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_NODE_SNAPSHOT_H_
