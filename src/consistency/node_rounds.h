// NodeRounds: what the leader of a node does for the rounds of one table, in a session that spans
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
  // Over the memory that Consistency::Make is over. Null unless this rank leads a node with
  // workers, and the mode has rounds.
  static std::unique_ptr<NodeRounds> Make(const ModeOptions& options, int64_t table,
                                          const StagedShape& shape, char* base, Shard* shard,
                                          RankContext* group, const std::string& table_name);

  // Its clocks are exchanged with the other nodes.
  WorkerClocks* clocks() { return &clocks_; }
  // In sync mode; in bounded staleness an add is news that others wait for.
  bool IsReplicated() const { return chain_ != nullptr; }

  Status Poll(bool* any) { return chain_ == nullptr ? Status::Ok() : chain_->Poll(any); }
  // The session was given up. Rounds that were complete before end well on all nodes.
  Status PollTotals() { return chain_ == nullptr ? Status::Ok() : chain_->PollTotals(); }
  // Whether something that is waited for may come any moment.
  bool Awaits() const { return clocks_.AnybodySleeps() || (chain_ != nullptr && chain_->Awaits()); }
  // The workers of this node make no more calls; and whether those of all nodes do not either, and
  // nothing is under way.
  void Close() {
    if (chain_ != nullptr) chain_->Close();
  }
  bool IsClosed() const { return chain_ == nullptr || chain_->IsClosed(); }
  // Whether no rank of any node has the table any more.
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
