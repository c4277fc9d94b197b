#include "group/collective_call.h"

#include <algorithm>

#include "base/text.h"
#include "group/join_lock.h"
#include "group/peer_watch.h"
#include "memory/futex.h"
#include "memory/segment.h"

namespace multiverso {
namespace {

uint64_t Pack(uint32_t number, uint64_t low) {
  return uint64_t{number} << 32 | static_cast<uint32_t>(low);
}
uint32_t NumberOf(uint64_t packed) { return static_cast<uint32_t>(packed >> 32); }
uint32_t LowOf(uint64_t packed) { return static_cast<uint32_t>(packed); }

// Returns whether all ranks must leave the tables as they are during a call.
bool NeedsTablesAtRest(CollectiveKind kind) {
  return kind == CollectiveKind::kSave || kind == CollectiveKind::kLoad ||
         kind == CollectiveKind::kPublish || kind == CollectiveKind::kCollectiveGet;
}

// Returns how many allgathers the group of all ranks has begun, as far as the first `joined` ranks
// have noted.
uint64_t LastSequence(const RankContext& context, int joined) {
  uint64_t sequence = 0;
  for (int rank = 0; rank < joined; ++rank) {
    const auto& progress = context.memory()->slot(rank).groups[kWorldGroup];
    sequence = std::max(sequence, progress.sequence.load(std::memory_order_acquire));
  }
  return sequence;
}

// Publishes that a call is over, unless that of a later one is known.
void PublishEnd(NodeControl::Calls* calls, uint32_t number, uint64_t sequence) {
  uint64_t before = calls->over.load(std::memory_order_acquire);
  while (NumberOf(before) < number &&
         !calls->over.compare_exchange_weak(before, Pack(number, sequence))) {
  }
  WakeSleepers(&calls->changes, calls->sleepers);
}

}  // namespace

CollectiveCall::~CollectiveCall() {
  if (!takes_part_ || !context_->members().is_elastic()) return;
  // A rank that has left in the middle of the call does not know its last allgather.
  if (!context_->state()->CheckNotExcluded().ok()) return;
  PublishEnd(&calls(), number_, context_->world()->sequence());
}

Result<bool> CollectiveCall::Enter(const WaitLimit& limit) {
  takes_part_ = true;
  MV_RETURN_IF_NOT_OK(context_->state()->CheckNotExcluded());
  const Membership& members = context_->members();
  if (!members.is_elastic()) return true;
  takes_part_ = false;
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/false));
  number_ = context_->CountCall();
  uint64_t latest = calls().latest.load(std::memory_order_acquire);
  if (NumberOf(latest) < number_) {
    MV_RETURN_IF_NOT_OK(AwaitEnd(number_ - 1, limit));
    MV_RETURN_IF_NOT_OK(BeginForAll(&latest, limit));
  }
  takes_part_ =
      NumberOf(latest) == number_ && LowOf(latest) > static_cast<uint32_t>(members.rank());
  if (!takes_part_) {
    MV_RETURN_IF_NOT_OK(AwaitEnd(number_, limit));
    MV_RETURN_IF_NOT_OK(CheckKind(NumberOf(latest)));
    MV_RETURN_IF_NOT_OK(CheckFailure());
    return false;
  }
  kind_of_call().store(static_cast<uint32_t>(kind_));
  // No rank can end this call before this rank has begun it, so the call before is the last.
  context_->world()->StartCall(static_cast<int>(LowOf(latest)), LowOf(calls().over.load()));
  return true;
}

Status CollectiveCall::BeginForAll(uint64_t* latest, const WaitLimit& limit) {
  const auto has_begun = [&] { return NumberOf(calls().latest.load()) >= number_; };
  JoinLock lock(context_->memory()->segment().fd(), *context_->memory()->control());
  Instant next_check = limit.NextCheck(Clock::now());
  const auto needs_no_lock = [&] {
    const Instant now = Clock::now();
    if (now >= next_check) {
      // The rank that holds the lock may be suspended.
      (void)context_->peers()->EndedRanks();
      next_check = limit.NextCheck(now);
    }
    return has_begun();
  };
  // Where no process can find the session, none joins it.
  if (Segment::CanBeFound()) MV_RETURN_IF_NOT_OK(lock.TakeUnless(needs_no_lock, limit));
  if (!has_begun()) {
    // A joiner that finds the call also finds its kind.
    kind_of_call().store(static_cast<uint32_t>(kind_));
    calls().latest.store(Pack(number_, static_cast<uint64_t>(context_->members().size())));
  }
  *latest = calls().latest.load();
  return Status::Ok();
}

Status CollectiveCall::CheckKind(uint32_t latest) const {
  if (latest - number_ >= NodeControl::Calls::kKinds - 1) return Status::Ok();
  const auto kind = static_cast<CollectiveKind>(
      calls().kinds[number_ % NodeControl::Calls::kKinds].load(std::memory_order_acquire));
  if (kind == kind_) return Status::Ok();
  return Status(Code::kMismatch,
                StrCat("the ranks did not make the same call: call ", number_ - 1,
                       " of the session was ", NameOf(kind), ", rank ", context_->members().rank(),
                       ", which joined later, called ", NameOf(kind_)));
}

Status CollectiveCall::Noted(const Status& status) const {
  if (status.ok() || !context_->members().is_elastic()) return status;
  SessionState* const state = context_->state();
  // That error is of this rank alone, or ends the session.
  if (state->IsAborted() || !state->CheckNotExcluded().ok()) return status;
  const auto code = static_cast<uint64_t>(-static_cast<int32_t>(status.code()));
  const uint64_t peer =
      status.peer() == nullptr ? 0 : static_cast<uint64_t>(status.peer()->rank) + 1;
  calls().failures[number_ % NodeControl::Calls::kKinds].store(Pack(number_, code << 16 | peer));
  return status;
}

Status CollectiveCall::CheckFailure() const {
  const uint64_t failure = calls().failures[number_ % NodeControl::Calls::kKinds].load();
  if (NumberOf(failure) != number_) return Status::Ok();
  const auto code = static_cast<Code>(-static_cast<int32_t>(LowOf(failure) >> 16));
  const int peer = static_cast<int>(LowOf(failure) & 0xffff) - 1;
  const std::string call = StrCat(NameOf(kind_), ", which others made before rank ",
                                  context_->members().rank(), " joined");
  const std::string text = StrCat(call, ", has failed for them");
  if (peer < 0 || peer >= context_->members().size()) return Status(code, text);
  if (code != Code::kPeerLost) return context_->peers()->About(peer, Status(code, text));
  return context_->peers()->LossOf(peer, StrCat(" in ", call));
}

Status CollectiveCall::AwaitEnd(uint32_t number, const WaitLimit& limit) const {
  const auto is_over = [&] {
    return NumberOf(calls().over.load(std::memory_order_acquire)) >= number;
  };
  PeerWatch watch(&context_->members(), context_->peers(), context_->state());
  watch.Begin();
  (void)SpinUntil(is_over, context_->memory()->spin_policy());
  while (!is_over()) {
    const Instant until = limit.NextWake(Clock::now());
    if (SleepUntil(&calls().changes, &calls().sleepers, until, is_over)) break;
    MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
    // The participants may all have ended in the call, which is then over.
    const auto joined = static_cast<int>(LowOf(calls().latest.load(std::memory_order_acquire)));
    const std::vector<int> ended = context_->peers()->EndedRanks();
    const auto is_here = [&](int rank) { return rank < joined; };
    if (std::count_if(ended.begin(), ended.end(), is_here) == joined) {
      PublishEnd(&calls(), number, LastSequence(*context_, joined));
    }
    const Instant now = Clock::now();
    const bool is_timeout = now >= limit.deadline;
    if ((is_timeout || watch.IsLineDue(now)) && !is_over()) {
      const PeerWatch::Late whom{"",
                                 StrCat("the end of ", number == number_ ? NameOf(kind_) : "a call",
                                        ", which others began before it joined")};
      if (is_timeout) return watch.TimedOut(whom);
      watch.LogLate(whom, limit.deadline);
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return Status::Ok();
}

Status CollectiveCall::AwaitOthers(RankContext* context, const WaitLimit& limit) {
  const CollectiveCall opening(context, CollectiveKind::kOpen);
  MV_RETURN_IF_NOT_OK(opening.AwaitEnd(1, limit));
  const NodeControl::Calls& calls = context->memory()->control()->calls;
  const uint64_t latest = calls.latest.load();
  const uint32_t number = NumberOf(latest);
  const auto kind = static_cast<CollectiveKind>(calls.kinds[number % calls.kKinds].load());
  const bool takes_part = LowOf(latest) > static_cast<uint32_t>(context->members().rank());
  if (takes_part || !NeedsTablesAtRest(kind)) return Status::Ok();
  // The call may wait for a disk. Its participants have a deadline, or end.
  const WaitLimit without_deadline = WaitLimit::Until(Instant::max(), limit.interrupt);
  return CollectiveCall(context, kind).AwaitEnd(number, without_deadline);
}

void CollectiveCall::SkipEarlier(RankContext* context) {
  NodeControl::Calls& calls = context->memory()->control()->calls;
  const uint32_t number = NumberOf(calls.latest.load());
  // Its participants have ended, perhaps before they had ended the call.
  PublishEnd(&calls, number, LastSequence(*context, context->members().size()));
  context->SkipCalls(number);
}

void CollectiveCall::EndOpening(RankContext* context) {
  if (!context->members().is_elastic()) return;
  PublishEnd(&context->memory()->control()->calls, 1, context->world()->sequence());
}

}  // namespace multiverso
