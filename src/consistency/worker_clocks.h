// WorkerClocks: the progress of each worker with one table, in sync mode and with bounded
// staleness. The clocks lie in the table's shared memory.
//
// In a session that spans nodes each node has a slot for every worker. The slots of other nodes'
// workers are copies that the leaders of the nodes keep up to date (ClockExchange). A copy is
// correct, but possibly a little old.
//
// A worker's clock is the number of its adds, because each add ends a round. A worker that has to
// wait sleeps on one word that every advancing worker changes. The sleeping worker checks
// periodically whether the workers that it waits for can still make their calls. If one of them is
// lost or waits in another collective call, the wait fails with an error that names that worker.
#ifndef MULTIVERSO_CONSISTENCY_WORKER_CLOCKS_H_
#define MULTIVERSO_CONSISTENCY_WORKER_CLOCKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/consistency.h"
#include "group/rank_context.h"
#include "memory/futex.h"

namespace multiverso {

// The reason why a wait needs another worker.
enum class Need {
  kNothing,
  kCall,  // the worker has not made the call yet, so it must not be in another call
  kWork,  // the worker may be in the middle of the work, so it must be alive
};

// A worker's clock ticks once for an add and once for a get, so a call that does both ticks twice.
enum class TickKind : uint8_t { kAdd = 1, kGet = 2 };

class WorkerClocks {
 public:
  // The number of a worker's latest ticks that are kept, so that the other workers can compare them
  // with theirs. In sync mode a worker is at most kTicksKept - 1 ticks ahead of the slowest worker.
  static constexpr uint64_t kTicksKept = 64;

  // Lies in the table's segment, zero-filled at first. Only the slot's worker writes a slot, or the
  // leader for a worker of another node. A slot fills one cache line, because fetching a line from
  // another core takes longer than everything else in a small round.
  struct alignas(64) Slot {
    std::atomic<uint64_t> adds;        // the number of adds, in rounds 0 to adds - 1
    std::atomic<uint64_t> ticks;       // the number of ticks
    std::atomic<uint64_t> gets;        // bit n % kTicksKept is set if tick n was a get
    std::atomic<uint64_t> sync_point;  // the number of the last sync point that the worker reached
    std::atomic<uint32_t> finished;
  };
  struct alignas(64) Words {
    alignas(64) std::atomic<uint32_t> moves;  // changed when a worker advances while others sleep
    alignas(64) std::atomic<uint32_t> sleepers;
  };

  static int64_t BytesFor(int workers);

  // Uses BytesFor(number of workers) bytes of shared memory at `base`. `name` is the table's name.
  WorkerClocks(char* base, RankContext* context, std::string name);

  // A slot as it travels between nodes.
  struct Snapshot {
    uint64_t adds = 0;
    uint64_t ticks = 0;
    uint64_t gets = 0;
    uint64_t latest =
        0;  // `ticks` after `gets` was read, since newer ticks may have replaced bits of old ticks
    uint64_t sync_point = 0;
    uint64_t finished = 0;

    bool operator==(const Snapshot& other) const {
      return adds == other.adds && ticks == other.ticks && sync_point == other.sync_point &&
             finished == other.finished;
    }
  };

  int workers() const { return static_cast<int>(members_.size()); }
  // Returns the workers of this node, in worker order.
  const std::vector<int>& here() const { return here_; }
  bool is_here(int worker) const;
  int me() const { return me_; }

  uint64_t adds(int worker) const { return slots_[worker].adds.load(std::memory_order_acquire); }
  bool has_finished(int worker) const {
    return slots_[worker].finished.load(std::memory_order_acquire) != 0;
  }
  // Returns whether that worker has made its add of `round` or has finished.
  bool HasPassed(int worker, uint64_t round) const;
  bool AllHavePassed(uint64_t round) const;
  bool OthersHavePassed(uint64_t round) const;
  // Returns the number of rounds that every worker has passed.
  uint64_t CompleteRounds() const;
  bool AllHereHavePassed(uint64_t round) const;

  // Return the counts and the state of this worker.
  uint64_t my_adds() const { return slots_[me_].adds.load(std::memory_order_relaxed); }
  uint64_t my_ticks() const { return slots_[me_].ticks.load(std::memory_order_relaxed); }
  bool i_have_finished() const { return has_finished(me_); }

  // Advances this worker's clock and compares the tick with the same tick of the other workers. If
  // another worker made a different call at that tick, aborts the session with a mismatch and
  // returns the mismatch. Returns pending while this worker is too far ahead.
  Status Tick(TickKind tick, const char* call, const WaitLimit& limit);
  // The two halves of Tick, for calls that stage a delta between them. MayTick waits until the
  // clock may tick twice. Advance makes it tick once.
  Status MayTick(const char* call, const WaitLimit& limit);
  Status Advance(TickKind tick);
  // Returns the error if the session has been aborted.
  Status CheckAborted() { return context_->state()->CheckRunning(/*was_waiting=*/false); }
  // Publishes this worker's add of its current round.
  void CountAdd();
  // Announces that this worker's clock has stopped.
  void Finish();
  // Compares this worker's ticks with those of the workers that have reached the sync point. At the
  // last sync point only adds count, because a worker may read the result on its own, but an add
  // that the others do not make would be lost.
  void ReachSyncPoint(const SyncPoint& sync_point);
  // Compares all workers after all have reached the sync point. Returns pending while some worker,
  // as far as this node knows, has not reached the sync point.
  Status CompareAt(const SyncPoint& sync_point);
  // Returns the digest of this worker's calls, for a sync point of workers on several nodes.
  CallDigest CallsBefore(const SyncPoint& sync_point) const;
  // Return whether every worker has reached that sync point, or this worker's last sync point.
  bool AllAt(uint64_t sync_point) const;
  bool AllAtMySyncPoint() const {
    return AllAt(slots_[me_].sync_point.load(std::memory_order_relaxed));
  }
  // Announces that this worker has released the table and reaches no more sync points.
  void Depart() { slots_[me_].sync_point.store(UINT64_MAX, std::memory_order_release); }
  // Wakes the workers that sleep in Await, after a condition that they wait for may have changed.
  void Wake();
  // Makes the leader of this node check these clocks at once.
  void CallLeader() const { context_->memory()->WakeLeader(); }
  bool HasSleepers() const { return words_->sleepers.load(std::memory_order_relaxed) != 0; }

  // ---- For the leader of a node
  // Returns the part of the slot of a worker of this node that other nodes need.
  Snapshot TakeSnapshot(int worker) const;
  // Stores the clock of a worker of another node. Aborts the session with a mismatch if that worker
  // and a worker of this node have different ticks.
  void Merge(int worker, const Snapshot& snapshot);

  // Waits until done() returns true. `waits_for(worker)` returns why the wait needs that worker.
  template <class Done, class WaitsFor>
  Status Await(const char* call, const WaitLimit& limit, Done done, WaitsFor waits_for);

  // Returns each worker's number of adds, counted from the first job that trained the table.
  std::vector<uint64_t> AllAdds() const;
  // Sets the number of rounds that earlier jobs made, which only names and checkpoints show.
  void StartFrom(uint64_t rounds);

  // Returns a name such as "round 5 of table 'w'", for messages.
  std::string RoundName(uint64_t round) const;
  int rank_of(int worker) const;

 private:
  Status CheckAwaited(const char* call, const WaitLimit& limit,
                      const std::function<Need(int)>& waits_for);
  uint64_t ticks(int worker) const { return slots_[worker].ticks.load(std::memory_order_acquire); }
  TickKind TickOf(int worker, uint64_t number) const;
  // Returns a mismatch that names the different calls of two workers in the order of their ranks.
  Status Mismatch(uint64_t number, uint64_t round, int one, const char* call, int other,
                  const char* others_call) const;
  // Aborts the session with the result of Mismatch, and returns that result.
  Status AbortWithMismatch(uint64_t number, uint64_t round, int one, const char* call, int other,
                           const char* others_call);
  // Returns a mismatch if two workers that have reached the same sync point disagree.
  Status CompareAt(const SyncPoint& sync_point, int one, int other);
  // Compares the ticks, from `first` on, that both a worker of this node and another have made.
  Status CompareTicks(int mine, int other, uint64_t first) const;

  uint64_t RoundOf(int worker, uint64_t tick) const;
  // Returns "rank 1 on host (process 12) died", after a separator if `follows`.
  std::string NameLost(int worker, const std::string& reason, bool follows) const;
  // Returns whether messages sent before the abort may still arrive, because an abort can overtake
  // other messages.
  bool MayStillArrive();
  // Returns whether the lost rank's last messages have had enough time to arrive since this worker
  // detected the loss.
  bool MessagesHaveArrived(bool of_this_node);

  RankContext* context_;
  std::string name_;
  std::vector<int> members_;  // the ranks of the workers, in worker order
  std::vector<int> here_;
  int me_ = -1;  // this rank's index in members_
  Words* words_;
  Slot* slots_;
  // The time when this worker began to wait, and whether the session was aborted before that time.
  Instant waiting_since_{};
  bool waiting_ = false;
  bool aborted_before_ = false;
  std::optional<Instant> loss_noticed_;
  std::optional<Instant> abort_noticed_;
  // Digests of all ticks of this worker, and of its ticks up to its latest add.
  uint64_t digest_ = 0;
  uint64_t digest_at_add_ = 0;
  uint64_t rounds_before_ = 0;  // modulo 2^64
};

template <class Done, class WaitsFor>
Status WorkerClocks::Await(const char* call, const WaitLimit& limit, Done done,
                           WaitsFor waits_for) {
  constexpr auto kCheckInterval = std::chrono::milliseconds(20);
  if (SpinUntil(done, context_->memory()->spin_policy())) return Status::Ok();
  if (!waiting_) {
    waiting_ = true;
    waiting_since_ = Clock::now();
    aborted_before_ = context_->state()->IsAborted();
    loss_noticed_.reset();
    abort_noticed_.reset();
    CallLeader();
  }
  for (;;) {
    const Instant look = std::min(limit.earliest(), Clock::now() + kCheckInterval);
    if (SleepUntil(&words_->moves, &words_->sleepers, look, done)) break;
    const Status status = CheckAwaited(call, limit, waits_for);
    // The awaited condition may have become true between the two checks.
    if (!status.ok() && !status.pending() && done()) break;
    if (!status.ok() && !status.pending()) waiting_ = false;
    MV_RETURN_IF_NOT_OK(status);
  }
  waiting_ = false;
  return Status::Ok();
}

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_WORKER_CLOCKS_H_
