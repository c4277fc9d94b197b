#include "consistency/worker_clocks.h"

#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

const char* NameOf(Turn turn) { return turn == Turn::kAdd ? "add" : "get"; }

}  // namespace

int64_t WorkerClocks::BytesFor(int workers) {
  return static_cast<int64_t>(sizeof(Words)) + workers * static_cast<int64_t>(sizeof(Slot));
}

WorkerClocks::WorkerClocks(char* base, NodeGroup* group, std::string name)
    : group_(group),
      name_(std::move(name)),
      members_(group->workers()->members()),
      words_(reinterpret_cast<Words*>(base)),
      slots_(reinterpret_cast<Slot*>(base + sizeof(Words))) {
  for (int i = 0; i < workers(); ++i) {
    if (members_[static_cast<size_t>(i)] == group_->local_rank()) me_ = i;
  }
}

int WorkerClocks::rank_of(int worker) const {
  return group_->rank_of(members_[static_cast<size_t>(worker)]);
}

std::string WorkerClocks::RoundName(uint64_t round) const {
  return StrCat("round ", round, " of table '", name_, "'");
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
  MV_RETURN_IF_NOT_OK(group_->CheckAborted(/*was_waiting=*/false));
  const uint64_t number = my_turns();
  const auto lags = [&](int worker) {
    // One less than are kept: the other may still be comparing the last turn it took.
    const bool late =
        !has_finished(worker) &&
        slots_[worker].turns.load(std::memory_order_acquire) + kTurnsKept - 1 < number + 2;
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

Status WorkerClocks::Take(Turn turn) {
  Slot& mine = slots_[me_];
  const uint64_t number = my_turns();
  const uint64_t bit = uint64_t{1} << (number % kTurnsKept);
  const uint64_t gets = mine.gets.load(std::memory_order_relaxed);
  mine.gets.store(turn == Turn::kGet ? gets | bit : gets & ~bit, std::memory_order_relaxed);
  mine.turns.store(number + 1, std::memory_order_release);
  // Others wait for turns only when they are far ahead, so now and then is soon enough.
  if (number % (kTurnsKept / 4) == 0) Wake();
  // Whoever comes second to a turn sees what the first did there: both may, but not neither.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < workers(); ++i) {
    if (i == me_ || slots_[i].turns.load(std::memory_order_acquire) <= number) continue;
    const bool is_get = (slots_[i].gets.load(std::memory_order_relaxed) & bit) != 0;
    const Turn other = is_get ? Turn::kGet : Turn::kAdd;
    if (other == turn) continue;
    const int first = i < me_ ? i : me_;
    const int second = i < me_ ? me_ : i;
    return Disagree(StrCat("sync ", RoundName(my_adds()), ": rank ", rank_of(first), " called ",
                           NameOf(first == i ? other : turn), ", rank ", rank_of(second),
                           " called ", NameOf(second == i ? other : turn), " (call number ",
                           number, " on the table)"));
  }
  return Status::Ok();
}

Status WorkerClocks::TakeTurn(Turn turn, const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(MayTakeTurns(call, limit));
  return Take(turn);
}

Status WorkerClocks::Disagree(const std::string& text) {
  const Status mismatch(Code::kMismatch, text);
  group_->Abort(mismatch);
  return mismatch;
}

void WorkerClocks::CountAdd() {
  slots_[me_].adds.store(my_adds() + 1, std::memory_order_release);
  Wake();
}

void WorkerClocks::Finish() {
  slots_[me_].finished.store(1, std::memory_order_release);
  Wake();
}

void WorkerClocks::Wake() { WakeSleepers(&words_->moves, words_->sleepers); }

Status WorkerClocks::LookAfter(const char* call, const WaitLimit& limit,
                               const std::function<Need(int)>& waits_for) {
  MV_RETURN_IF_NOT_OK(group_->CheckAborted(!aborted_before_));
  std::vector<int> late;
  for (int i = 0; i < workers(); ++i) {
    if (i == me_) continue;
    const int local_rank = members_[static_cast<size_t>(i)];
    // Read before asking whether it is late: it made its adds before it went anywhere else.
    const char* const meeting = group_->MeetingAheadOf(local_rank);
    const std::string gone = group_->WhyGone(local_rank);
    const Need need = waits_for(i);
    if (need == Need::kNothing) continue;
    late.push_back(rank_of(i));
    if (!gone.empty()) {
      return Status(Code::kPeerLost, StrCat("rank ", rank_of(i), " ", gone, " while rank ",
                                            group_->rank(), " waited for it in ", call, ", ",
                                            RoundName(my_adds())));
    }
    if (need == Need::kCall && meeting != nullptr) {
      return Disagree(StrCat("sync ", RoundName(my_adds()), ": rank ", group_->rank(), " called ",
                             call, ", rank ", rank_of(i), " called ", meeting));
    }
  }
  const Instant now = Clock::now();
  if (now >= limit.deadline) {
    const Status timeout(Code::kTimeout,
                         StrCat("rank ", group_->rank(), " waited ",
                                SecondsBetween(waiting_since_, now), " s in ", call, ", ",
                                RoundName(my_adds()), ", for ", NameRanks(late),
                                ", which did not come to it"));
    group_->Abort(timeout);
    return timeout;
  }
  return now >= limit.slice_end ? Status::Pending() : Status::Ok();
}

}  // namespace multiverso
