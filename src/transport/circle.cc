#include "transport/circle.h"

#include <cstring>
#include <utility>

#include "base/text.h"
#include "memory/futex.h"
#include "transport/node_group.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// How often a waiting rank looks after those it waits for.
constexpr auto kLook = std::chrono::milliseconds(50);

}  // namespace

Circle::Circle(NodeGroup* group, int index, std::vector<int> members)
    : group_(group),
      index_(index),
      members_(std::move(members)),
      words_(&group->control()->circle[index]) {}

std::atomic<uint64_t>& Circle::arrivals(int local_rank) const {
  return group_->slot(local_rank).circle[index_].arrivals;
}

void Circle::Arrive(CallKind kind, const void* data, int64_t bytes) {
  arrived_at_ = Clock::now();
  // Nobody is waited for any more, and those who still wait may be reading this rank's slot.
  aborted_before_ = group_->IsAborted();
  if (aborted_before_) return;
  ++meetings_;
  RankSlot::InCircle& mine = group_->slot(group_->local_rank()).circle[index_];
  RankSlot::Deposit& deposit = mine.deposit[meetings_ % 2];
  deposit.kind = kind;
  deposit.bytes = static_cast<uint32_t>(bytes);
  if (bytes > 0) std::memcpy(deposit.data, data, static_cast<size_t>(bytes));
  mine.arrivals.store(meetings_, std::memory_order_release);
  const uint64_t total = words_->total_arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  // The sum is never too small when all are here, but it also counts those who gave up a meeting
  // that a lost rank will never come to, and went on to the next.
  if (total >= meetings_ * members_.size() && LateMembers().empty()) {
    words_->completed.store(static_cast<uint32_t>(meetings_), std::memory_order_seq_cst);
    // A system call only if somebody sleeps.
    if (words_->sleepers.load(std::memory_order_seq_cst) != 0) {
      WakeWord(&words_->completed, kWakeAll);
    }
  }
}

Status Circle::Meet(const WaitLimit& limit) {
  if (aborted_before_) return group_->CheckAborted(/*was_waiting=*/false);
  const auto number = static_cast<uint32_t>(meetings_);
  const auto completed = [&] {
    const uint32_t last = words_->completed.load(std::memory_order_acquire);
    return static_cast<int32_t>(last - number) >= 0;
  };
  while (!completed()) {
    const Instant until = std::min(limit.first(), Clock::now() + kLook);
    if (AwaitWord(&words_->completed, &words_->sleepers, until, completed)) break;
    // Before asking who has gone: those who know of it may have gone for that reason.
    MV_RETURN_IF_NOT_OK(group_->CheckAborted(/*was_waiting=*/true));
    const std::vector<int> late = LateMembers();
    // The last to arrive may have died before it could say that it was the last.
    if (late.empty()) break;
    MV_RETURN_IF_NOT_OK(CheckPeers(late));
    MV_RETURN_IF_NOT_OK(CheckElsewhere(late));
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      const Status timeout(Code::kTimeout,
                           StrCat("rank ", group_->rank(), " waited ",
                                  SecondsBetween(arrived_at_, now), " s in ", NameOf(MyKind()),
                                  " for ", NameMembers(late), ", which did not call it"));
      // Whoever comes later would wait for this rank in vain.
      group_->Abort(timeout);
      return timeout;
    }
    if (now >= limit.slice_end) return Status::Pending();
  }
  return CheckKinds();
}

const RankSlot::Deposit& Circle::deposit(int local_rank) const {
  return group_->slot(local_rank).circle[index_].deposit[meetings_ % 2];
}

CallKind Circle::MyKind() const { return deposit(group_->local_rank()).kind; }

std::vector<int> Circle::LateMembers() const {
  std::vector<int> late;
  for (const int member : members_) {
    if (arrivals(member).load(std::memory_order_acquire) < meetings_) late.push_back(member);
  }
  return late;
}

std::string Circle::NameMembers(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(group_->rank_of(member));
  return NameRanks(ranks);
}

Status Circle::CheckKinds() const {
  // Everybody names the same two, in rank order, so that the messages of all ranks agree.
  const int first = members_.front();
  for (const int other : members_) {
    if (deposit(other).kind == deposit(first).kind) continue;
    return Status(Code::kMismatch,
                  StrCat("the ranks did not make the same call: rank ", group_->rank_of(first),
                         " called ", NameOf(deposit(first).kind), ", rank ",
                         group_->rank_of(other), " called ", NameOf(deposit(other).kind)));
  }
  return Status::Ok();
}

Status Circle::CheckPeers(const std::vector<int>& late) const {
  for (const int member : late) {
    const std::string gone = group_->WhyGone(member);
    if (gone.empty()) continue;
    // It may have arrived and gone between the two looks.
    if (arrivals(member).load(std::memory_order_acquire) >= meetings_) continue;
    return Status(Code::kPeerLost,
                  StrCat("rank ", group_->rank_of(member), " ", gone, " while rank ",
                         group_->rank(), " waited for it in ", NameOf(MyKind())));
  }
  return Status::Ok();
}

Status Circle::CheckElsewhere(const std::vector<int>& late) const {
  for (const int member : late) {
    const char* const call = group_->MeetingAheadOf(member);
    // If it is still late now, it went there without having come here.
    if (call == nullptr || arrivals(member).load(std::memory_order_acquire) >= meetings_) continue;
    const bool is_first = member < group_->local_rank();
    const int first = is_first ? group_->rank_of(member) : group_->rank();
    const int second = is_first ? group_->rank() : group_->rank_of(member);
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
