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

// Used by one thread at a time.
class NodeRounds {
 public:
  // Uses the same memory as the table's consistency object. Returns null unless this rank leads a
  // node with workers and the mode has rounds.
  static std::unique_ptr<NodeRounds> Make(const ModeOptions& options, int64_t table,
                                          const StagedShape& shape, char* base, Shard* shard,
                                          RankContext* context, const std::string& table_name);

  // The clocks that are exchanged with the other nodes.
  WorkerClocks* clocks() { return &clocks_; }
  // Whether the node has a replica, as in sync mode. With bounded staleness other workers wait for
  // the adds themselves.
  bool IsReplicated() const { return chain_ != nullptr; }

  Status Poll(bool* any) { return chain_ == nullptr ? Status::Ok() : chain_->Poll(any); }
  // Completes rounds on all nodes that were complete before the session was aborted.
  Status PollTotals() { return chain_ == nullptr ? Status::Ok() : chain_->PollTotals(); }
  // Whether a message that a worker waits for may arrive at any moment.
  bool Awaits() const { return clocks_.HasSleepers() || (chain_ != nullptr && chain_->Awaits()); }
  // Close announces that the workers of this node make no more calls. IsClosed tells whether this
  // holds for all nodes and nothing is in flight.
  void Close() {
    if (chain_ != nullptr) chain_->Close();
  }
  bool IsClosed() const { return chain_ == nullptr || chain_->IsClosed(); }
  // Whether no rank of any node holds the table any more.
  bool IsReleased() const;

 private:
  NodeRounds(WorkerClocks clocks, Shard* shard, int num_nodes)
      : clocks_(std::move(clocks)), shard_(shard), num_nodes_(num_nodes) {}

  WorkerClocks clocks_;
  Shard* shard_;
  int num_nodes_;
  std::unique_ptr<RoundChain> chain_;  // in sync mode, if several nodes have workers
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_NODE_ROUNDS_H_
