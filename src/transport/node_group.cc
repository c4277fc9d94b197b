#include "transport/node_group.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

const char* NameOf(CallKind kind) {
  switch (kind) {
    case CallKind::kJoin:
      return "init";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kCreateTable:
    case CallKind::kMapTable:
    case CallKind::kFillTable:
      return "the creation of a table";
    case CallKind::kCollectiveGet:
      return "get(sync=True)";
    case CallKind::kAggregate:
      return "aggregate";
    case CallKind::kClose:
      return "shutdown";
  }
  return "an unknown call";
}

Result<std::unique_ptr<NodeGroup>> NodeGroup::Join(Segment control, const Membership& members) {
  const auto ranks = static_cast<int>(members.node_ranks().size());
  if (control.bytes() < ControlBytes(ranks) + ScratchBytes(ranks)) {
    return Status(Code::kInternal, "the control segment is too small");
  }
  if (control.fd() >= 0) MV_RETURN_IF_NOT_OK(MarkPresent(control.fd(), members.local_rank()));
  return std::unique_ptr<NodeGroup>(new NodeGroup(std::move(control), members));
}

NodeGroup::NodeGroup(Segment control, const Membership& members)
    : segment_(std::move(control)),
      control_(reinterpret_cast<NodeControl*>(segment_.data())),
      ranks_(members.node_ranks()),
      local_rank_(members.local_rank()) {
  std::vector<int> everybody;
  std::vector<int> workers;
  for (int i = 0; i < size(); ++i) {
    everybody.push_back(i);
    if (members.is_worker(rank_of(i))) workers.push_back(i);
  }
  circles_.emplace_back(this, 0, everybody);
  if (workers.size() < everybody.size()) circles_.emplace_back(this, 1, workers);
  RankSlot& mine = slot(local_rank_);
  mine.rank = rank();
  mine.pid = getpid();
  mine.state.store(RankSlot::kHere, std::memory_order_release);
}

NodeGroup::~NodeGroup() { Leave("left without calling shutdown"); }

int64_t NodeGroup::ControlBytes(int ranks) {
  return RoundUp(NodeControl::BytesFor(ranks), kHugePage);
}

int64_t NodeGroup::ScratchBytes(int ranks) { return ranks * 2 * kScratchAreaBytes; }

char* NodeGroup::scratch(int local_rank, int area) const {
  return segment_.data() + ControlBytes(size()) + (local_rank * 2 + area) * kScratchAreaBytes;
}

void NodeGroup::Abort(const Status& why) {
  abort_is_known_.store(true, std::memory_order_relaxed);
  uint32_t expected = NodeControl::kNone;
  if (!control_->abort.compare_exchange_strong(expected, NodeControl::kWriting)) return;
  control_->aborted_by = rank();
  control_->abort_code = static_cast<int32_t>(why.code());
  CopyText(control_->abort_reason, why.text());
  control_->abort.store(NodeControl::kSet, std::memory_order_release);
}

bool NodeGroup::IsAborted() const {
  return control_->abort.load(std::memory_order_acquire) == NodeControl::kSet;
}

Status NodeGroup::CheckAborted(bool was_waiting) {
  if (!IsAborted()) return Status::Ok();
  abort_is_known_.store(true, std::memory_order_relaxed);
  const auto code = static_cast<Code>(control_->abort_code);
  // A mismatch is everybody's, and a timeout that of all who waited for the same.
  if (code == Code::kMismatch || (code == Code::kTimeout && was_waiting)) {
    return Status(code, control_->abort_reason);
  }
  return Status(Code::kAborted, StrCat("rank ", control_->aborted_by, " gave the session up: ",
                                       control_->abort_reason));
}

void NodeGroup::Leave(const std::string& reason) {
  RankSlot& mine = slot(local_rank_);
  if (mine.state.load(std::memory_order_relaxed) != RankSlot::kHere) return;
  if (leaving_.exchange(true)) return;  // another thread writes the reason
  CopyText(mine.reason, reason);
  mine.state.store(RankSlot::kLeft, std::memory_order_release);
}

void NodeGroup::Close() {
  slot(local_rank_).state.store(RankSlot::kClosed, std::memory_order_release);
}

bool NodeGroup::IsAlive(int local_rank) const {
  if (local_rank < 0 || local_rank >= size()) return false;
  const RankSlot& peer = slot(local_rank);
  // A rank that has not joined yet has no mark; one that is a thread of this process lives as long
  // as the process.
  if (peer.state.load(std::memory_order_acquire) == RankSlot::kAbsent) return true;
  if (segment_.fd() < 0 || local_rank == local_rank_ || peer.pid == getpid()) return true;
  return IsPresent(segment_.fd(), local_rank);
}

const char* NodeGroup::MeetingAheadOf(int local_rank) const {
  for (size_t i = 0; i < circles_.size(); ++i) {
    const std::vector<int>& members = circles_[i].members();
    if (std::find(members.begin(), members.end(), local_rank_) == members.end()) continue;
    const auto& theirs = slot(local_rank).circle[i];
    const uint64_t number = theirs.arrivals.load(std::memory_order_acquire);
    const uint64_t mine = slot(local_rank_).circle[i].arrivals.load(std::memory_order_relaxed);
    if (number > mine) return NameOf(theirs.deposit[number % 2].kind);
  }
  return nullptr;
}

std::string NodeGroup::WhyGone(int local_rank) const {
  const RankSlot& peer = slot(local_rank);
  if (peer.state.load(std::memory_order_acquire) == RankSlot::kLeft) {
    return StrCat("left (", peer.reason, ")");
  }
  return IsAlive(local_rank) ? "" : StrCat("(process ", peer.pid, ") died");
}

}  // namespace multiverso
