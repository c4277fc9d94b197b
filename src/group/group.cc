#include "group/group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/text.h"
#include "group/node_group.h"
#include "memory/futex.h"
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

Group::Group(NodeGroup* group, int index, std::vector<int> members)
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

std::atomic<uint64_t>& Group::arrivals(int rank) const {
  return group_->slot(rank).circle[index_].arrivals;
}

bool Group::HasArrived(int rank) const {
  return arrivals(rank).load(std::memory_order_acquire) >= meetings_;
}

bool Group::IsCompleted() const {
  const uint32_t last = words_->completed.load(std::memory_order_acquire);
  return static_cast<int32_t>(last - static_cast<uint32_t>(meetings_)) >= 0;
}

void Group::Arrive(CollectiveKind kind, const void* data, int64_t bytes) {
  arrived_at_ = Clock::now();
  // Nobody is waited for any more, and those who still wait may be reading this rank's slot.
  aborted_before_ = group_->IsAborted() || !group_->CheckNotExcluded().ok();
  if (aborted_before_) return;
  ++meetings_;
  inquiry_.reset();
  leader_gone_at_.reset();
  RankSlot::InGroup& mine = group_->slot(group_->rank()).circle[index_];
  mine.SlotFor(meetings_).Write(meetings_, kind, data, static_cast<size_t>(bytes));
  mine.arrivals.store(meetings_, std::memory_order_release);
  const uint64_t total = words_->total_arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  // The sum is never too small when all are here, but it also counts those who gave up a meeting
  // that a lost rank will never come to, and went on to the next.
  if (total < meetings_ * members_here_ && !group_->peers()->AnyExcluded()) return;
  if (!LateMembers(/*only_here=*/true).empty()) return;
  if (!spans_nodes()) {
    Announce(&words_->completed, &words_->sleepers);
  } else {
    Announce(&words_->gathered, &words_->sleeping_leaders);
  }
}

void Group::Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const {
  word->store(static_cast<uint32_t>(meetings_), std::memory_order_seq_cst);
  // A system call only if somebody sleeps.
  if (sleepers->load(std::memory_order_seq_cst) != 0) WakeWord(word, kWakeAll);
}

Status Group::Meet(const WaitLimit& limit) {
  if (aborted_before_) return group_->CheckAborted(/*was_waiting=*/false);
  const auto completed = [&] { return IsCompleted(); };
  while (!completed()) {
    const Instant until = std::min(limit.first(), Clock::now() + kLook);
    if (Leads()) {
      const Status carried = CarryAcross(until);
      if (carried.ok()) break;
      if (!carried.pending()) return carried;
    } else if (WaitForWord(&words_->completed, &words_->sleepers, until, completed,
                           group_->spin_policy())) {
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
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return CheckKinds();
}

bool Group::Leads() const {
  if (!spans_nodes()) return false;
  return (muster_ != nullptr ? muster_->Leader() : bridge_->leader()) == group_->rank();
}

Status Group::CarryAcross(Instant until) {
  const auto gathered = [&] {
    const uint32_t last = words_->gathered.load(std::memory_order_acquire);
    return static_cast<int32_t>(last - static_cast<uint32_t>(meetings_)) >= 0;
  };
  // As in Meet, the last to arrive may not have been able to say so.
  if (!WaitForWord(&words_->gathered, &words_->sleeping_leaders, until, gathered,
                   group_->spin_policy()) &&
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

const ExchangeSlot& Group::deposit(int rank) const {
  return group_->slot(rank).circle[index_].SlotFor(meetings_);
}

std::vector<int> Group::present() const {
  std::vector<int> came;
  for (const int member : members_) {
    if (HasArrived(member)) came.push_back(member);
  }
  return came;
}

CollectiveKind Group::MyKind() const { return deposit(group_->rank()).kind(); }

std::vector<int> Group::LateMembers(bool only_here) const {
  std::vector<int> late;
  for (const int member : members_) {
    if (only_here && !group_->is_local(member)) continue;
    if (!HasArrived(member) && !group_->peers()->IsExcluded(member)) late.push_back(member);
  }
  return late;
}

bool Group::FindLate(std::string* who, int* first) {
  std::vector<int> late = LateMembers(/*only_here=*/true);
  *who = NameRanks(late);
  if (spans_nodes()) {
    ControlChannel* const control_channel = group_->control_channel();
    if (!inquiry_.has_value()) inquiry_ = control_channel->RequestLateRanks(index_, meetings_);
    const bool all_answered = control_channel->CollectAnswers(index_, meetings_, &*inquiry_);
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

Status Group::CheckKinds() const {
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

Status Group::CheckPeers(const std::vector<int>& late) {
  bool some_counted_out = false;
  for (const int member : late) {
    const std::string gone = group_->peers()->ExitReason(member);
    if (gone.empty() && group_->is_local(member) && group_->failure_detector()->IsSilent(member) &&
        !HasArrived(member)) {
      const Status given_up = group_->ExcludeSilentRank(member, NameOf(MyKind()));
      if (!group_->peers()->IsExcluded(member)) return given_up;
      some_counted_out = true;
    }
    if (gone.empty()) continue;
    // It may have arrived and gone between the two looks.
    if (HasArrived(member)) continue;
    if (group_->members().survives_losses()) {
      group_->peers()->Exclude(member, gone);
      some_counted_out = true;
      if (group_->peers()->IsExcluded(member)) continue;
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

void Group::LookAfterLeader() {
  const int leader = muster_->Leader();
  if (leader < 0 || leader == group_->rank()) return;
  const std::string gone = group_->peers()->ExitReason(leader);
  if (!gone.empty()) {
    group_->peers()->Exclude(leader, gone);
  } else if (group_->failure_detector()->IsSilent(leader)) {
    (void)group_->ExcludeSilentRank(leader, NameOf(MyKind()));
  }
}

Status Group::CheckNodes() {
  for (const int node : muster_->Missing(meetings_)) {
    const int lost = group_->peers()->FirstRankOfLostNode(node);
    if (lost < 0) continue;
    // What its ranks sent last may be on its way.
    const Instant now = Clock::now();
    if (!leader_gone_at_.has_value()) leader_gone_at_ = now;
    if (now < *leader_gone_at_ + kOnItsWay || IsCompleted()) return Status::Ok();
    return group_->Lost(
        lost, StrCat(group_->members().NameRank(lost), " ", group_->peers()->ExitReason(lost),
                     " while rank ", group_->rank(), " waited for it in ", NameOf(MyKind()),
                     group_->peers()->Trace(lost), "; ", group_->members().NameNode(node),
                     " is lost, and the rows that were there"));
  }
  return Status::Ok();
}

Status Group::CheckLeaders() {
  for (const int leader : bridge_->leaders()) {
    const std::string gone = group_->peers()->ExitReason(leader);
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

Status Group::CheckElsewhere(const std::vector<int>& late) const {
  for (const int member : late) {
    const char* const call = group_->CollectiveAwaitedBy(member);
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
