// NodeRounds: the work of a node's leader for the rounds of one table, in a session that spans
// nodes.
#ifndef MULTIVERSO_CONSISTENCY_NODE_ROUNDS_H_
#define MULTIVERSO_CONSISTENCY_NODE_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "consistency/consistency.h"
#include "consistency/round_chain.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

// One thread of the leader at a time uses this class.
class NodeRounds {
 public:
  // Uses the memory of the table's consistency object. Returns null unless the mode has rounds,
  // several nodes have workers, and this rank leads one of those nodes.
  static std::unique_ptr<NodeRounds> Make(const ModeOptions& options, int64_t table,
                                          const StagedShape& shape, char* base, Shard* shard,
                                          RankContext* context, const std::string& table_name);

  // Returns the clocks that the leader exchanges with the other nodes.
  WorkerClocks* clocks() { return &clocks_; }
  // Returns whether the node has a replica, as in sync mode. Without a replica, with bounded
  // staleness, workers of other nodes wait for the clocks of this node's workers.
  bool IsReplicated() const { return chain_ != nullptr; }

  Status Poll(bool* any) { return chain_ == nullptr ? Status::Ok() : chain_->Poll(any); }
  // Applies the totals of rounds that were complete when the session was aborted.
  Status PollTotals() { return chain_ == nullptr ? Status::Ok() : chain_->PollTotals(); }
  // Returns whether a message that a worker waits for may arrive at any moment.
  bool IsAwaitingMessage() const {
    return clocks_.HasSleepers() || (chain_ != nullptr && chain_->IsAwaitingPieces());
  }
  // Close announces that the workers of this node make no more calls. IsClosed returns whether all
  // nodes have announced the end of their calls and no message is in flight.
  void Close() {
    if (chain_ != nullptr) chain_->Close();
  }
  bool IsClosed() const { return chain_ == nullptr || chain_->IsClosed(); }
  // Returns whether all ranks of all nodes have released the table.
  bool IsReleased() const;

 private:
  NodeRounds(WorkerClocks clocks, Shard* shard, int num_nodes)
      : clocks_(std::move(clocks)), shard_(shard), num_nodes_(num_nodes) {}

  WorkerClocks clocks_;
  Shard* shard_;
  int num_nodes_;
  std::unique_ptr<RoundChain> chain_;  // null with bounded staleness
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_NODE_ROUNDS_H_
