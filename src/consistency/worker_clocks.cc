#include "consistency/worker_clocks.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "consistency/consistency.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

const char* NameOf(TurnKind turn) { return turn == TurnKind::kAdd ? "add" : "get"; }

}  // namespace

int64_t WorkerClocks::BytesFor(int workers) {
  return static_cast<int64_t>(sizeof(Words)) + workers * static_cast<int64_t>(sizeof(Slot));
}

WorkerClocks::WorkerClocks(char* base, RankContext* group, std::string name)
    : group_(group),
      name_(std::move(name)),
      members_(group->workers()->members()),
      words_(reinterpret_cast<Words*>(base)),
      slots_(reinterpret_cast<Slot*>(base + sizeof(Words))) {
  for (int i = 0; i < workers(); ++i) {
    if (rank_of(i) == group_->members().rank()) me_ = i;
    if (group_->members().is_local(rank_of(i))) here_.push_back(i);
  }
}

int WorkerClocks::rank_of(int worker) const { return members_[static_cast<size_t>(worker)]; }

bool WorkerClocks::is_here(int worker) const { return group_->members().is_local(rank_of(worker)); }

std::string WorkerClocks::RoundName(uint64_t round) const {
  return StrCat("round ", rounds_before_ + round, " of table '", name_, "'");
}

bool WorkerClocks::HasPassed(int worker, uint64_t round) const {
  // In this order: once a worker has finished, its clock stands still.
  return has_finished(worker) || adds(worker) > round;
}

bool WorkerClocks::AllHavePassed(uint64_t round) const {
  for (int i = 0; i < workers(); ++i) {
    if (!HasPassed(i, round)) return false;
  }
  return true;
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

Status WorkerClocks::MayTakeTurns(const char* call, const WaitLimit& limit) {
  if (i_have_finished()) {
    return Status(Code::kState, "this worker has called finish() and takes part in no more rounds");
  }
  MV_RETURN_IF_NOT_OK(group_->state()->CheckRunning(/*was_waiting=*/false));
  const uint64_t number = my_turns();
  const auto lags = [&](int worker) {
    // One less than are kept: the other may still be comparing the last turn it took.
    const bool late = !has_finished(worker) && turns(worker) + kTurnsKept - 1 < number + 2;
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

Status WorkerClocks::Take(TurnKind turn) {
  Slot& mine = slots_[me_];
  const uint64_t number = my_turns();
  const uint64_t bit = uint64_t{1} << (number % kTurnsKept);
  const uint64_t gets = mine.gets.load(std::memory_order_relaxed);
  mine.gets.store(turn == TurnKind::kGet ? gets | bit : gets & ~bit, std::memory_order_relaxed);
  mine.turns.store(number + 1, std::memory_order_release);
  // A polynomial, so that the order counts; odd, so that nothing is lost.
  digest_ = digest_ * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(turn);
  if (turn == TurnKind::kAdd) digest_at_add_ = digest_;
  // Others wait for turns only when they are far ahead, so now and then is soon enough.
  if (number % (kTurnsKept / 4) == 0) {
    Wake();
    CallLeader();
  }
  // Whoever comes second to a turn sees what the first did there: both may, but not neither.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || turns(i) <= number) continue;
    const TurnKind other = TurnOf(i, number);
    if (other != turn) return Disagree(number, my_adds(), me_, NameOf(turn), i, NameOf(other));
  }
  return Status::Ok();
}

TurnKind WorkerClocks::TurnOf(int worker, uint64_t number) const {
  const uint64_t gets = slots_[worker].gets.load(std::memory_order_relaxed);
  return (gets >> (number % kTurnsKept) & 1) != 0 ? TurnKind::kGet : TurnKind::kAdd;
}

void WorkerClocks::ReachSyncPoint(const SyncPoint& fence) {
  slots_[me_].fence.store(fence.number, std::memory_order_release);
  // Of two workers at least one sees that the other is here; and here the other stays until this
  // one has joined the call.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || slots_[i].fence.load(std::memory_order_acquire) != fence.number) continue;
    // If they do not agree the session has been given up: the call that this worker is about to
    // join says why.
    if (!CompareAt(fence, me_, i).ok()) return;
  }
}

Status WorkerClocks::CompareAt(const SyncPoint& fence, int one, int other) {
  const auto count = [&](int worker) { return fence.is_last ? adds(worker) : turns(worker); };
  if (count(one) == count(other)) return Status::Ok();
  const int fewer = count(other) < count(one) ? other : one;
  const int more = fewer == other ? one : other;
  // A worker that has finished lacks nothing, and before the last fence nothing that it has made
  // is out of the others' reach.
  if (has_finished(fewer) || (has_finished(more) && !fence.is_last)) return Status::Ok();
  const uint64_t number = turns(fewer);
  return Disagree(number, adds(fewer), fewer, fence.call, more, NameOf(TurnOf(more, number)));
}

Status WorkerClocks::CompareAt(const SyncPoint& fence) {
  if (!AllAt(fence.number)) return Status::Pending();
  for (int one = 0; one < workers(); ++one) {
    for (int other = 0; other < one; ++other) {
      if (slots_[one].fence.load(std::memory_order_relaxed) != fence.number ||
          slots_[other].fence.load(std::memory_order_relaxed) != fence.number) {
        continue;
      }
      MV_RETURN_IF_NOT_OK(CompareAt(fence, one, other));
    }
  }
  return Status::Ok();
}

CallDigest WorkerClocks::CallsBefore(const SyncPoint& fence) const {
  return fence.is_last ? CallDigest{my_adds(), digest_at_add_} : CallDigest{my_turns(), digest_};
}

bool WorkerClocks::AllAt(uint64_t fence) const {
  for (int i = 0; i < workers(); ++i) {
    if (slots_[i].fence.load(std::memory_order_acquire) < fence) return false;
  }
  return true;
}

WorkerClocks::Reading WorkerClocks::Read(int worker) const {
  const Slot& slot = slots_[worker];
  Reading reading;
  // A worker comes to a fence, and finishes, after its calls; and its turns are there before it
  // says so. What is read first must not be newer than what is read after it.
  reading.fence = slot.fence.load(std::memory_order_acquire);
  reading.finished = slot.finished.load(std::memory_order_acquire);
  reading.adds = slot.adds.load(std::memory_order_acquire);
  reading.turns = slot.turns.load(std::memory_order_acquire);
  reading.gets = slot.gets.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  reading.latest = slot.turns.load(std::memory_order_relaxed);
  return reading;
}

void WorkerClocks::Note(int worker, const Reading& reading) {
  Slot& slot = slots_[worker];
  uint64_t first = turns(worker);
  // Those whose bits are gone have been compared on the worker's own node: it does not get that far
  // ahead of those whom it has not heard of.
  if (reading.latest >= kTurnsKept) first = std::max(first, reading.latest - kTurnsKept + 1);
  slot.gets.store(reading.gets, std::memory_order_relaxed);
  slot.turns.store(reading.turns, std::memory_order_release);
  slot.adds.store(reading.adds, std::memory_order_release);
  slot.finished.store(static_cast<uint32_t>(reading.finished), std::memory_order_release);
  Wake();
  // A worker that takes a turn now sees these (Take), or it has taken it before.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int mine : here_) {
    const Status compared = CompareTurns(mine, worker, first);
    if (compared.ok()) continue;
    group_->state()->AbortInBackground(compared);
    return;
  }
  // Whoever sees it at the fence knows that its turns have been compared.
  slot.fence.store(reading.fence, std::memory_order_release);
  Wake();
}

Status WorkerClocks::CompareTurns(int mine, int other, uint64_t first) const {
  const uint64_t end = std::min(turns(mine), turns(other));
  for (uint64_t number = first; number < end; ++number) {
    const TurnKind my_turn = TurnOf(mine, number);
    const TurnKind others_turn = TurnOf(other, number);
    std::atomic_thread_fence(std::memory_order_acquire);
    // The bits of the turn that it takes now may be in the place of this one's.
    if (my_turn == others_turn || turns(mine) >= number + kTurnsKept) continue;
    // Up to here both have made the same calls. One that is in the middle of an add has taken its
    // turn but not counted it, and seems to be in the round before.
    const uint64_t round = std::max(RoundOf(mine, number), RoundOf(other, number));
    return Mismatch(number, round, mine, NameOf(my_turn), other, NameOf(others_turn));
  }
  return Status::Ok();
}

uint64_t WorkerClocks::RoundOf(int worker, uint64_t turn) const {
  uint64_t round = adds(worker);
  for (uint64_t later = turn; later < turns(worker) && round > 0; ++later) {
    if (TurnOf(worker, later) == TurnKind::kAdd) --round;
  }
  return round;
}

Status WorkerClocks::TakeTurn(TurnKind turn, const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(MayTakeTurns(call, limit));
  return Take(turn);
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

Status WorkerClocks::Disagree(uint64_t number, uint64_t round, int one, const char* call, int other,
                              const char* others_call) {
  const Status mismatch = Mismatch(number, round, one, call, other, others_call);
  group_->state()->Abort(mismatch);
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

bool WorkerClocks::AllIsOnItsWay() {
  constexpr auto kOnItsWay = std::chrono::milliseconds(100);
  if (!group_->members().spans_nodes()) return false;
  const Instant now = Clock::now();
  if (!given_up_at_.has_value()) given_up_at_ = now;
  return now < *given_up_at_ + kOnItsWay;
}

bool WorkerClocks::MessagesHaveArrived(bool of_this_node) {
  constexpr auto kOnItsWay = std::chrono::milliseconds(500);
  if (of_this_node) return true;
  const Instant now = Clock::now();
  if (!lost_at_.has_value()) lost_at_ = now;
  return now >= *lost_at_ + kOnItsWay;
}

std::string WorkerClocks::NameLost(int worker, const std::string& gone, bool follows) const {
  return StrCat(follows ? ", " : "", group_->members().NameRank(rank_of(worker)), " ", gone);
}

Status WorkerClocks::LookAfter(const char* call, const WaitLimit& limit,
                               const std::function<Need(int)>& waits_for) {
  if (group_->state()->IsAborted() && !aborted_before_ && AllIsOnItsWay()) {
    return Clock::now() >= limit.slice_end ? Status::Pending() : Status::Ok();
  }
  MV_RETURN_IF_NOT_OK(group_->state()->CheckRunning(!aborted_before_));
  std::vector<int> late;
  std::vector<int> carrying;  // sums that the others wait for: late only if nobody else is
  // The round in which the late are: not always the one in which this worker is.
  uint64_t round = my_adds();
  std::string lost;
  bool is_lost = false;  // and not only gone after its last word, which is still on its way
  int lost_rank = -1;
  std::string lost_later;  // has done its part of this round, and will not of the next
  int lost_later_rank = -1;
  int elsewhere = me_;  // who waits in another call, and in which
  const char* call_there = nullptr;
  for (int i = 0; i < workers(); ++i) {
    if (i == me_) continue;
    // Read before asking whether it is late: it made its adds before it went anywhere else.
    const char* const meeting = group_->peers()->CollectiveAwaitedBy(rank_of(i));
    const std::string gone = group_->peers()->ExitReason(rank_of(i));
    const Need need = waits_for(i);
    if (need == Need::kNothing) {
      if (!gone.empty() && !has_finished(i)) {
        lost_later += NameLost(i, gone, !lost_later.empty());
        lost_later_rank = rank_of(i);
      }
      continue;
    }
    (need == Need::kCall ? late : carrying).push_back(rank_of(i));
    round = std::min(round, adds(i));
    // All of them: those who were told of a loss before this worker may have gone for that reason.
    if (!gone.empty()) {
      is_lost = MessagesHaveArrived(is_here(i)) || is_lost;
      lost += NameLost(i, gone, !lost.empty());
      lost_rank = rank_of(i);
    } else if (is_here(i) && group_->failure_detector()->IsSilent(rank_of(i))) {
      return group_->state()->ExcludeSilentRank(rank_of(i), StrCat(call, ", ", RoundName(round)));
    } else if (need == Need::kCall && meeting != nullptr) {
      elsewhere = i;
      call_there = meeting;
    }
  }
  if (is_lost) {
    group_->peers()->LogLastCalls(lost_rank);
    return group_->state()->ReportLost(
        lost_rank, StrCat(lost, " while rank ", group_->members().rank(), " waited for it in ",
                          call, ", ", RoundName(round), group_->peers()->Trace(lost_rank)));
  }
  // Whoever does not come may have heard of it, and gone for that reason.
  if (!lost_later.empty() && MessagesHaveArrived(/*of_this_node=*/false)) {
    return group_->state()->ReportLost(
        lost_later_rank,
        StrCat(lost_later, " while rank ", group_->members().rank(), " waited in ", call, ", ",
               RoundName(round), ", for ", NameRanks(late.empty() ? carrying : late)));
  }
  if (call_there != nullptr) {
    return Disagree(turns(elsewhere), adds(elsewhere), me_, call, elsewhere, call_there);
  }
  const Instant now = Clock::now();
  if (now >= limit.deadline) {
    if (late.empty()) late = carrying;
    Status timeout(
        Code::kTimeout,
        StrCat("rank ", group_->members().rank(), " waited ", SecondsBetween(waiting_since_, now),
               " s in ", call, ", ", RoundName(round), ", for ", NameRanks(late),
               ", which did not come to it", late.empty() ? "" : group_->peers()->Trace(late[0])));
    if (!late.empty()) timeout = group_->peers()->About(late[0], timeout);
    group_->state()->Abort(timeout);
    return timeout;
  }
  return now >= limit.slice_end ? Status::Pending() : Status::Ok();
}

}  // namespace multiverso
