#include "consistency/worker_clocks.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

const char* NameOf(TickKind tick) { return tick == TickKind::kAdd ? "add" : "get"; }

}  // namespace

int64_t WorkerClocks::BytesFor(int workers) {
  return static_cast<int64_t>(sizeof(Words)) + workers * static_cast<int64_t>(sizeof(Slot));
}

WorkerClocks::WorkerClocks(char* base, RankContext* context, std::string name)
    : context_(context),
      name_(std::move(name)),
      members_(context->workers()->members()),
      words_(reinterpret_cast<Words*>(base)),
      slots_(reinterpret_cast<Slot*>(base + sizeof(Words))) {
  for (int i = 0; i < workers(); ++i) {
    if (rank_of(i) == context_->members().rank()) me_ = i;
    if (context_->members().is_local(rank_of(i))) here_.push_back(i);
  }
}

int WorkerClocks::rank_of(int worker) const { return members_[static_cast<size_t>(worker)]; }

bool WorkerClocks::is_here(int worker) const {
  return context_->members().is_local(rank_of(worker));
}

std::string WorkerClocks::RoundName(uint64_t round) const {
  return StrCat("round ", rounds_before_ + round, " of table '", name_, "'");
}

bool WorkerClocks::HasPassed(int worker, uint64_t round) const {
  // has_finished is read first, because a worker's clock no longer changes after it finishes.
  return has_finished(worker) || adds(worker) > round;
}

bool WorkerClocks::AllHavePassed(uint64_t round) const {
  for (int i = 0; i < workers(); ++i) {
    if (!HasPassed(i, round)) return false;
  }
  return true;
}

uint64_t WorkerClocks::CompleteRounds() const {
  uint64_t rounds = 0;
  for (int i = 0; i < workers(); ++i) rounds = std::max(rounds, adds(i));
  while (rounds > 0 && !AllHavePassed(rounds - 1)) --rounds;
  return rounds;
}

bool WorkerClocks::AllHereHavePassed(uint64_t round) const {
  return std::all_of(here_.begin(), here_.end(),
                     [&](int worker) { return HasPassed(worker, round); });
}

bool WorkerClocks::OthersHavePassed(uint64_t round) const {
  for (int i = 0; i < workers(); ++i) {
    if (i != me_ && !HasPassed(i, round)) return false;
  }
  return true;
}

Status WorkerClocks::MayTick(const char* call, const WaitLimit& limit) {
  if (i_have_finished()) {
    return Status(Code::kState, "this worker has called finish() and takes part in no more rounds");
  }
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/false));
  const uint64_t number = my_ticks();
  const auto lags = [&](int worker) {
    // The limit is kTicksKept - 1, because the other worker may be comparing its last tick.
    const bool late = !has_finished(worker) && ticks(worker) + kTicksKept - 1 < number + 2;
    return late && worker != me_ ? Need::kCall : Need::kNothing;
  };
  const auto nobody_lags = [&] {
    for (int i = 0; i < workers(); ++i) {
      if (lags(i) != Need::kNothing) return false;
    }
    return true;
  };
  return nobody_lags() ? Status::Ok() : Await(call, limit, nobody_lags, lags);
}

Status WorkerClocks::Advance(TickKind tick) {
  Slot& mine = slots_[me_];
  const uint64_t number = my_ticks();
  const uint64_t bit = uint64_t{1} << (number % kTicksKept);
  const uint64_t gets = mine.gets.load(std::memory_order_relaxed);
  mine.gets.store(tick == TickKind::kGet ? gets | bit : gets & ~bit, std::memory_order_relaxed);
  mine.ticks.store(number + 1, std::memory_order_release);
  // The digest is a polynomial, so that the order counts. An odd factor loses no information.
  digest_ = digest_ * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(tick);
  if (tick == TickKind::kAdd) digest_at_add_ = digest_;
  // Other workers wait for ticks only when they are far ahead, so an occasional wake-up suffices.
  if (number % (kTicksKept / 4) == 0) {
    Wake();
    CallLeader();
  }
  // The second worker to reach a tick sees the first worker's tick. Both workers may see each
  // other's tick, but at least one of them does.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || ticks(i) <= number) continue;
    const TickKind other = TickOf(i, number);
    if (other != tick)
      return AbortWithMismatch(number, my_adds(), me_, NameOf(tick), i, NameOf(other));
  }
  return Status::Ok();
}

TickKind WorkerClocks::TickOf(int worker, uint64_t number) const {
  const uint64_t gets = slots_[worker].gets.load(std::memory_order_relaxed);
  return (gets >> (number % kTicksKept) & 1) != 0 ? TickKind::kGet : TickKind::kAdd;
}

void WorkerClocks::ReachSyncPoint(const SyncPoint& sync_point) {
  slots_[me_].sync_point.store(sync_point.number, std::memory_order_release);
  // At least one of two workers sees the other at the sync point, because neither leaves the
  // collective call before both have joined.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || slots_[i].sync_point.load(std::memory_order_acquire) != sync_point.number)
      continue;
    // If two workers disagree, CompareAt has aborted the session, and the collective call that this
    // worker is about to join reports the reason.
    if (!CompareAt(sync_point, me_, i).ok()) return;
  }
}

Status WorkerClocks::CompareAt(const SyncPoint& sync_point, int one, int other) {
  const auto count = [&](int worker) { return sync_point.is_last ? adds(worker) : ticks(worker); };
  if (count(one) == count(other)) return Status::Ok();
  const int fewer = count(other) < count(one) ? other : one;
  const int more = fewer == other ? one : other;
  // A worker that has finished misses no call, and before the last sync point every call that the
  // worker has made is still visible to the others.
  if (has_finished(fewer) || (has_finished(more) && !sync_point.is_last)) return Status::Ok();
  const uint64_t number = ticks(fewer);
  return AbortWithMismatch(number, adds(fewer), fewer, sync_point.call, more,
                           NameOf(TickOf(more, number)));
}

Status WorkerClocks::CompareAt(const SyncPoint& sync_point) {
  if (!AllAt(sync_point.number)) return Status::Pending();
  for (int one = 0; one < workers(); ++one) {
    for (int other = 0; other < one; ++other) {
      if (slots_[one].sync_point.load(std::memory_order_relaxed) != sync_point.number ||
          slots_[other].sync_point.load(std::memory_order_relaxed) != sync_point.number) {
        continue;
      }
      MV_RETURN_IF_NOT_OK(CompareAt(sync_point, one, other));
    }
  }
  return Status::Ok();
}

CallDigest WorkerClocks::CallsBefore(const SyncPoint& sync_point) const {
  return sync_point.is_last ? CallDigest{my_adds(), digest_at_add_}
                            : CallDigest{my_ticks(), digest_};
}

bool WorkerClocks::AllAt(uint64_t sync_point) const {
  for (int i = 0; i < workers(); ++i) {
    if (slots_[i].sync_point.load(std::memory_order_acquire) < sync_point) return false;
  }
  return true;
}

WorkerClocks::Snapshot WorkerClocks::TakeSnapshot(int worker) const {
  const Slot& slot = slots_[worker];
  Snapshot snapshot;
  // A worker announces a sync point, or that it has finished, after its ticks are visible. So the
  // announcements are read before the ticks, which must not be older than an announcement.
  snapshot.sync_point = slot.sync_point.load(std::memory_order_acquire);
  snapshot.finished = slot.finished.load(std::memory_order_acquire);
  snapshot.adds = slot.adds.load(std::memory_order_acquire);
  snapshot.ticks = slot.ticks.load(std::memory_order_acquire);
  snapshot.gets = slot.gets.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  snapshot.latest = slot.ticks.load(std::memory_order_relaxed);
  return snapshot;
}

void WorkerClocks::Merge(int worker, const Snapshot& snapshot) {
  Slot& slot = slots_[worker];
  uint64_t first = ticks(worker);
  // Ticks whose bits have been overwritten need no comparison here. The worker's own node compared
  // them, because a worker does not get that far ahead of clocks that its node has received.
  if (snapshot.latest >= kTicksKept) first = std::max(first, snapshot.latest - kTicksKept + 1);
  slot.gets.store(snapshot.gets, std::memory_order_relaxed);
  slot.ticks.store(snapshot.ticks, std::memory_order_release);
  slot.adds.store(snapshot.adds, std::memory_order_release);
  slot.finished.store(static_cast<uint32_t>(snapshot.finished), std::memory_order_release);
  Wake();
  // A worker whose clock ticks after this point sees the stored values (Advance). A tick made
  // before is compared here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int mine : here_) {
    const Status compared = CompareTicks(mine, worker, first);
    if (compared.ok()) continue;
    context_->state()->AbortInBackground(compared);
    return;
  }
  // A reader that sees this sync point knows that the worker's ticks have been compared.
  slot.sync_point.store(snapshot.sync_point, std::memory_order_release);
  Wake();
}

Status WorkerClocks::CompareTicks(int mine, int other, uint64_t first) const {
  const uint64_t end = std::min(ticks(mine), ticks(other));
  for (uint64_t number = first; number < end; ++number) {
    const TickKind my_tick = TickOf(mine, number);
    const TickKind others_tick = TickOf(other, number);
    std::atomic_thread_fence(std::memory_order_acquire);
    // The bit of the tick that the worker is making may already have replaced the bit of `number`.
    if (my_tick == others_tick || ticks(mine) >= number + kTicksKept) continue;
    // Both workers made the same calls before tick `number`, so their rounds agree. A worker in the
    // middle of an add has ticked but not counted the add, and appears one round behind.
    const uint64_t round = std::max(RoundOf(mine, number), RoundOf(other, number));
    return Mismatch(number, round, mine, NameOf(my_tick), other, NameOf(others_tick));
  }
  return Status::Ok();
}

uint64_t WorkerClocks::RoundOf(int worker, uint64_t tick) const {
  uint64_t round = adds(worker);
  for (uint64_t later = tick; later < ticks(worker) && round > 0; ++later) {
    if (TickOf(worker, later) == TickKind::kAdd) --round;
  }
  return round;
}

Status WorkerClocks::Tick(TickKind tick, const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(MayTick(call, limit));
  return Advance(tick);
}

Status WorkerClocks::Mismatch(uint64_t number, uint64_t round, int one, const char* call, int other,
                              const char* others_call) const {
  const bool in_order = one < other;
  return Status(
      Code::kMismatch,
      StrCat("sync ", RoundName(round), ": rank ", rank_of(in_order ? one : other), " called ",
             in_order ? call : others_call, ", rank ", rank_of(in_order ? other : one), " called ",
             in_order ? others_call : call, " (call number ", number, " on the table)"));
}

Status WorkerClocks::AbortWithMismatch(uint64_t number, uint64_t round, int one, const char* call,
                                       int other, const char* others_call) {
  const Status mismatch = Mismatch(number, round, one, call, other, others_call);
  context_->state()->Abort(mismatch);
  return mismatch;
}

std::vector<uint64_t> WorkerClocks::AllAdds() const {
  std::vector<uint64_t> all;
  for (int i = 0; i < workers(); ++i) all.push_back(rounds_before_ + adds(i));
  return all;
}

void WorkerClocks::StartFrom(uint64_t rounds) {
  uint64_t most = 0;
  for (int i = 0; i < workers(); ++i) most = std::max(most, adds(i));
  rounds_before_ = rounds - most;
}

void WorkerClocks::CountAdd() {
  slots_[me_].adds.store(my_adds() + 1, std::memory_order_release);
  Wake();
}

void WorkerClocks::Finish() {
  slots_[me_].finished.store(1, std::memory_order_release);
  Wake();
  CallLeader();
}

void WorkerClocks::Wake() { WakeSleepers(&words_->moves, words_->sleepers); }

bool WorkerClocks::MayStillArrive() {
  constexpr auto kOnItsWay = std::chrono::milliseconds(100);
  if (!context_->members().spans_nodes()) return false;
  const Instant now = Clock::now();
  if (!abort_noticed_.has_value()) abort_noticed_ = now;
  return now < *abort_noticed_ + kOnItsWay;
}

bool WorkerClocks::MessagesHaveArrived(bool of_this_node) {
  constexpr auto kOnItsWay = std::chrono::milliseconds(500);
  if (of_this_node) return true;
  const Instant now = Clock::now();
  if (!loss_noticed_.has_value()) loss_noticed_ = now;
  return now >= *loss_noticed_ + kOnItsWay;
}

std::string WorkerClocks::NameLost(int worker, const std::string& reason, bool follows) const {
  return StrCat(follows ? ", " : "", context_->members().NameRank(rank_of(worker)), " ", reason);
}

Status WorkerClocks::CheckAwaited(const char* call, const WaitLimit& limit,
                                  const std::function<Need(int)>& waits_for) {
  if (context_->state()->IsAborted() && !aborted_before_ && MayStillArrive()) {
    return limit.Check(Clock::now());
  }
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(!aborted_before_));
  std::vector<int> late;
  std::vector<int> carrying;  // ranks that carry sums, reported if no worker is late
  // The round of the slowest late worker, which is not always the round of this worker.
  uint64_t round = my_adds();
  std::string lost;
  bool is_lost = false;  // whether a worker is lost with no messages in flight
  int lost_rank = -1;
  std::string lost_later;  // lost workers whose part of this round is done
  int lost_later_rank = -1;
  int elsewhere = me_;  // the worker that waits in another call
  const char* call_there = nullptr;
  for (int i = 0; i < workers(); ++i) {
    if (i == me_) continue;
    // The awaited call is read before waits_for, because the worker made its adds before it entered
    // the awaited call.
    const char* const awaited_call = context_->peers()->CollectiveAwaitedBy(rank_of(i));
    const std::string reason = context_->peers()->ExitReason(rank_of(i));
    const Need need = waits_for(i);
    if (need == Need::kNothing) {
      if (!reason.empty() && !has_finished(i)) {
        lost_later += NameLost(i, reason, !lost_later.empty());
        lost_later_rank = rank_of(i);
      }
      continue;
    }
    (need == Need::kCall ? late : carrying).push_back(rank_of(i));
    round = std::min(round, adds(i));
    // All lost workers are named, because one of them may have ended only after it was told of the
    // loss of another.
    if (!reason.empty()) {
      is_lost = MessagesHaveArrived(is_here(i)) || is_lost;
      lost += NameLost(i, reason, !lost.empty());
      lost_rank = rank_of(i);
    } else if (is_here(i) && context_->failure_detector()->IsSilent(rank_of(i))) {
      return context_->state()->ExcludeSilentRank(rank_of(i), StrCat(call, ", ", RoundName(round)));
    } else if (need == Need::kCall && awaited_call != nullptr) {
      elsewhere = i;
      call_there = awaited_call;
    }
  }
  if (is_lost) {
    context_->peers()->LogLastCalls(lost_rank);
    return context_->state()->ReportLost(
        lost_rank, StrCat(lost, " while rank ", context_->members().rank(), " waited for it in ",
                          call, ", ", RoundName(round), context_->peers()->Trace(lost_rank)));
  }
  // A late worker may have ended because it was told of the loss of a worker that was not late.
  if (!lost_later.empty() && MessagesHaveArrived(/*of_this_node=*/false)) {
    return context_->state()->ReportLost(
        lost_later_rank,
        StrCat(lost_later, " while rank ", context_->members().rank(), " waited in ", call, ", ",
               RoundName(round), ", for ", NameRanks(late.empty() ? carrying : late)));
  }
  if (call_there != nullptr) {
    return AbortWithMismatch(ticks(elsewhere), adds(elsewhere), me_, call, elsewhere, call_there);
  }
  const Instant now = Clock::now();
  if (now >= limit.deadline) {
    if (late.empty()) late = carrying;
    Status timeout(
        Code::kTimeout,
        StrCat("rank ", context_->members().rank(), " waited ", SecondsBetween(waiting_since_, now),
               " s in ", call, ", ", RoundName(round), ", for ", NameRanks(late),
               ", which did not join it", late.empty() ? "" : context_->peers()->Trace(late[0])));
    if (!late.empty()) timeout = context_->peers()->About(late[0], timeout);
    context_->state()->Abort(timeout);
    return timeout;
  }
  return limit.Check(now);
}

}  // namespace multiverso
