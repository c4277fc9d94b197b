// WorkerClocks: the progress of each worker with one table, in sync mode and with bounded
// staleness. The clocks lie in the table's shared memory.
//
// A worker's clock is the number of its adds, because each add ends a round. In sync mode a worker
// also makes ticks, which the workers compare: one for an add, one for a get, two for an add_get.
//
// In a session that spans nodes each node has a slot for every worker. The slots of other nodes'
// workers are copies that the leaders of the nodes keep up to date (ClockExchange). A copy is
// correct, but possibly a little old.
//
// This class reads and writes the clocks. WorkerWait waits for other workers, and the functions of
// call_comparison.h compare the calls of the workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "consistency/consistency.h"
#include "group/rank_context.h"
#include "memory/futex.h"

namespace multiverso {

enum class TickKind : uint8_t { kAdd = 1, kGet = 2 };

class WorkerClocks {
 public:
  // The number of a worker's latest ticks whose kinds are kept, so that the others can compare them
  // with theirs. In sync mode a worker is at most kTicksKept - 1 ticks ahead of the slowest worker.
  static constexpr uint64_t kTicksKept = 64;
  // The sync point of a worker that has released the table.
  static constexpr uint64_t kDeparted = UINT64_MAX;

  // Lies in the table's segment, zero-filled at first. A worker writes its slot; the leader of a
  // node writes the slots of other nodes' workers. A slot fills one cache line, because fetching a
  // line from another core takes longer than everything else in a small round.
  struct alignas(64) Slot {
    std::atomic<uint64_t> adds;        // the number of adds, in rounds 0 to adds - 1
    std::atomic<uint64_t> ticks;       // the number of ticks
    std::atomic<uint64_t> gets;        // bit n % kTicksKept is set if tick n was a get
    std::atomic<uint64_t> sync_point;  // number of the last one reached, or kDeparted
    std::atomic<uint32_t> finished;    // 1 after Finish
    std::atomic<uint32_t> attached;    // in an elastic session, 1 once the worker takes part
  };
  struct alignas(64) Words {
    alignas(64) std::atomic<uint32_t> moves;  // changed when a worker advances while others sleep
    alignas(64) std::atomic<uint32_t> sleepers;
    // The rounds before adds were counted, as a loaded checkpoint says. All ranks store the same
    // value. Modulo 2^64, because loading a checkpoint may set back the clocks.
    std::atomic<uint64_t> rounds_before;
  };

  static int64_t BytesFor(int workers);

  // A rank that is no worker may only read the clocks. Uses BytesFor(number of workers) bytes of
  // shared memory at `base`. `name` is the table's name.
  WorkerClocks(char* base, RankContext* context, std::string name);

  // A slot as it travels between nodes.
  struct Snapshot {
    uint64_t adds = 0;
    uint64_t ticks = 0;
    uint64_t gets = 0;
    // `ticks` after `gets` was read, since newer ticks may have replaced bits of old ticks.
    uint64_t latest = 0;
    uint64_t sync_point = 0;
    uint64_t finished = 0;

    // `gets` and `latest` change only together with `ticks`.
    bool operator==(const Snapshot& other) const {
      return adds == other.adds && ticks == other.ticks && sync_point == other.sync_point &&
             finished == other.finished;
    }
  };

  RankContext* context() const { return context_; }
  // Returns the number of workers, in an elastic session of those that have joined so far.
  int workers() const { return context_->members().num_workers(); }
  // Returns the workers of this node, in worker order.
  const std::vector<int>& here() const { return here_; }
  bool is_here(int worker) const { return context_->members().is_local(rank_of(worker)); }
  // Returns whether some clocks are copies of those of other nodes.
  bool SpansNodes() const { return context_->members().spans_nodes(); }
  // Returns this rank's index among the workers, or -1 if it is no worker.
  int me() const { return me_; }
  int rank_of(int worker) const { return worker_ranks_[static_cast<size_t>(worker)]; }

  uint64_t adds(int worker) const { return slots_[worker].adds.load(std::memory_order_acquire); }
  uint64_t ticks(int worker) const { return slots_[worker].ticks.load(std::memory_order_acquire); }
  // Return the kind and the round of one of the latest kTicksKept ticks of that worker.
  TickKind KindOf(int worker, uint64_t tick) const;
  uint64_t RoundOf(int worker, uint64_t tick) const;
  uint64_t sync_point(int worker) const {
    return slots_[worker].sync_point.load(std::memory_order_acquire);
  }
  // Returns whether every worker has reached that sync point.
  bool AllAt(uint64_t point) const;
  // Returns whether no other worker needs to wait for that worker.
  bool has_finished(int worker) const {
    return slots_[worker].finished.load(std::memory_order_acquire) != 0 ||
           (is_elastic_ && slots_[worker].attached.load(std::memory_order_acquire) == 0);
  }
  // Returns whether that worker has made its add of `round` or has finished.
  bool HasPassed(int worker, uint64_t round) const;
  // Returns whether all workers have passed that round.
  bool AllHavePassed(uint64_t round) const;
  // Returns the number of rounds that some worker has made and every worker has passed.
  uint64_t CompleteRounds() const;
  bool AllHereHavePassed(uint64_t round) const;

  uint64_t my_adds() const {
    return me_ < 0 ? 0 : slots_[me_].adds.load(std::memory_order_relaxed);
  }
  uint64_t my_ticks() const { return slots_[me_].ticks.load(std::memory_order_relaxed); }
  bool i_have_finished() const { return me_ >= 0 && slots_[me_].finished.load() != 0; }

  // Returns the ticks of this worker, or at the last sync point its adds, with the digest of its
  // ticks up to its latest add.
  CallDigest CallsBefore(const SyncPoint& point) const;

  // ---- Advancing
  // Counts this worker's next tick.
  void CountTick(TickKind kind);
  // Publishes this worker's add of its current round.
  void CountAdd();
  // Announces that this worker makes no more adds and ticks.
  void Finish() { FinishFor(me_); }
  // Does the same for another worker, which has been lost.
  void FinishFor(int worker);
  // In an elastic session, Detach announces that the others need not wait for this worker until it
  // calls Attach. Then its clock is at least that of the slowest worker. The workers with which the
  // session was opened are attached at first. Both are no-ops in other sessions.
  void Attach();
  void Detach();
  // Announces that this worker, or one of another node, has reached the sync point.
  void ArriveAt(uint64_t point) { ArriveAt(point, me_); }
  void ArriveAt(uint64_t point, int worker) { slots_[worker].sync_point.store(point); }
  // Announces that this worker has released the table and reaches no more sync points.
  void Depart() { slots_[me_].sync_point.store(kDeparted, std::memory_order_release); }
  // Makes `rounds`, the number in a loaded checkpoint, the largest count of AllAdds.
  void StartFrom(uint64_t rounds);

  // ---- Sleeping
  // Sleeps until done() returns true or, at most, until `until`. Returns done().
  template <class Done>
  bool Sleep(Instant until, Done done) {
    return SleepUntil(&words_->moves, &words_->sleepers, until, done);
  }
  // Wakes the workers that sleep, after a condition that they wait for may have changed.
  void Wake() { WakeSleepers(&words_->moves, words_->sleepers); }
  // Ends the sleep of the leader's service thread, which then looks at these clocks at once.
  void WakeLeader() const { context_->memory()->WakeLeader(); }
  bool HasSleepers() const { return words_->sleepers.load(std::memory_order_relaxed) != 0; }

  // ---- For the leader of a node
  // Returns the part of the slot of a worker of this node that other nodes need.
  Snapshot TakeSnapshot(int worker) const;
  // Stores the slot of a worker of another node, apart from its sync point.
  void StoreCalls(int worker, const Snapshot& snapshot);

  // ---- For checkpoints and messages
  // Returns each worker's number of adds, counted from the first job that trained the table.
  std::vector<uint64_t> AllAdds() const;
  // Returns a name such as "round 5 of table 'w'".
  std::string RoundName(uint64_t round) const;

 private:
  uint64_t rounds_before() const { return words_->rounds_before.load(std::memory_order_relaxed); }

  RankContext* context_;
  bool is_elastic_;
  std::string name_;
  std::vector<int> worker_ranks_;  // the ranks of the workers, in worker order
  std::vector<int> here_;          // the workers of this node, in worker order
  int me_ = -1;                    // this rank's index in worker_ranks_, or -1 if it is no worker
  Words* words_;
  Slot* slots_;
  // Digests of the kinds of all ticks of this worker, and of its ticks up to its latest add.
  uint64_t digest_ = 0;
  uint64_t digest_at_add_ = 0;
};

}  // namespace multiverso
