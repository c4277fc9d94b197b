#include "transport/circle.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/text.h"
#include "memory/futex.h"
#include "transport/node_group.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// How often a waiting rank looks after those it waits for.
constexpr auto kLook = std::chrono::milliseconds(50);
// Longest sleep of a leader that waits for other nodes.
constexpr auto kLongestNap = std::chrono::milliseconds(5);
// How long messages of a rank that has gone may take to arrive.
constexpr auto kOnItsWay = std::chrono::milliseconds(500);

}  // namespace

Circle::Circle(NodeGroup* group, int index, std::vector<int> members)
    : group_(group),
      index_(index),
      members_(std::move(members)),
      words_(&group->control()->circle[index]) {
  for (const int rank : members_) members_here_ += group->is_local(rank) ? 1 : 0;
  if (members_here_ == members_.size()) return;
  if (group->members().survives_losses()) {
    muster_ = std::make_unique<Muster>(group, index, members_);
  } else {
    bridge_ = std::make_unique<Bridge>(group, index, members_);
  }
}

std::atomic<uint64_t>& Circle::arrivals(int rank) const {
  return group_->slot(rank).circle[index_].arrivals;
}

bool Circle::HasArrived(int rank) const {
  return arrivals(rank).load(std::memory_order_acquire) >= meetings_;
}

bool Circle::IsCompleted() const {
  const uint32_t last = words_->completed.load(std::memory_order_acquire);
  return static_cast<int32_t>(last - static_cast<uint32_t>(meetings_)) >= 0;
}

void Circle::Arrive(CallKind kind, const void* data, int64_t bytes) {
  arrived_at_ = Clock::now();
  // Nobody is waited for any more, and those who still wait may be reading this rank's slot.
  aborted_before_ = group_->IsAborted() || !group_->CheckNotGivenUp().ok();
  if (aborted_before_) return;
  ++meetings_;
  inquiry_.reset();
  leader_gone_at_.reset();
  RankSlot::InCircle& mine = group_->slot(group_->rank()).circle[index_];
  mine.DepositOf(meetings_).Write(meetings_, kind, data, static_cast<size_t>(bytes));
  mine.arrivals.store(meetings_, std::memory_order_release);
  const uint64_t total = words_->total_arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  // The sum is never too small when all are here, but it also counts those who gave up a meeting
  // that a lost rank will never come to, and went on to the next.
  if (total < meetings_ * members_here_ && !group_->peers()->SomeAreCountedOut()) return;
  if (!LateMembers(/*only_here=*/true).empty()) return;
  if (!spans_nodes()) {
    Announce(&words_->completed, &words_->sleepers);
  } else {
    Announce(&words_->gathered, &words_->sleeping_leaders);
  }
}

void Circle::Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const {
  word->store(static_cast<uint32_t>(meetings_), std::memory_order_seq_cst);
  // A system call only if somebody sleeps.
  if (sleepers->load(std::memory_order_seq_cst) != 0) WakeWord(word, kWakeAll);
}

Status Circle::Meet(const WaitLimit& limit) {
  if (aborted_before_) return group_->CheckAborted(/*was_waiting=*/false);
  const auto completed = [&] { return IsCompleted(); };
  while (!completed()) {
    const Instant until = std::min(limit.first(), Clock::now() + kLook);
    if (Leads()) {
      const Status carried = CarryAcross(until);
      if (carried.ok()) break;
      if (!carried.pending()) return carried;
    } else if (AwaitWord(&words_->completed, &words_->sleepers, until, completed,
                         group_->looking())) {
      break;
    }
    // Before asking who has gone: those who know of it may have gone for that reason.
    MV_RETURN_IF_NOT_OK(group_->CheckAborted(/*was_waiting=*/true));
    const std::vector<int> late = LateMembers(/*only_here=*/false);
    // The last to arrive may have died before it could say that it was the last. What the ranks of
    // other nodes brought is here only when their leader says so.
    if (late.empty() && !spans_nodes()) {
      Announce(&words_->completed, &words_->sleepers);
      break;
    }
    const Status gone = CheckPeers(late);
    if (gone.pending()) continue;
    MV_RETURN_IF_NOT_OK(gone);
    MV_RETURN_IF_NOT_OK(CheckElsewhere(late));
    const Instant now = Clock::now();
    std::string late_ones;
    int first = -1;
    if (now >= limit.deadline && FindLate(&late_ones, &first)) {
      Status timeout(Code::kTimeout,
                     StrCat("rank ", group_->rank(), " waited ", SecondsBetween(arrived_at_, now),
                            " s in ", NameOf(MyKind()), " for ", late_ones));
      if (first >= 0) timeout = group_->peers()->About(first, timeout);
      // Whoever comes later would wait for this rank in vain.
      group_->Abort(timeout);
      return timeout;
    }
    if (now >= limit.slice_end) return Status::Pending();
  }
  return CheckKinds();
}

bool Circle::Leads() const {
  if (!spans_nodes()) return false;
  return (muster_ != nullptr ? muster_->Leader() : bridge_->leader()) == group_->rank();
}

Status Circle::CarryAcross(Instant until) {
  const auto gathered = [&] {
    const uint32_t last = words_->gathered.load(std::memory_order_acquire);
    return static_cast<int32_t>(last - static_cast<uint32_t>(meetings_)) >= 0;
  };
  // As in Meet, the last to arrive may not have been able to say so.
  if (!AwaitWord(&words_->gathered, &words_->sleeping_leaders, until, gathered,
                 group_->looking()) &&
      !LateMembers(/*only_here=*/true).empty()) {
    return Status::Pending();
  }
  // As long as others take their time it does not pay to look often.
  const Backoff backoff(kLongestNap, arrived_at_);
  for (;;) {
    const Status exchanged =
        muster_ != nullptr ? muster_->Exchange(meetings_) : bridge_->Exchange(meetings_);
    if (exchanged.ok()) break;
    if (!exchanged.pending()) return exchanged;
    const Instant now = Clock::now();
    if (now >= until) return exchanged;
    const auto nap = backoff.Next(now);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
  Announce(&words_->completed, &words_->sleepers);
  return Status::Ok();
}

const Deposit& Circle::deposit(int rank) const {
  return group_->slot(rank).circle[index_].DepositOf(meetings_);
}

std::vector<int> Circle::present() const {
  std::vector<int> came;
  for (const int member : members_) {
    if (HasArrived(member)) came.push_back(member);
  }
  return came;
}

CallKind Circle::MyKind() const { return deposit(group_->rank()).kind(); }

std::vector<int> Circle::LateMembers(bool only_here) const {
  std::vector<int> late;
  for (const int member : members_) {
    if (only_here && !group_->is_local(member)) continue;
    if (!HasArrived(member) && !group_->peers()->IsCountedOut(member)) late.push_back(member);
  }
  return late;
}

bool Circle::FindLate(std::string* who, int* first) {
  std::vector<int> late = LateMembers(/*only_here=*/true);
  *who = NameRanks(late);
  if (spans_nodes()) {
    Intercom* const intercom = group_->intercom();
    if (!inquiry_.has_value()) inquiry_ = intercom->AskWhoIsLate(index_, meetings_);
    const bool all_answered = intercom->TakeAnswers(index_, meetings_, &*inquiry_);
    late.insert(late.end(), inquiry_->late_ranks.begin(), inquiry_->late_ranks.end());
    // If nobody is late, the last has just come and the news of it are on their way.
    if ((!all_answered || late.empty()) && Clock::now() < inquiry_->until) {
      std::this_thread::sleep_for(kLongestNap);
      return false;
    }
    std::sort(late.begin(), late.end());
    *who = NameRanks(late);
    std::string silent;
    for (const int node : inquiry_->silent_nodes) {
      silent += StrCat(silent.empty() ? "" : ", ", group_->members().NameNode(node));
    }
    if (!silent.empty() && late.empty()) {
      *who = silent + ", which does not answer";
      return true;
    }
    if (!silent.empty()) silent += ", which does not answer, and for ";
    *who = silent + *who;
  }
  *who += ", which did not call it";
  if (late.empty()) return true;
  *first = late.front();
  *who += group_->peers()->Trace(late.front());
  return true;
}

Status Circle::CheckKinds() const {
  // Everybody names the same two, in rank order, so that the messages of all ranks agree.
  const std::vector<int> came = present();
  const int first = came.front();
  for (const int other : came) {
    if (deposit(other).kind() == deposit(first).kind()) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ", first,
                                          " called ", NameOf(deposit(first).kind()), ", rank ",
                                          other, " called ", NameOf(deposit(other).kind())));
  }
  return Status::Ok();
}

Status Circle::CheckPeers(const std::vector<int>& late) {
  bool some_counted_out = false;
  for (const int member : late) {
    const std::string gone = group_->peers()->WhyGone(member);
    if (gone.empty() && group_->is_local(member) && group_->pulse()->IsSilent(member) &&
        !HasArrived(member)) {
      const Status given_up = group_->GiveUp(member, NameOf(MyKind()));
      if (!group_->peers()->IsCountedOut(member)) return given_up;
      some_counted_out = true;
    }
    if (gone.empty()) continue;
    // It may have arrived and gone between the two looks.
    if (HasArrived(member)) continue;
    if (group_->members().survives_losses()) {
      group_->peers()->CountOut(member, gone);
      some_counted_out = true;
      if (group_->peers()->IsCountedOut(member)) continue;
    }
    group_->peers()->LogLastCalls(member);
    return group_->Lost(member, StrCat(group_->members().NameRank(member), " ", gone,
                                       " while rank ", group_->rank(), " waited for it in ",
                                       NameOf(MyKind()), group_->peers()->Trace(member)));
  }
  if (some_counted_out) return Status::Pending();
  if (!spans_nodes()) return Status::Ok();
  if (muster_ == nullptr) return CheckLeaders();
  LookAfterLeader();
  return CheckNodes();
}

void Circle::LookAfterLeader() {
  const int leader = muster_->Leader();
  if (leader < 0 || leader == group_->rank()) return;
  const std::string gone = group_->peers()->WhyGone(leader);
  if (!gone.empty()) {
    group_->peers()->CountOut(leader, gone);
  } else if (group_->pulse()->IsSilent(leader)) {
    (void)group_->GiveUp(leader, NameOf(MyKind()));
  }
}

Status Circle::CheckNodes() {
  for (const int node : muster_->Missing(meetings_)) {
    const int lost = group_->peers()->FirstOfLostNode(node);
    if (lost < 0) continue;
    // What its ranks sent last may be on its way.
    const Instant now = Clock::now();
    if (!leader_gone_at_.has_value()) leader_gone_at_ = now;
    if (now < *leader_gone_at_ + kOnItsWay || IsCompleted()) return Status::Ok();
    return group_->Lost(
        lost, StrCat(group_->members().NameRank(lost), " ", group_->peers()->WhyGone(lost),
                     " while rank ", group_->rank(), " waited for it in ", NameOf(MyKind()),
                     group_->peers()->Trace(lost), "; ", group_->members().NameNode(node),
                     " is lost, and the rows that were there"));
  }
  return Status::Ok();
}

Status Circle::CheckLeaders() {
  for (const int leader : bridge_->leaders()) {
    const std::string gone = group_->peers()->WhyGone(leader);
    if (gone.empty()) continue;
    // What it sent last may be on its way.
    const Instant now = Clock::now();
    if (!leader_gone_at_.has_value()) leader_gone_at_ = now;
    if (now < *leader_gone_at_ + kOnItsWay || IsCompleted()) return Status::Ok();
    return group_->Lost(leader, StrCat(group_->members().NameRank(leader), " ", gone,
                                       " while rank ", group_->rank(), " waited in ",
                                       NameOf(MyKind()), " for its node to meet the others"));
  }
  return Status::Ok();
}

Status Circle::CheckElsewhere(const std::vector<int>& late) const {
  for (const int member : late) {
    const char* const call = group_->MeetingAheadOf(member);
    // If it is still late now, it went there without having come here.
    if (call == nullptr || arrivals(member).load(std::memory_order_acquire) >= meetings_) continue;
    const bool is_first = member < group_->rank();
    const int first = is_first ? member : group_->rank();
    const int second = is_first ? group_->rank() : member;
    const Status mismatch(Code::kMismatch,
                          StrCat("the ranks did not make the same call: rank ", first, " called ",
                                 is_first ? call : NameOf(MyKind()), ", rank ", second, " called ",
                                 is_first ? NameOf(MyKind()) : call));
    // Those whom it waits for there have to learn of it too.
    group_->Abort(mismatch);
    return mismatch;
  }
  return Status::Ok();
}

}  // namespace multiverso
