// SpanningSum: what a rank does for the sums of a table whose workers are on several nodes.
//
// The leaders of the nodes sum the staged deltas, and the node of a part of the table applies its
// sum (NodeSum). A rank waits for what its leader publishes in the node's shared memory.
//
// A node whose workers read the whole table keeps a copy of the other nodes' parts, to which each
// round's results are sent. Workers of other nodes ask the servers for the rows that they read. If
// results travel encoded, every node copies the whole table, and workers read only the copy.
#pragma once

#include <cstdint>
#include <vector>

#include "consistency/joint_staging.h"
#include "consistency/rounds.h"

namespace multiverso {

class SpanningSum final : public Rounds {
 public:
  // `shape` is that of the whole table; `first_row` is the first row of `shard`.
  SpanningSum(const StagedShape& shape, int64_t first_row, char* base, Shard* shard,
              WorkerClocks clocks, const Membership& members);

  bool HasBegun(uint64_t rounds) const override;
  void PassTo(RequestRunner* runner, RoundService* service) override {
    runner_ = runner;
    service_ = service;
  }
  bool HasApplied(uint64_t rounds) const override { return words()->applied.load() >= rounds; }
  uint64_t rounds_applied() const override;
  void StartFrom(uint64_t rounds) override;

 private:
  SummedBy StageWhole(const Request& request, char* to) override;
  void NoteAdd() override;
  void ReturnDelta() override;
  Status AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) override;
  bool HasSummed(uint64_t rounds) const override;
  Status Read(const Request& request, uint64_t rounds, const char* call,
              const WaitLimit& limit) override;
  Status ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) override;
  Status AwaitComplete(uint64_t sync_point, const char* call, const WaitLimit& limit,
                       uint64_t* rounds) override;

  SpanningWords* words() const { return memory_.words(); }
  StagedAdd* add_of(uint64_t round) const {
    return memory_.staging().add_of(memory_.local_index_of(clocks_.me()), round);
  }
  // Waits until the condition holds, which follows from the adds of rounds before `rounds`.
  template <class Done>
  Status AwaitRounds(uint64_t rounds, const char* call, const WaitLimit& limit, Done done);
  // Copies the values from this node's part and, for other rows, from the copy, or all values from
  // the copy.
  void CopyRows(const Request& request, bool all_from_copy) const;

  int64_t first_row_;
  JointStaging joint_staging_;
  RequestRunner* runner_ = nullptr;
  RoundService* service_ = nullptr;  // null unless this rank leads its node
  std::vector<bool> leads_;          // whether a worker leads its node, by worker
  StagedAdd* lending_ = nullptr;     // the add whose delta the caller lends
  uint64_t rounds_read_ = 0;         // the most rounds whose results this rank has read or awaited
};

}  // namespace multiverso
