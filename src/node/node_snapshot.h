// NodeSnapshot: describes what the ranks of a node do, from their control segment: their states and
// last calls, the ranks they wait for, and the traffic of each table. The ranks use it for error
// messages, and other processes to observe a job (`multiverso top`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

class NodeSnapshot {
 public:
  // Each call reads the memory at `data` again, so the memory must outlive the snapshot. Returns
  // UnsupportedError unless its header and size are those of a control segment of this version.
  static Result<NodeSnapshot> Of(const char* data, int64_t bytes);

  // Returns a text such as "add of table 'w' (400 bytes), 0.31 s ago"; empty if no call of the rank
  // is known, as for ranks of other nodes.
  std::string LastCall(int rank) const;
  // Returns the name of the table of the rank's last call; empty if there is none.
  std::string LastTable(int rank) const;
  // Returns up to `max_calls` of the last calls, the latest first, one per line.
  std::string LastCalls(int rank, int max_calls) const;
  // Returns all facts about this node's ranks and the tables as one JSON object.
  JsonValue Json() const;

 private:
  // The largest valid number of ranks, whose memory has a size that can be computed.
  static constexpr int32_t kMaxRanks = 65536;

  explicit NodeSnapshot(const NodeControl* control)
      : control_(control),
        num_ranks_(control->num_ranks),
        num_ranks_here_(control->num_ranks_here) {}

  bool is_elastic() const { return control_->initial_size > 0; }
  // Returns the number of ranks that have joined so far, which is smaller than num_ranks_ in an
  // elastic session.
  int size() const;

  // Returns what the ranks agreed on when the session was opened.
  JsonObject DescribeSession() const;

  struct Call;
  // Returns the recorder of a rank of this node, or null for another rank.
  const FlightRecorder* RecorderOf(int rank) const;
  std::vector<Call> CallsOf(int rank, int max_calls) const;
  std::string Describe(const Call& call) const;
  std::string NameOfTable(int64_t table) const;  // empty if it is unknown
  // Returns the ranks of this node for which the rank appears to wait in its last call.
  std::vector<int> AwaitedBy(int rank) const;

  const NodeControl* control_;
  int num_ranks_;       // for which the memory is laid out
  int num_ranks_here_;  // which have recorders
};

}  // namespace multiverso
