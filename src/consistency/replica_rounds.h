// ReplicaRounds: sync mode where the workers are on several nodes.
//
// Every node with workers holds a replica of the whole table. Rounds are those of SyncRounds: a
// worker stages its delta in its node's shared memory and continues. The leaders of the nodes sum
// the staged deltas along their chain and apply the total to each replica (RoundChain). A get after
// j adds waits until rounds 0 to j - 1 have been applied to this node's replica, and then copies
// the replica. The replica does not change meanwhile, because round j needs this worker's add j.
#ifndef MULTIVERSO_CONSISTENCY_REPLICA_ROUNDS_H_
#define MULTIVERSO_CONSISTENCY_REPLICA_ROUNDS_H_

#include <cstdint>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/replica_memory.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

class ReplicaRounds final : public Consistency {
 public:
  ReplicaRounds(const StagedShape& shape, ReplicaMemory memory, const Shard* shard,
                WorkerClocks clocks, const RankContext& context);

  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override;
  void Finish() override { clocks_.Finish(); }
  void ReachSyncPoint(const SyncPoint& point) override { clocks_.ReachSyncPoint(point); }
  Status CompareAt(const SyncPoint& point) override { return clocks_.CompareAt(point); }
  CallDigest CallsBefore(const SyncPoint& point) const override {
    return clocks_.CallsBefore(point);
  }
  void Depart() override { clocks_.Depart(); }
  uint64_t rounds_applied() const override {
    return memory_.words()->applied.load(std::memory_order_acquire);
  }
  bool HasApplied(uint64_t rounds) const override { return rounds_applied() >= rounds; }
  Status Settle(const WaitLimit& limit) override { return WaitUntilComplete("save", limit); }
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 private:
  Status Add(const Request& request, Progress* progress, const WaitLimit& limit);
  Status AddGet(const Request& request, Progress* progress, const WaitLimit& limit);
  Status Get(const Request& request, Progress* progress, const WaitLimit& limit);
  Status WaitForBuffer(const char* call, const WaitLimit& limit, int* buffer);
  // Stages this worker's delta of its current round. AnnounceAdd then makes the delta visible.
  void Stage(const Request& request, int buffer);
  void Describe(bool is_rows, int buffer, int64_t count);
  void AnnounceAdd();
  Status WaitUntilApplied(uint64_t rounds, const char* call, const WaitLimit& limit);
  // Waits until all rounds have been applied that are complete as far as this node knows, which
  // include the rounds that were complete at this worker's last sync point.
  Status WaitUntilComplete(const char* call, const WaitLimit& limit);
  // Copies the parameters after the last complete round, for a worker that has finished.
  Status GetFinished(const Request& request, const WaitLimit& limit);

  StagedShape shape_;
  ReplicaMemory memory_;
  const Shard* shard_;
  WorkerClocks clocks_;
  int local_index_;          // this worker's index in the staging memory
  std::vector<bool> leads_;  // whether a worker leads its node, by worker
  // For each of this worker's buffers, 1 plus the last round that used it, or 0 for a new buffer.
  uint64_t used_in_[Staging::kBuffers] = {};
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_REPLICA_ROUNDS_H_
