#include "group/group.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/vote.h"
#include "memory/futex.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// The longest sleep of a leader that waits for other nodes, and of one that has waited for long,
// for all steps together: what comes last may pass through a sleeping leader in each step.
constexpr std::chrono::microseconds kLongestNap{5000};
constexpr std::chrono::microseconds kLongestIdleNap{20000};
// A leader that attaches values polls for this long after it has begun the collective before it
// sleeps, because a short wait takes about as long.
constexpr std::chrono::microseconds kEagerWithValues{1000};

// Returns whether `word`, the number of a collective modulo 2^32, has reached `sequence`.
bool HasReached(const std::atomic<uint32_t>& word, uint64_t sequence) {
  const uint32_t latest = word.load(std::memory_order_acquire);
  return static_cast<int32_t>(latest - static_cast<uint32_t>(sequence)) >= 0;
}

// Returns whether, in the complete collective, only a part of the participants asked about leaving.
bool IsPostponed(const Group& group) {
  const std::vector<int> begun = group.participants();
  const auto asking = std::count_if(begun.begin(), begun.end(), [&](int rank) {
    return AsksAboutLeaving(group.payload(rank).kind());
  });
  return asking > 0 && static_cast<size_t>(asking) < begun.size();
}

}  // namespace

Group::Group(int index, std::vector<int> ranks, const Membership* members, const NodeMemory* memory,
             const PeerStatus* peers, SessionState* state, ControlChannel* channel)
    : index_(index),
      ranks_(std::move(ranks)),
      members_(members),
      memory_(memory),
      peers_(peers),
      state_(state),
      channel_(channel),
      group_state_(&memory->control()->groups[index]),
      watch_(members, peers, state) {
  for (const int rank : ranks_) {
    if (members->is_local(rank)) ranks_here_.push_back(rank);
  }
  if (ranks_here_.size() == ranks_.size()) return;
  exchange_ = std::make_unique<LeaderExchange>(index, members, memory, channel);
}

void Group::StartCall(int size, uint64_t sequence) {
  ranks_.resize(static_cast<size_t>(size));
  std::iota(ranks_.begin(), ranks_.end(), 0);
  ranks_here_ = ranks_;
  sequence_ = sequence;
}

bool Group::HasBegun(int rank) const {
  if (group_state_->all_begun.load(std::memory_order_acquire) >= sequence_) return true;
  const std::atomic<uint64_t>& latest = memory_->slot(rank).groups[index_].sequence;
  return latest.load(std::memory_order_acquire) >= sequence_;
}

bool Group::IsCompleted() const { return HasReached(group_state_->completed, sequence_); }

void Group::BeginFailure(CollectiveKind kind, const Status& failure) {
  const Vote vote = Vote::Of(failure);
  next_failure_ = Status::Ok();
  CountCall(kind);
  Begin(FailureOf(kind), &vote, sizeof(vote));
}

Status Group::Allgather(CollectiveKind kind, const Status& mine, const WaitLimit& limit,
                        const void* data, int64_t bytes) {
  if (mine.ok()) {
    BeginAllgather(kind, data, bytes);
  } else {
    BeginFailure(kind, mine);
  }
  return Wait(limit);
}

Status Group::Agree(CollectiveKind kind, const Status& mine, const std::vector<int>& ranks,
                    const std::string& consequence, const WaitLimit& limit, const void* data,
                    int64_t bytes) {
  MV_RETURN_IF_NOT_OK(Allgather(kind, mine, limit, data, bytes));
  return CheckTookPart(ranks, consequence);
}

void Group::BeginAllgather(CollectiveKind kind, const void* data, int64_t bytes) {
  if (!next_failure_.ok()) return BeginFailure(kind, Status(next_failure_));
  CountCall(kind);
  Begin(kind, data, bytes);
}

void Group::Begin(CollectiveKind kind, const void* data, int64_t bytes) {
  (void)MV_FAILPOINT("group.begin");
  watch_.Begin(kind == CollectiveKind::kOpen ? kStartTimeoutOption : kTimeoutOption);
  // In an aborted session, no rank will wait for this rank. But ranks that have not noticed the
  // abort may still be reading its slots, so this rank must not write into them. The same is true
  // of ranks that are late in a collective that this rank has given up.
  kind_ = kind;
  was_refused_ = given_up_for_ >= 0 || state_->IsAborted() || !state_->CheckNotExcluded().ok();
  if (was_refused_) return;
  ++sequence_;
  inquiry_.reset();
  RankSlot::GroupProgress& mine = memory_->own_slot().groups[index_];
  mine.SlotFor(sequence_).Write(kind, data, static_cast<size_t>(bytes));
  mine.sequence.store(sequence_, std::memory_order_release);
  (void)MV_FAILPOINT("group.begun");
  const uint64_t total = group_state_->total_begun.fetch_add(1, std::memory_order_acq_rel) + 1;
  // A total that is too small means that members are missing, unless one died just before it
  // counted itself (see AwaitCompletion). A total that is large enough may count a rank that failed
  // in a collective for lack of a lost rank, and that then began the next one. So LateMembers looks
  // at each member. In an elastic session, their number changes.
  if (total < sequence_ * ranks_here_.size() && !peers_->HasRecordedLoss() &&
      !members_->is_elastic()) {
    return;
  }
  if (!LateMembers(/*only_here=*/true).empty()) return;
  if (spans_nodes()) return Announce(&group_state_->gathered, &group_state_->sleeping_leaders);
  Announce(&group_state_->completed, &group_state_->sleepers);
}

void Group::Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const {
  word->store(static_cast<uint32_t>(sequence_), std::memory_order_seq_cst);
  // Without a sleeping rank, the system call to wake it is not needed.
  if (sleepers->load(std::memory_order_seq_cst) != 0) WakeWord(word, kWakeAll);
}

Status Group::Wait(const WaitLimit& limit, Attachment* attachment) {
  const Status result = AwaitResult(limit, attachment);
  // The others go on without a rank that they have excluded and whose process they could not end,
  // and write their next calls over those that this rank has compared.
  if (members_->survives_losses()) MV_RETURN_IF_NOT_OK(state_->CheckNotExcluded());
  return result;
}

Status Group::AwaitResult(const WaitLimit& limit, Attachment* attachment) {
  for (;;) {
    MV_RETURN_IF_NOT_OK(AwaitCompletion(limit, attachment));
    if (HasCommonPayload() && !payload(members_->rank()).is_failure()) return Status::Ok();
    if (!IsPostponed(*this)) return AgreedResult();
    if (AsksAboutLeaving(OwnKind())) return Status::Ok();
    const int failed = RankThatFailed();
    if (failed >= 0) {
      return peers_->About(
          failed, Status(Code::kAborted, StrCat("rank ", failed, " has failed after SIGTERM, so ",
                                                NameOf(OwnKind()), " cannot be completed")));
    }
    const ExchangeSlot& mine = payload(members_->rank());
    const std::string data = mine.Bytes();
    Begin(mine.marked_kind(), data.data(), static_cast<int64_t>(data.size()));
  }
}

Status Group::AwaitCompletion(const WaitLimit& limit, Attachment* attachment) {
  if (was_refused_) {
    MV_RETURN_IF_NOT_OK(state_->CheckRunning(/*was_waiting=*/false));
    return CheckCanBegin(OwnKind());
  }
  const auto completed = [&] { return IsCompleted(); };
  const auto gathered = [&] { return HasReached(group_state_->gathered, sequence_); };
  (void)SpinUntil([&] { return IsLeader() ? gathered() : completed(); }, memory_->spin_policy());
  while (!completed()) {
    const Instant began = Clock::now();
    const Instant until = limit.NextWake(began);
    if (IsLeader()) {
      const Status exchanged = ExchangeAsLeader(until, limit, attachment);
      if (exchanged.ok()) break;
      if (!exchanged.pending()) return exchanged;
    } else if (SleepUntil(&group_state_->completed, &group_state_->sleepers, until, completed)) {
      break;
    }
    // The abort is checked before lost ranks, because ranks may have ended due to the abort.
    MV_RETURN_IF_NOT_OK(state_->CheckRunning(/*was_waiting=*/true));
    const std::vector<int> late = LateMembers(/*only_here=*/false);
    // The last rank to begin may have died before it announced that all have begun. In a group that
    // spans nodes, only the leader knows when the payloads of other nodes are here.
    if (late.empty() && !spans_nodes()) {
      Announce(&group_state_->completed, &group_state_->sleepers);
      break;
    }
    const Status lost = CheckPeers(late);
    if (lost.pending()) continue;
    MV_RETURN_IF_NOT_OK(lost);
    MV_RETURN_IF_NOT_OK(CheckOtherGroups(late));
    const Instant now = Clock::now();
    const bool is_over = now >= limit.deadline;
    PeerWatch::Late whom;
    if ((is_over || watch_.IsLineDue(now)) && DescribeLate(&whom)) {
      if (is_over) return watch_.AbortTimedOut(whom);
      watch_.LogLate(whom, limit.deadline);
      inquiry_.reset();
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  (void)MV_FAILPOINT("group.complete");
  return Status::Ok();
}

bool Group::IsLeader() const { return spans_nodes() && exchange_->leader() == members_->rank(); }

Status Group::ExchangeAsLeader(Instant until, const WaitLimit& limit, Attachment* attachment) {
  // As in AwaitCompletion, the last rank to begin may have died before it announced that all have
  // begun.
  const auto gathered = [&] { return HasReached(group_state_->gathered, sequence_); };
  if (!gathered() &&
      !SleepUntil(&group_state_->gathered, &group_state_->sleeping_leaders, until, gathered) &&
      !LateMembers(/*only_here=*/true).empty()) {
    return Status::Pending();
  }
  const auto eager = attachment == nullptr ? Backoff::kEager : kEagerWithValues;
  const auto exchange = [&]() -> Status {
    const Status exchanged = exchange_->Exchange(sequence_, attachment);
    // The other ranks of this node would wait for the end of the call.
    if (exchanged.code() == Code::kTransport) state_->Abort(exchanged);
    if (!exchanged.pending()) return exchanged;
    // A signal does not end the naps between the polls.
    MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
    return exchanged;
  };
  const int steps = exchange_->steps();
  const Backoff naps(kLongestNap / steps, kLongestIdleNap / steps, watch_.began());
  MV_RETURN_IF_NOT_OK(PollUntil(until, naps, exchange, eager));
  (void)MV_FAILPOINT("group.exchanged");
  Announce(&group_state_->completed, &group_state_->sleepers);
  return Status::Ok();
}

const ExchangeSlot& Group::payload(int rank) const {
  if (!members_->is_local(rank) && HasCommonPayload()) return group_state_->common[sequence_ % 2];
  return memory_->slot(rank).groups[index_].SlotFor(sequence_);
}

Status Group::Mismatch(const std::string& text) const {
  if (members_->survives_losses()) MV_RETURN_IF_NOT_OK(state_->CheckNotExcluded());
  return Status(Code::kMismatch, text);
}

std::vector<int> Group::participants() const {
  std::vector<int> begun;
  for (const int rank : ranks_) {
    if (HasBegun(rank)) begun.push_back(rank);
  }
  return begun;
}

std::vector<int> Group::participants_here() const {
  std::vector<int> here = participants();
  const auto is_away = [this](int rank) { return !members_->is_local(rank); };
  here.erase(std::remove_if(here.begin(), here.end(), is_away), here.end());
  return here;
}

int Group::RankThatFailed() const {
  const std::vector<int> begun = participants();
  const auto found = std::find_if(begun.begin(), begun.end(), [&](int rank) {
    return payload(rank).kind() == CollectiveKind::kFailing;
  });
  return found == begun.end() ? -1 : *found;
}

std::vector<int> Group::LateMembers(bool only_here) const {
  std::vector<int> late;
  for (const int rank : only_here ? ranks_here_ : ranks_) {
    if (!HasBegun(rank) && !peers_->IsExcluded(rank)) late.push_back(rank);
  }
  return late;
}

bool Group::DescribeLate(PeerWatch::Late* whom) {
  whom->call = StrCat(" in ", NameOf(OwnKind()));
  std::string* const text = &whom->awaited;
  std::vector<int> late = LateMembers(/*only_here=*/true);
  if (spans_nodes()) {
    if (!inquiry_.has_value()) inquiry_.emplace(channel_, index_, sequence_);
    const bool all_answered = inquiry_->Collect();
    for (const auto& [rank, last_call] : inquiry_->last_calls()) late.push_back(rank);
    // If no rank is late, the last one has just begun and its node's contribution is in flight.
    if ((!all_answered || late.empty()) && !inquiry_->IsOver()) {
      std::this_thread::sleep_for(kLongestNap);
      return false;
    }
    std::sort(late.begin(), late.end());
    for (const int node : inquiry_->unanswered_nodes()) {
      *text += StrCat(text->empty() ? "" : ", ", members_->NameNode(node));
    }
    if (!text->empty()) *text += ", which does not answer";
  }
  if (!late.empty()) {
    *text += StrCat(text->empty() ? "" : ", and for ", NameRanks(late), ", which did not call it");
    whom->first = late.front();
    if (inquiry_.has_value()) whom->last_call = inquiry_->LastCallOf(late.front());
  } else if (text->empty()) {
    *text = "the end of the call, which all ranks have begun";
  }
  return true;
}

Status Group::CheckTookPart(const std::vector<int>& ranks, const std::string& consequence) const {
  for (const int rank : ranks) {
    if (!HasBegun(rank)) return peers_->LossOf(rank, consequence);
  }
  return Status::Ok();
}

Status Group::AgreedResult() const {
  // Every rank names the same two ranks in the same order, so that all ranks report the same error.
  const std::vector<int> begun = participants();
  const int first = begun.front();
  for (const int other : begun) {
    if (payload(other).kind() == payload(first).kind()) continue;
    if (AsksAboutLeaving(payload(other).kind()) && AsksAboutLeaving(payload(first).kind()))
      continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ", first,
                                          " called ", NameOf(payload(first).kind()), ", rank ",
                                          other, " called ", NameOf(payload(other).kind())));
  }
  const auto failed = std::find_if(begun.begin(), begun.end(),
                                   [&](int rank) { return payload(rank).is_failure(); });
  if (failed == begun.end()) return Status::Ok();
  const Status failure = payload(*failed).Read<Vote>().ToStatus(StrCat("rank ", *failed));
  return failure.peer() == nullptr ? failure : peers_->About(failure.peer()->rank, failure);
}

Status Group::CheckCanBegin(CollectiveKind kind) const {
  if (given_up_for_ < 0) return Status::Ok();
  return watch_.Lost({given_up_for_}, watch_.WhileWaiting(NameOf(kind)));
}

Status Group::GiveUp(int rank) {
  if (!members_->survives_losses()) given_up_for_ = rank;
  return watch_.Lost({rank}, watch_.WhileWaiting(NameOf(OwnKind())));
}

Status Group::CheckPeers(const std::vector<int>& late) {
  bool any_excluded = false;
  for (const int rank : late) {
    const bool is_lost = peers_->IsLost(rank);
    if (!is_lost && peers_->EndsSession(rank) && !HasBegun(rank)) {
      return state_->AbortForSilentRank(rank, NameOf(OwnKind()));
    }
    // The rank may have begun after LateMembers looked, and then ended.
    if (!is_lost || HasBegun(rank)) continue;
    if (members_->survives_losses()) {
      peers_->ExcludeIfLost(rank);
      any_excluded = true;
      if (peers_->IsExcluded(rank)) continue;
    }
    return GiveUp(rank);
  }
  if (any_excluded) return Status::Pending();
  return spans_nodes() ? CheckLosses() : Status::Ok();
}

Status Group::CheckLosses() {
  const int silenced_by = watch_.LossThatSilences();
  if (silenced_by >= 0) MV_RETURN_IF_NOT_OK(CheckLost(silenced_by));
  const auto lost = std::find_if(ranks_.begin(), ranks_.end(), [&](int rank) {
    return rank != members_->rank() && peers_->IsLost(rank);
  });
  return lost == ranks_.end() ? Status::Ok() : CheckLost(*lost);
}

Status Group::CheckLost(int rank) {
  if (!watch_.MessagesHaveArrived() || IsCompleted()) return Status::Ok();
  return GiveUp(rank);
}

Status Group::CheckOtherGroups(const std::vector<int>& late) const {
  const int me = members_->rank();
  for (const int other : late) {
    const char* const their_call = peers_->CollectiveAwaitedBy(other);
    // If `other` is late even now, it began their_call without beginning this collective.
    if (their_call == nullptr || HasBegun(other)) continue;
    const char* const my_call = NameOf(OwnKind());
    const Status mismatch(
        Code::kMismatch,
        StrCat("the ranks did not make the same call: rank ", std::min(me, other), " called ",
               other < me ? their_call : my_call, ", rank ", std::max(me, other), " called ",
               other < me ? my_call : their_call));
    // The abort also ends the wait of the ranks in the other group.
    state_->Abort(mismatch);
    return mismatch;
  }
  return Status::Ok();
}

}  // namespace multiverso
