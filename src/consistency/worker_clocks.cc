#include "consistency/worker_clocks.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

const char* NameOf(TickKind kind) { return kind == TickKind::kAdd ? "add" : "get"; }

}  // namespace

int64_t WorkerClocks::BytesFor(int workers) {
  return static_cast<int64_t>(sizeof(Words)) + workers * static_cast<int64_t>(sizeof(Slot));
}

WorkerClocks::WorkerClocks(char* base, RankContext* context, std::string name)
    : context_(context),
      is_elastic_(context->members().is_elastic()),
      name_(std::move(name)),
      words_(reinterpret_cast<Words*>(base)),
      slots_(reinterpret_cast<Slot*>(base + sizeof(Words))),
      watch_(&context->members(), context->peers(), context->state()) {
  const Membership& members = context_->members();
  for (int rank = 0; rank < members.capacity(); ++rank) {
    if (!members.is_worker(rank)) continue;
    if (members.is_local(rank)) here_.push_back(static_cast<int>(worker_ranks_.size()));
    worker_ranks_.push_back(rank);
  }
  me_ = members.worker_id();
  if (me_ >= 0 && me_ < members.initial_size()) Attach();
}

void WorkerClocks::Attach() {
  Slot& mine = slots_[me_];
  if (!is_elastic_ || mine.attached.load(std::memory_order_relaxed) != 0) return;
  // Raises this worker's clock to that of the slowest other worker.
  const auto catch_up = [&] {
    uint64_t slowest = UINT64_MAX;
    for (int worker = 0; worker < workers(); ++worker) {
      if (worker == me_ || has_finished(worker)) continue;
      if (context_->peers()->IsLost(rank_of(worker))) continue;
      slowest = std::min(slowest, adds(worker));
    }
    if (slowest != UINT64_MAX && slowest > my_adds()) mine.adds.store(slowest);
  };
  catch_up();
  mine.attached.store(1);
  // The slowest may have advanced meanwhile. From now on the others wait for this worker.
  catch_up();
  Wake();
}

void WorkerClocks::Detach() {
  if (!is_elastic_) return;
  slots_[me_].attached.store(0);
  Wake();
}

int WorkerClocks::rank_of(int worker) const { return worker_ranks_[static_cast<size_t>(worker)]; }

bool WorkerClocks::is_here(int worker) const {
  return context_->members().is_local(rank_of(worker));
}

std::string WorkerClocks::RoundName(uint64_t round) const {
  return StrCat("round ", rounds_before() + round, " of table '", name_, "'");
}

bool WorkerClocks::HasPassed(int worker, uint64_t round) const {
  // has_finished is read first, because a worker's clock no longer changes after it finishes.
  return has_finished(worker) || adds(worker) > round;
}

bool WorkerClocks::AllHavePassed(uint64_t round, int except) const {
  for (int i = 0; i < workers(); ++i) {
    if (i != except && !HasPassed(i, round)) return false;
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

Status WorkerClocks::AwaitTicks(const char* call, const WaitLimit& limit) {
  if (i_have_finished()) {
    return AddAfterFinish();
  }
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/false));
  const uint64_t ticks_after_call = my_ticks() + 2;
  const auto need_of = [&](int worker) {
    // A worker may be ahead by kTicksKept - 1, because another may still compare its own last tick.
    const bool lags = !has_finished(worker) && ticks(worker) + kTicksKept - 1 < ticks_after_call;
    return lags && worker != me_ ? Need::kCall : Need::kNothing;
  };
  const auto nobody_lags = [&] {
    for (int i = 0; i < workers(); ++i) {
      if (need_of(i) != Need::kNothing) return false;
    }
    return true;
  };
  return nobody_lags() ? Status::Ok() : Await(call, limit, nobody_lags, need_of);
}

Status WorkerClocks::Advance(TickKind kind) {
  Slot& mine = slots_[me_];
  const uint64_t tick = my_ticks();
  const uint64_t bit = uint64_t{1} << (tick % kTicksKept);
  const uint64_t gets = mine.gets.load(std::memory_order_relaxed);
  mine.gets.store(kind == TickKind::kGet ? gets | bit : gets & ~bit, std::memory_order_relaxed);
  mine.ticks.store(tick + 1, std::memory_order_release);
  // The digest is a polynomial, so that the order counts. An odd factor loses no information.
  digest_ = digest_ * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(kind);
  if (kind == TickKind::kAdd) digest_at_add_ = digest_;
  // Other workers wait for ticks only when they are far ahead, so an occasional wake-up suffices.
  if (tick % (kTicksKept / 4) == 0) {
    Wake();
    WakeLeader();
  }
  // Of two workers that make the same tick, at least one sees the other's tick.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || ticks(i) <= tick) continue;
    const TickKind other = KindOf(i, tick);
    if (other != kind)
      return AbortWithMismatch(tick, my_adds(), me_, NameOf(kind), i, NameOf(other));
  }
  return Status::Ok();
}

TickKind WorkerClocks::KindOf(int worker, uint64_t tick) const {
  const uint64_t gets = slots_[worker].gets.load(std::memory_order_relaxed);
  return (gets >> (tick % kTicksKept) & 1) != 0 ? TickKind::kGet : TickKind::kAdd;
}

void WorkerClocks::ReachSyncPoint(const SyncPoint& sync_point) {
  ArriveAt(sync_point.number);
  // At least one of two workers sees the other at the sync point, because neither leaves the
  // collective call before both have joined.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || slots_[i].sync_point.load(std::memory_order_acquire) != sync_point.number)
      continue;
    // If two workers disagree, ComparePair has aborted the session, and the collective call that
    // this worker is about to join reports the reason.
    if (!ComparePair(sync_point, me_, i).ok()) return;
  }
}

Status WorkerClocks::ComparePair(const SyncPoint& sync_point, int worker, int other) {
  const auto count = [&](int i) { return sync_point.is_last ? adds(i) : ticks(i); };
  if (count(worker) == count(other)) return Status::Ok();
  const int behind = count(other) < count(worker) ? other : worker;
  const int ahead = behind == other ? worker : other;
  // A worker that has finished misses no call. Until the last sync point, the others may still make
  // the calls by which a finished worker is ahead.
  if (has_finished(behind) || (has_finished(ahead) && !sync_point.is_last)) return Status::Ok();
  const uint64_t tick = ticks(behind);
  return AbortWithMismatch(tick, adds(behind), behind, sync_point.call, ahead,
                           NameOf(KindOf(ahead, tick)));
}

Status WorkerClocks::CheckAdds(uint64_t rounds, const char* call) {
  for (int worker = 0; worker < workers(); ++worker) {
    // The call is read before the adds, because the worker made its adds before it began the call.
    const char* const their_call = context_->peers()->CollectiveAwaitedBy(rank_of(worker));
    if (their_call == nullptr || HasPassed(worker, rounds - 1)) continue;
    return AbortWithMismatch(ticks(worker), adds(worker), me_, call, worker, their_call);
  }
  return Status::Ok();
}

Status WorkerClocks::CompareAt(const SyncPoint& sync_point) {
  if (!AllAt(sync_point.number)) return Status::Pending();
  const auto is_there = [&](int worker) {
    return slots_[worker].sync_point.load(std::memory_order_relaxed) == sync_point.number;
  };
  for (int worker = 0; worker < workers(); ++worker) {
    for (int other = 0; other < worker && is_there(worker); ++other) {
      if (is_there(other)) MV_RETURN_IF_NOT_OK(ComparePair(sync_point, worker, other));
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
  // A worker stores `sync_point` and `finished` after the ticks that precede them. Both are read
  // before the ticks, so that the snapshot contains those ticks.
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
  // A worker of this node that ticks after this fence sees the stored values (Advance). Its earlier
  // ticks are compared here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int local_worker : here_) {
    const Status compared = CompareTicks(local_worker, worker, first);
    if (compared.ok()) continue;
    context_->state()->AbortInBackground(compared);
    return;
  }
  // A reader that sees this sync point knows that the worker's ticks have been compared.
  slot.sync_point.store(snapshot.sync_point, std::memory_order_release);
  Wake();
}

Status WorkerClocks::CompareTicks(int local_worker, int remote_worker, uint64_t first) const {
  const uint64_t end = std::min(ticks(local_worker), ticks(remote_worker));
  for (uint64_t tick = first; tick < end; ++tick) {
    const TickKind local = KindOf(local_worker, tick);
    const TickKind remote = KindOf(remote_worker, tick);
    std::atomic_thread_fence(std::memory_order_acquire);
    // The bit of the tick that the local worker is making may have replaced the bit of `tick`.
    if (local == remote || ticks(local_worker) >= tick + kTicksKept) continue;
    // Both workers made the same calls before `tick`, so their rounds agree. A worker in the middle
    // of an add has ticked but not counted the add, and appears one round behind.
    const uint64_t round = std::max(RoundOf(local_worker, tick), RoundOf(remote_worker, tick));
    return Mismatch(tick, round, local_worker, NameOf(local), remote_worker, NameOf(remote));
  }
  return Status::Ok();
}

uint64_t WorkerClocks::RoundOf(int worker, uint64_t tick) const {
  uint64_t round = adds(worker);
  for (uint64_t later = tick; later < ticks(worker) && round > 0; ++later) {
    if (KindOf(worker, later) == TickKind::kAdd) --round;
  }
  return round;
}

Status WorkerClocks::Tick(TickKind kind, const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(AwaitTicks(call, limit));
  return Advance(kind);
}

Status WorkerClocks::Mismatch(uint64_t tick, uint64_t round, int worker, const char* call,
                              int other, const char* others_call) const {
  const bool in_order = worker < other;
  const std::string first = in_order ? call : others_call;
  const std::string second = in_order ? others_call : call;
  const bool one_shuts_down = first == "shutdown" || second == "shutdown";
  return Status(
      Code::kMismatch,
      StrCat("sync ", RoundName(round), ": rank ", rank_of(in_order ? worker : other), " called ",
             first, ", rank ", rank_of(in_order ? other : worker), " called ", second,
             " (call number ", tick, " on the table)",
             one_shuts_down ? "; a worker with fewer batches calls finish() before shutdown" : ""));
}

Status WorkerClocks::AbortWithMismatch(uint64_t tick, uint64_t round, int worker, const char* call,
                                       int other, const char* others_call) {
  const Status mismatch = Mismatch(tick, round, worker, call, other, others_call);
  context_->state()->Abort(mismatch);
  return mismatch;
}

std::vector<uint64_t> WorkerClocks::AllAdds() const {
  std::vector<uint64_t> all;
  for (int worker = 0; worker < workers(); ++worker) all.push_back(rounds_before() + adds(worker));
  return all;
}

void WorkerClocks::StartFrom(uint64_t rounds) {
  uint64_t most_adds = 0;
  for (int worker = 0; worker < workers(); ++worker) most_adds = std::max(most_adds, adds(worker));
  words_->rounds_before.store(rounds - most_adds, std::memory_order_relaxed);
}

void WorkerClocks::CountAdd() {
  slots_[me_].adds.store(my_adds() + 1, std::memory_order_release);
  Wake();
}

void WorkerClocks::Finish() {
  slots_[me_].finished.store(1, std::memory_order_release);
  Wake();
  WakeLeader();
}

void WorkerClocks::Wake() { WakeSleepers(&words_->moves, words_->sleepers); }

bool WorkerClocks::EarlierMessagesMayArrive() {
  constexpr auto kDelay = std::chrono::milliseconds(100);  // much longer than a message takes
  if (!context_->members().spans_nodes()) return false;
  const Instant now = Clock::now();
  if (!abort_noticed_.has_value()) abort_noticed_ = now;
  return now < *abort_noticed_ + kDelay;
}

Status WorkerClocks::CheckAwaited(const char* call, const WaitLimit& limit,
                                  const std::function<Need(int)>& need_of) {
  if (context_->state()->IsAborted() && !aborted_before_ && EarlierMessagesMayArrive()) {
    return limit.Check(Clock::now());
  }
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(!aborted_before_));
  std::vector<int> late;
  std::vector<int> working;  // ranks whose work is needed, reported if no worker is late
  // The round of the slowest late worker, which is not always the round of this worker.
  uint64_t round = my_adds();
  std::vector<int> needed_losses;  // the lost ranks that the wait needs
  bool is_loss_certain = false;    // whether no message of one of them can still arrive
  std::vector<int> other_losses;   // the lost workers that have done their part of the wait
  int elsewhere = me_;             // the worker that waits in another call
  const char* call_there = nullptr;
  for (int worker = 0; worker < workers(); ++worker) {
    if (worker == me_) continue;
    const int rank = rank_of(worker);
    // The awaited call is read before need_of, because the worker made its adds before it entered
    // the awaited call.
    const char* const awaited_call = context_->peers()->CollectiveAwaitedBy(rank);
    const bool is_lost = context_->peers()->IsLost(rank);
    const Need need = need_of(worker);
    if (need == Need::kNothing) {
      if (is_lost && !has_finished(worker) && !is_elastic_) other_losses.push_back(rank);
      continue;
    }
    (need == Need::kCall ? late : working).push_back(rank);
    round = std::min(round, adds(worker));
    if (is_elastic_ && is_lost) {
      context_->peers()->ExcludeIfLost(rank);
      slots_[worker].finished.store(1, std::memory_order_release);
      Wake();
      continue;
    }
    // All lost workers are named, because one of them may have ended only after it was told of the
    // loss of another.
    if (is_lost) {
      is_loss_certain = is_here(worker) || watch_.MessagesHaveArrived() || is_loss_certain;
      needed_losses.push_back(rank);
    } else if (context_->peers()->EndsSession(rank)) {
      return context_->state()->AbortForSilentRank(rank, StrCat(call, ", ", RoundName(round)));
    } else if (need == Need::kCall && awaited_call != nullptr) {
      elsewhere = worker;
      call_there = awaited_call;
    }
  }
  for (const int rank : also_needed_) {
    working.push_back(rank);
    if (!context_->peers()->IsLost(rank)) continue;
    is_loss_certain = watch_.MessagesHaveArrived() || is_loss_certain;
    needed_losses.push_back(rank);
  }
  std::vector<int> awaited = late;
  awaited.insert(awaited.end(), working.begin(), working.end());
  const int silenced_by = watch_.LossThatSilences(awaited);
  if (silenced_by >= 0) {
    is_loss_certain = true;
    needed_losses.push_back(silenced_by);
  }
  const std::string here = StrCat(call, ", ", RoundName(round));
  if (is_loss_certain) return watch_.Lost(needed_losses, watch_.WhileWaiting(here));
  // A late worker may have ended because it was told of the loss of a worker that was not late.
  if (late.empty()) late = working;
  if (!other_losses.empty() && watch_.MessagesHaveArrived()) {
    return watch_.Lost(other_losses, StrCat(" while rank ", context_->members().rank(),
                                            " waited in ", here, ", for ", NameRanks(late)));
  }
  if (call_there != nullptr) {
    return AbortWithMismatch(ticks(elsewhere), adds(elsewhere), me_, call, elsewhere, call_there);
  }
  const Instant now = Clock::now();
  const bool is_over = now >= limit.deadline;
  if (is_over || watch_.IsLineDue(now)) {
    const PeerWatch::Late whom{StrCat(" in ", here, ","),
                               StrCat(NameRanks(late), ", which did not join it"),
                               late.empty() ? -1 : late[0]};
    if (is_over) return watch_.AbortTimedOut(whom);
    watch_.LogLate(whom, limit.deadline);
  }
  return limit.Check(now);
}

}  // namespace multiverso
