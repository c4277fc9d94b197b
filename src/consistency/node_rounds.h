// NodeRounds: the work of a node's leader for the rounds of one table, in a session that spans
// nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/joint_staging.h"
#include "consistency/round_memory.h"
#include "consistency/worker_clocks.h"
#include "sum/node_sum.h"

namespace multiverso {

// One thread of the leader at a time uses this class.
class NodeRounds final : private NodeSum::Terms {
 public:
  // Returns whether the mode has rounds, the session spans nodes, and this rank leads a node.
  static bool AreIn(const ModeOptions& options, const Membership& members) {
    return options.mode != Mode::kAsync && members.spans_nodes() && members.is_leader();
  }
  // Uses the memory of the table's consistency object, whose shape is that of the whole table.
  // `first_row` is the first row of `shard`.
  NodeRounds(const ModeOptions& options, const SumPlan& plan, const StagedShape& shape,
             int64_t first_row, char* base, Shard* shard, RankContext* context,
             const std::string& table_name)
      : sums_rounds_(options.sums_in_rounds()),
        plan_(plan),
        shape_(shape),
        first_element_(first_row * shape.columns),
        clocks_(base, context, table_name),
        memory_(shape, base, clocks_),
        joint_staging_(shape, memory_.staging(), clocks_.here(), clocks_.workers()),
        shard_(shard),
        context_(context) {}

  // Begins to sum rounds in sync mode. Call this before the other functions. The link, which
  // carries pieces to other nodes, must outlive the object.
  void Begin(int64_t table, PieceLink* link);

  // Returns the clocks that the leader exchanges with the other nodes.
  WorkerClocks* clocks() { return &clocks_; }
  // Returns whether the node sums rounds, as in sync mode. Otherwise, with bounded staleness,
  // workers of other nodes wait for the clocks of this node's workers.
  bool SumsRounds() const { return sum_ != nullptr; }

  // Lets sums that have begun read a delta from `to` in place of `from`.
  void ReadFrom(const char* to, const char* from) {
    if (sum_ != nullptr) sum_->ReadFrom(to, from);
  }
  Status Receive(PieceLink::Piece piece);
  Status Poll(bool* any);
  // Returns whether a message that a worker waits for may arrive at any moment.
  bool IsAwaitingMessage() const {
    return clocks_.HasSleepers() || (sum_ != nullptr && sum_->IsAwaitingPieces());
  }
  // Returns whether all rounds have been applied, and their results received, that the workers have
  // made. Call this when the clocks no longer change.
  bool IsSettled() const;
  // Returns whether all ranks of all nodes have released the table, so that it needs no more work.
  bool IsReleased() const;

 private:
  int64_t Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) override;
  bool HaveFinished(const WorkerRange& workers, uint64_t round) const override;
  uint64_t CopiedFrom(uint64_t round) override;
  // Shows the workers of this node how far the sums have come.
  void Publish();

  bool sums_rounds_;
  SumPlan plan_;
  StagedShape shape_;
  int64_t first_element_;
  WorkerClocks clocks_;
  RoundMemory memory_;
  JointStaging joint_staging_;
  int64_t segments_per_row_ = 1;
  Shard* shard_;
  RankContext* context_;
  std::unique_ptr<NodeSum> sum_;  // null with bounded staleness
  uint64_t asked_ = 0;            // rounds for which CopiedFrom has been called
};

}  // namespace multiverso
