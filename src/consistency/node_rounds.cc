#include "consistency/node_rounds.h"

namespace multiverso {

std::unique_ptr<NodeRounds> NodeRounds::Make(const ModeOptions& options, int64_t table,
                                             const StagedShape& shape, char* base, Shard* shard,
                                             RankContext* context, const std::string& table_name) {
  const Membership& members = context->members();
  const bool has_others = members.worker_leaders().size() > 1;
  if (options.mode == Mode::kAsync || !has_others || !context->members().is_leader() ||
      !members.is_worker()) {
    return nullptr;
  }
  std::unique_ptr<NodeRounds> rounds(
      new NodeRounds(WorkerClocks(base, context, table_name), shard, members.num_nodes()));
  if (options.mode == Mode::kSync) {
    rounds->chain_ =
        std::make_unique<RoundChain>(table, shape, ReplicaMemory(shape, base, rounds->clocks_),
                                     &rounds->clocks_, shard, context);
  }
  return rounds;
}

bool NodeRounds::IsReleased() const {
  const Holders* const holders = shard_->holders();
  return holders->ranks_here.load() == 0 &&
         holders->nodes_released.load() >= static_cast<uint32_t>(num_nodes_ - 1);
}

}  // namespace multiverso
