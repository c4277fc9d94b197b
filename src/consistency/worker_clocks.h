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
// A worker that has to wait sleeps on a word that every other worker changes when it advances. The
// sleeping worker checks periodically whether the workers that it waits for can still make their
// calls. If one of them is lost or waits in another collective call, the wait fails with an error
// that names that worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/consistency.h"
#include "group/peer_watch.h"
#include "group/rank_context.h"
#include "memory/futex.h"

namespace multiverso {

// What a waiting worker needs from another worker.
enum class Need {
  kNothing,
  kCall,  // a call that the other worker has not made; it must be alive and in no collective call
  kWork,  // work that the other worker may be doing; it must be alive
};

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
    std::atomic<uint64_t> sync_point;  // number of the last one reached; UINT64_MAX after Depart
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

  // A rank that is no worker may only read the clocks, and wait. Uses BytesFor(number of workers)
  // bytes of shared memory at `base`. `name` is the table's name.
  WorkerClocks(char* base, RankContext* context, std::string name);

  // Makes every wait fail if that rank, which is no worker but does a part of the rounds, is lost.
  void AlsoNeeds(int rank) { also_needed_.push_back(rank); }

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

  // Returns the number of workers, in an elastic session of those that have joined so far.
  int workers() const { return context_->members().num_workers(); }
  // Returns the workers of this node, in worker order.
  const std::vector<int>& here() const { return here_; }
  bool is_here(int worker) const;
  // Returns whether some clocks are copies of those of other nodes.
  bool SpansNodes() const { return context_->members().spans_nodes(); }
  int me() const { return me_; }

  uint64_t adds(int worker) const { return slots_[worker].adds.load(std::memory_order_acquire); }
  // Returns whether no other worker needs to wait for that worker.
  bool has_finished(int worker) const {
    return slots_[worker].finished.load(std::memory_order_acquire) != 0 ||
           (is_elastic_ && slots_[worker].attached.load(std::memory_order_acquire) == 0);
  }
  // Returns whether that worker has made its add of `round` or has finished.
  bool HasPassed(int worker, uint64_t round) const;
  // Returns whether all workers, apart from `except`, have passed that round.
  bool AllHavePassed(uint64_t round, int except = -1) const;
  bool OthersHavePassed(uint64_t round) const { return AllHavePassed(round, me_); }
  // Returns the number of rounds that some worker has made and every worker has passed.
  uint64_t CompleteRounds() const;
  bool AllHereHavePassed(uint64_t round) const;

  uint64_t my_adds() const {
    return me_ < 0 ? 0 : slots_[me_].adds.load(std::memory_order_relaxed);
  }
  uint64_t my_ticks() const { return slots_[me_].ticks.load(std::memory_order_relaxed); }
  bool i_have_finished() const { return me_ >= 0 && slots_[me_].finished.load() != 0; }

  // Waits while this worker is too far ahead, then makes a tick and compares it with the same tick
  // of the other workers. If they differ, aborts the session with a mismatch, and returns it.
  Status Tick(TickKind kind, const char* call, const WaitLimit& limit);
  // The two halves of Tick, for calls that stage a delta between them. AwaitTicks waits until
  // this worker may make two more ticks. Advance makes and compares one.
  Status AwaitTicks(const char* call, const WaitLimit& limit);
  Status Advance(TickKind kind);
  // Returns the error if the session was aborted or this rank excluded.
  Status CheckRunning() { return context_->state()->CheckRunning(/*was_waiting=*/false); }
  // Publishes this worker's add of its current round.
  void CountAdd();
  // Announces that this worker makes no more adds and ticks.
  void Finish();
  // In an elastic session, Detach announces that the others need not wait for this worker until it
  // calls Attach. Then its clock is at least that of the slowest worker. The workers with which the
  // session was opened are attached at first. Both are no-ops in other sessions.
  void Attach();
  void Detach();
  // Announces that this worker has reached the sync point. Compares its number of ticks with those
  // of the other workers that are there, and aborts the session with a mismatch if they differ. At
  // the last sync point only adds count, because a worker may read the result on its own, but an
  // add that the others do not make would be lost.
  void ReachSyncPoint(const SyncPoint& sync_point);
  // Announces the sync point and compares nothing, because the numbers of calls may differ.
  void ArriveAt(uint64_t sync_point) { slots_[me_].sync_point.store(sync_point); }
  // Aborts the session with a mismatch, and returns it, if a worker waits in a collective call that
  // has not made its adds of the first `rounds` rounds, for which this worker waits in `call`.
  Status CheckAdds(uint64_t rounds, const char* call);
  // Compares the ticks of all pairs of workers at the sync point, and returns the mismatch.
  // Returns pending while some worker, as far as this node knows, has not reached the sync point.
  Status CompareAt(const SyncPoint& sync_point);
  // Returns the ticks of this worker, or at the last sync point its adds, with the digest of its
  // ticks up to its latest add.
  CallDigest CallsBefore(const SyncPoint& sync_point) const;
  // Returns whether every worker has reached that sync point.
  bool AllAt(uint64_t sync_point) const;
  // Announces that this worker has released the table and reaches no more sync points.
  void Depart() { slots_[me_].sync_point.store(kDeparted, std::memory_order_release); }
  // Wakes the workers that sleep in Await, after a condition that they wait for may have changed.
  void Wake();
  // Ends the sleep of the leader's service thread, which then looks at these clocks at once.
  void WakeLeader() const { context_->memory()->WakeLeader(); }
  bool HasSleepers() const { return words_->sleepers.load(std::memory_order_relaxed) != 0; }

  // ---- For the leader of a node
  // Returns the part of the slot of a worker of this node that other nodes need.
  Snapshot TakeSnapshot(int worker) const;
  // Stores the slot of a worker of another node. Aborts the session with a mismatch if a tick of
  // that worker differs from the same tick of a worker of this node.
  void Merge(int worker, const Snapshot& snapshot);

  // Waits until done() returns true. need_of(worker) returns what the wait needs from that worker.
  // A thread that has work meanwhile does not sleep: work(until) returns done().
  template <class Done, class NeedOf>
  Status Await(const char* call, const WaitLimit& limit, Done done, NeedOf need_of,
               const std::function<bool(Instant)>& work = nullptr);

  // Returns each worker's number of adds, counted from the first job that trained the table.
  std::vector<uint64_t> AllAdds() const;
  // Makes the largest count of AllAdds `rounds`, the number in a loaded checkpoint.
  void StartFrom(uint64_t rounds);

  // Returns a name such as "round 5 of table 'w'", for messages.
  std::string RoundName(uint64_t round) const;
  int rank_of(int worker) const;

 private:
  uint64_t rounds_before() const { return words_->rounds_before.load(std::memory_order_relaxed); }
  Status CheckAwaited(const char* call, const WaitLimit& limit,
                      const std::function<Need(int)>& need_of);
  uint64_t ticks(int worker) const { return slots_[worker].ticks.load(std::memory_order_acquire); }
  TickKind KindOf(int worker, uint64_t tick) const;
  // Returns a mismatch that names the different calls of two workers in the order of their ranks.
  Status Mismatch(uint64_t tick, uint64_t round, int worker, const char* call, int other,
                  const char* others_call) const;
  // Aborts the session with the result of Mismatch, and returns that result.
  Status AbortWithMismatch(uint64_t tick, uint64_t round, int worker, const char* call, int other,
                           const char* others_call);
  // Aborts with a mismatch if the counts of two workers at the same sync point disagree.
  Status ComparePair(const SyncPoint& sync_point, int worker, int other);
  // Compares the ticks, from `first` on, that a worker of this node and one of another have made.
  Status CompareTicks(int local_worker, int remote_worker, uint64_t first) const;

  uint64_t RoundOf(int worker, uint64_t tick) const;
  // Returns whether messages sent before the abort, which can overtake them, may still arrive.
  bool EarlierMessagesMayArrive();

  RankContext* context_;
  bool is_elastic_;
  std::string name_;
  std::vector<int> worker_ranks_;  // the ranks of the workers, in worker order
  std::vector<int> here_;          // the workers of this node, in worker order
  int me_ = -1;                    // this rank's index in worker_ranks_, or -1 if it is no worker
  std::vector<int> also_needed_;
  Words* words_;
  Slot* slots_;
  PeerWatch watch_;  // of the current wait
  // Whether the session was aborted when the wait began.
  bool aborted_before_ = false;
  std::optional<Instant> abort_noticed_;
  // Digests of the kinds of all ticks of this worker, and of its ticks up to its latest add.
  uint64_t digest_ = 0;
  uint64_t digest_at_add_ = 0;
};

template <class Done, class NeedOf>
Status WorkerClocks::Await(const char* call, const WaitLimit& limit, Done done, NeedOf need_of,
                           const std::function<bool(Instant)>& work) {
  if (work == nullptr && SpinUntil(done, context_->memory()->spin_policy())) return Status::Ok();
  if (work == nullptr) WakeLeader();
  watch_.Begin();
  aborted_before_ = context_->state()->IsAborted();
  abort_noticed_.reset();
  for (;;) {
    const Instant now = Clock::now();
    const Instant next_check = limit.NextWake(now);
    const bool is_done = work == nullptr
                             ? SleepUntil(&words_->moves, &words_->sleepers, next_check, done)
                             : work(next_check);
    if (is_done) return Status::Ok();
    const Status status = CheckAwaited(call, limit, need_of);
    // The awaited condition may have become true between the two checks.
    if (!status.ok()) return done() ? Status::Ok() : status;
  }
}

}  // namespace multiverso
