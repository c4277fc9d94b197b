// WorkerClocks: how far each worker has come with one table. The words of sync mode and of bounded
// staleness, in the table's shared memory.
//
// In a session that spans nodes each node has a slot for every worker, and those of other nodes'
// workers are copies that the leaders of the nodes keep up to date (ClockExchange): what they say
// is true, but may be a while old.
//
// A worker's clock is the number of adds it has made; an add ends its round. Whoever has to wait
// for others sleeps on one word that everybody bumps who moves on. While it sleeps it looks now
// and then whether those it waits for can still come: a worker that died, that left, or that
// stands in a barrier or in shutdown never will, and the wait ends with its name.
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
#include "group/rank_context.h"
#include "memory/futex.h"

namespace multiverso {

struct CallDigest;
struct SyncPoint;

// Why a wait needs another worker.
enum class Need {
  kNothing,
  kCall,  // it has not made the call yet, so it must not be in any other
  kWork,  // it may be in the middle of the work, so it must not be dead
};

// The parts of a call that take a turn. A call that adds and gets takes two.
enum class TurnKind : uint8_t { kAdd = 1, kGet = 2 };

class WorkerClocks {
 public:
  // How many turns a worker may be ahead of the slowest, whatever the mode: its latest turns are
  // kept for the others to compare theirs with.
  static constexpr uint64_t kTurnsKept = 64;

  // In the table's segment, written by its worker alone. Valid when zero-filled. One cache line,
  // since a line that another core wrote takes longer to come than all else in a small round.
  struct alignas(64) Slot {
    std::atomic<uint64_t> adds;   // made, in rounds 0 to adds - 1
    std::atomic<uint64_t> turns;  // taken
    std::atomic<uint64_t> gets;   // bit n % kTurnsKept is set if turn n was a get
    std::atomic<uint64_t> fence;  // the number of the last one it has come to
    std::atomic<uint32_t> finished;
  };
  struct alignas(64) Words {
    alignas(64) std::atomic<uint32_t> moves;  // bumped when anybody moves on while others sleep
    alignas(64) std::atomic<uint32_t> sleepers;
  };

  static int64_t BytesFor(int workers);

  // Over BytesFor(number of the group's workers) of shared memory. `name` is the table's.
  WorkerClocks(char* base, RankContext* group, std::string name);

  // A slot as it travels between nodes.
  struct Reading {
    uint64_t adds = 0;
    uint64_t turns = 0;
    uint64_t gets = 0;
    uint64_t latest = 0;  // turns when `gets` had been read: bits of old turns may be of new ones
    uint64_t fence = 0;
    uint64_t finished = 0;

    bool operator==(const Reading& other) const {
      return adds == other.adds && turns == other.turns && fence == other.fence &&
             finished == other.finished;
    }
  };

  int workers() const { return static_cast<int>(members_.size()); }
  // The workers of this node, in worker order.
  const std::vector<int>& here() const { return here_; }
  bool is_here(int worker) const;
  int me() const { return me_; }

  uint64_t adds(int worker) const { return slots_[worker].adds.load(std::memory_order_acquire); }
  bool has_finished(int worker) const {
    return slots_[worker].finished.load(std::memory_order_acquire) != 0;
  }
  // Whether that worker has made its add of `round`, or never will because it has finished.
  bool HasPassed(int worker, uint64_t round) const;
  bool AllHavePassed(uint64_t round) const;
  bool OthersHavePassed(uint64_t round) const;
  // The workers of this node.
  bool AllHereHavePassed(uint64_t round) const;

  // This worker's own.
  uint64_t my_adds() const { return slots_[me_].adds.load(std::memory_order_relaxed); }
  uint64_t my_turns() const { return slots_[me_].turns.load(std::memory_order_relaxed); }
  bool i_have_finished() const { return has_finished(me_); }

  // Takes this worker's next turn and compares it with what others did at the same place. Mismatch,
  // on every rank, if somebody did something else there. Pending while this worker is too far
  // ahead.
  Status TakeTurn(TurnKind turn, const char* call, const WaitLimit& limit);
  // The two halves of it, for calls that have something to do in between: whether it may take up
  // to two turns now, and taking one.
  Status MayTakeTurns(const char* call, const WaitLimit& limit);
  Status Take(TurnKind turn);
  // The error if the session has been given up.
  Status CheckAborted() { return group_->state()->CheckRunning(/*was_waiting=*/false); }
  // This worker's add of its current round is there for all to see.
  void CountAdd();
  // This worker takes no further turns.
  void Finish();
  // Compares the turns taken with those of the workers that have come to the fence before. At the
  // last one only adds count: a worker may read what came of it all for itself, but an add that
  // the others do not make would be lost.
  void ReachSyncPoint(const SyncPoint& fence);
  // Compares all workers when all have come to the fence, as far as is known here: pending if some
  // have not.
  Status CompareAt(const SyncPoint& fence);
  // What this worker brings to a fence where it does not see the others.
  CallDigest CallsBefore(const SyncPoint& fence) const;
  // Whether every worker has come to that fence, or to the last one that this worker has come to.
  bool AllAt(uint64_t fence) const;
  bool AllAtMySyncPoint() const { return AllAt(slots_[me_].fence.load(std::memory_order_relaxed)); }
  // This worker has released the table and comes to no more fences with it.
  void Depart() { slots_[me_].fence.store(UINT64_MAX, std::memory_order_release); }
  // Something else that sleepers wait for has happened.
  void Wake();
  // Makes the leader of this node look at these clocks at once.
  void CallLeader() const { group_->memory()->WakeLeader(); }
  bool AnybodySleeps() const { return words_->sleepers.load(std::memory_order_relaxed) != 0; }

  // ---- Of the leader of a node
  // What others have to know of a worker of this node.
  Reading Read(int worker) const;
  // That is how far a worker of another node has come. Gives the session up, for a mismatch, if
  // that does not agree with what workers of this node have done.
  void Note(int worker, const Reading& reading);

  // Waits until done(). `waits_for(worker)` gives the Need of that worker.
  template <class Done, class WaitsFor>
  Status Await(const char* call, const WaitLimit& limit, Done done, WaitsFor waits_for);

  // The adds of all workers, counted from the first job that trained the table.
  std::vector<uint64_t> AllAdds() const;
  // Jobs before this one have made `rounds` rounds: only names and checkpoints show it.
  void StartFrom(uint64_t rounds);

  // "round 5 of table 'w'", for messages.
  std::string RoundName(uint64_t round) const;
  int rank_of(int worker) const;

 private:
  Status LookAfter(const char* call, const WaitLimit& limit,
                   const std::function<Need(int)>& waits_for);
  uint64_t turns(int worker) const { return slots_[worker].turns.load(std::memory_order_acquire); }
  TurnKind TurnOf(int worker, uint64_t number) const;
  // What two workers called at the same place, in the order of their ranks.
  Status Mismatch(uint64_t number, uint64_t round, int one, const char* call, int other,
                  const char* others_call) const;
  // The same, and gives the session up.
  Status Disagree(uint64_t number, uint64_t round, int one, const char* call, int other,
                  const char* others_call);
  // Mismatch if the calls of two workers that have come to the same fence do not agree there.
  Status CompareAt(const SyncPoint& fence, int one, int other);
  // Compares the turns from `first` on that a worker of this node and another have both taken.
  Status CompareTurns(int mine, int other, uint64_t first) const;
  // In which round a worker's turn was.
  uint64_t RoundOf(int worker, uint64_t turn) const;
  // "rank 1 on host (process 12) died", after others or not.
  std::string NameLost(int worker, const std::string& gone, bool follows) const;
  // The news that the session was given up may be here before what was done before it.
  bool AllIsOnItsWay();
  // Whether it is long enough since somebody was seen to be gone that what it did before has come.
  bool MessagesHaveArrived(bool of_this_node);

  RankContext* group_;
  std::string name_;
  std::vector<int> members_;  // ranks of the workers, in worker order
  std::vector<int> here_;
  int me_ = -1;  // place in members_
  Words* words_;
  Slot* slots_;
  // Since when this worker waits, and whether the session had been given up before that.
  Instant waiting_since_{};
  bool waiting_ = false;
  bool aborted_before_ = false;
  std::optional<Instant> lost_at_;
  std::optional<Instant> given_up_at_;
  // Of the turns that this worker has taken, and of those up to its latest add.
  uint64_t digest_ = 0;
  uint64_t digest_at_add_ = 0;
  uint64_t rounds_before_ = 0;  // modulo 2^64
};

template <class Done, class WaitsFor>
Status WorkerClocks::Await(const char* call, const WaitLimit& limit, Done done,
                           WaitsFor waits_for) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  if (SpinUntil(done, group_->memory()->spin_policy())) return Status::Ok();
  if (!waiting_) {
    waiting_ = true;
    waiting_since_ = Clock::now();
    aborted_before_ = group_->state()->IsAborted();
    lost_at_.reset();
    given_up_at_.reset();
    CallLeader();
  }
  for (;;) {
    const Instant look = std::min(limit.first(), Clock::now() + kLook);
    if (SleepUntil(&words_->moves, &words_->sleepers, look, done)) break;
    const Status status = LookAfter(call, limit, waits_for);
    // Between the two looks what was waited for may have happened.
    if (!status.ok() && !status.pending() && done()) break;
    if (!status.ok() && !status.pending()) waiting_ = false;
    MV_RETURN_IF_NOT_OK(status);
  }
  waiting_ = false;
  return Status::Ok();
}

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_WORKER_CLOCKS_H_
