// SpanningRounds: sync mode in a session that spans nodes.
//
// Rounds are those of SyncRounds: a worker stages its delta in its node's shared memory and
// continues. The leaders of the nodes sum the staged deltas, and the node of a part of the table
// applies its sum (NodeSum). A get after j adds waits until rounds 0 to j - 1 have been applied.
// No part changes while it is read, because round j needs this worker's add j.
//
// A node whose workers read the whole table keeps a copy of the other nodes' parts, to which each
// round's results are sent. Workers of other nodes ask the servers for the rows that they read. If
// results travel encoded, every node copies the whole table, and workers read only the copy.
#ifndef MULTIVERSO_CONSISTENCY_SPANNING_ROUNDS_H_
#define MULTIVERSO_CONSISTENCY_SPANNING_ROUNDS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/spanning_memory.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

class SpanningRounds final : public Consistency {
 public:
  // `shape` is that of the whole table; `first_row` is the first row of `shard`. A rank that is no
  // worker has an object, too, which makes no adds and gets.
  SpanningRounds(const StagedShape& shape, int64_t first_row, SpanningMemory memory,
                 const Shard* shard, WorkerClocks clocks, const RankContext& context);

  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override;
  void FetchWith(Fetch fetch) override { fetch_ = std::move(fetch); }
  void Finish() override;
  bool HasFinished() const override { return clocks_.i_have_finished(); }
  void ReachSyncPoint(const SyncPoint& point) override;
  Status CompareAt(const SyncPoint& point) override { return clocks_.CompareAt(point); }
  CallDigest CallsBefore(const SyncPoint& point) const override;
  void Depart() override;
  uint64_t rounds_applied() const override;
  bool HasApplied(uint64_t rounds) const override { return words()->applied.load() >= rounds; }
  bool HasBegun(uint64_t rounds) const override;
  Status Settle(const WaitLimit& limit) override { return WaitUntilComplete("save", limit); }
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override;

 private:
  SpanningWords* words() const { return memory_.words(); }
  bool is_worker() const { return clocks_.me() >= 0; }
  Status Add(const Request& request, Progress* progress, const WaitLimit& limit);
  Status AddGet(const Request& request, Progress* progress, const WaitLimit& limit);
  Status Get(const Request& request, Progress* progress, const WaitLimit& limit);
  Status WaitForBuffer(const char* call, const WaitLimit& limit, int* buffer);
  // Stages this worker's delta of its current round. AnnounceAdd then makes the delta visible.
  void Stage(const Request& request, int buffer);
  void Describe(bool is_rows, int buffer, int64_t count);
  void AnnounceAdd();
  // Waits until the condition holds, which follows from the adds of rounds before `rounds`.
  template <class Done>
  Status AwaitRounds(uint64_t rounds, const char* call, const WaitLimit& limit, Done done);
  // Waits until all rounds have been applied here that are complete as far as this node knows,
  // which include the rounds that were complete at this worker's last sync point.
  Status WaitUntilComplete(const char* call, const WaitLimit& limit);
  // Returns the parameters after `rounds` rounds, which do not change meanwhile.
  Status Read(const Request& request, uint64_t rounds, const char* call, const WaitLimit& limit);
  // Copies the values from this node's part and, for other rows, from the copy, or all values from
  // the copy.
  void CopyRows(const Request& request, bool all_from_copy) const;
  // Returns the parameters after the last round that is complete as far as this node knows, for a
  // peek (Request::IsPeek), and for a worker that has finished.
  Status GetComplete(const Request& request, const WaitLimit& limit);

  StagedShape shape_;
  int64_t first_row_;
  SpanningMemory memory_;
  const Shard* shard_;
  WorkerClocks clocks_;
  Fetch fetch_;
  int local_index_ = -1;      // this worker's index in the staging memory
  std::vector<bool> leads_;   // whether a worker leads its node, by worker
  uint64_t sync_point_ = 0;   // the number of the last sync point that this rank has reached
  uint64_t rounds_read_ = 0;  // the most rounds whose results this rank has read
  // For each of this worker's buffers, 1 plus the last round that used it, or 0 for a new buffer.
  uint64_t used_in_[Staging::kCopies] = {};
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SPANNING_ROUNDS_H_
