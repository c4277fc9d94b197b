#include "transport/node_group.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/process.h"
#include "base/text.h"
#include "memory/futex.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

void RaiseTo(uint64_t number, std::atomic<uint64_t>* known) {
  uint64_t before = known->load(std::memory_order_relaxed);
  while (before < number &&
         !known->compare_exchange_weak(before, number, std::memory_order_release)) {
  }
}

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
    case CallKind::kSave:
      return "save";
    case CallKind::kSaveWait:
      return "the end of a save";
    case CallKind::kLoad:
      return "load";
    case CallKind::kClose:
      return "shutdown";
  }
  return "an unknown call";
}

Result<std::unique_ptr<NodeGroup>> NodeGroup::Join(Segment control, const Membership& members,
                                                   std::unique_ptr<Messenger> messenger) {
  const auto here = static_cast<int>(members.node_ranks().size());
  if (control.bytes() < ControlBytes(members.size()) + ScratchBytes(here)) {
    return Status(Code::kInternal, "the control segment is too small");
  }
  if (control.fd() >= 0) MV_RETURN_IF_NOT_OK(MarkPresent(control.fd(), members.local_rank()));
  return std::unique_ptr<NodeGroup>(
      new NodeGroup(std::move(control), members, std::move(messenger)));
}

NodeGroup::NodeGroup(Segment control, const Membership& members,
                     std::unique_ptr<Messenger> messenger)
    : segment_(std::move(control)),
      members_(members),
      control_(reinterpret_cast<NodeControl*>(segment_.data())),
      ranks_(members.node_ranks()),
      local_rank_(members.local_rank()),
      // Of the machine: a rank that is bound to a core does not share it for that.
      looking_(static_cast<int64_t>(ranks_.size()) > OnlineCores() ? kSharedCore : kOwnCore) {
  std::vector<int> everybody;
  std::vector<int> workers;
  for (int i = 0; i < members.size(); ++i) {
    everybody.push_back(i);
    if (members.is_worker(i)) workers.push_back(i);
  }
  if (messenger != nullptr) intercom_ = std::make_unique<Intercom>(std::move(messenger), this);
  circles_.emplace_back(this, 0, everybody);
  if (workers.size() < everybody.size()) circles_.emplace_back(this, 1, workers);
  workers.erase(
      std::remove_if(workers.begin(), workers.end(), [&](int worker) { return !is_local(worker); }),
      workers.end());
  neighbours_ = std::make_unique<Circle>(this, 2, workers);
  RankSlot& mine = slot(rank());
  mine.rank = rank();
  mine.pid = ProcessId();
  mine.state.store(RankSlot::kHere, std::memory_order_release);
}

NodeGroup::~NodeGroup() {
  Leave("left without calling shutdown");
  if (intercom_ == nullptr) return;
  // Those who were sent something last are polling for it. After an orderly end nothing else is
  // under way, and the messenger can go.
  Messenger* const messenger = intercom_->messenger();
  const bool all_sent = messenger->Drain(Clock::now() + std::chrono::seconds(1));
  const bool closed = slot(rank()).state.load(std::memory_order_relaxed) == RankSlot::kClosed;
  if (all_sent && closed) messenger->Close();
}

int64_t NodeGroup::ControlBytes(int ranks) {
  return RoundUp(NodeControl::BytesFor(ranks), kHugePage);
}

int64_t NodeGroup::ScratchBytes(int ranks) { return ranks * 2 * kScratchAreaBytes; }

char* NodeGroup::scratch(int local_rank, int area) const {
  return segment_.data() + ControlBytes(members_.size()) +
         (local_rank * 2 + area) * kScratchAreaBytes;
}

void NodeGroup::Abort(const Status& why) {
  abort_is_known_.store(true, std::memory_order_relaxed);
  if (intercom_ != nullptr) intercom_->TellAbort(why);
  NoteAbort(rank(), why);
}

void NodeGroup::NoteAbort(int by, const Status& why) {
  uint32_t expected = NodeControl::kNone;
  if (!control_->abort.compare_exchange_strong(expected, NodeControl::kWriting)) return;
  control_->aborted_by = by;
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
  return Status(Code::kAborted, StrCat("rank ", control_->aborted_by,
                                       " gave the session up: ", control_->abort_reason));
}

void NodeGroup::CallLeader() const {
  if (!members_.spans_nodes()) return;
  // Changed also if nobody sleeps: the thread may have looked already and be about to.
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  if (control_->bell_sleepers.load(std::memory_order_seq_cst) != 0) {
    WakeWord(&control_->bell, kWakeAll);
  }
}

void NodeGroup::Leave(const std::string& reason) {
  RankSlot& mine = slot(rank());
  if (mine.state.load(std::memory_order_relaxed) != RankSlot::kHere) return;
  if (leaving_.exchange(true)) return;  // another thread writes the reason
  CopyText(mine.reason, reason);
  mine.state.store(RankSlot::kLeft, std::memory_order_release);
  if (intercom_ == nullptr) return;
  intercom_->TellGone(rank(), RankSlot::kLeft, reason);
  // Its receivers are polling, so this is quick; if they have gone too, nothing is lost.
  intercom_->messenger()->Drain(Clock::now() + std::chrono::milliseconds(200));
}

void NodeGroup::Close() { slot(rank()).state.store(RankSlot::kClosed, std::memory_order_release); }

bool NodeGroup::IsAlive(int local_rank) const {
  if (local_rank < 0 || local_rank >= size()) return false;
  const RankSlot& peer = slot(rank_of(local_rank));
  // A rank that has not joined yet has no mark; one that is a thread of this process lives as long
  // as the process.
  if (peer.state.load(std::memory_order_acquire) == RankSlot::kAbsent) return true;
  if (segment_.fd() < 0 || local_rank == local_rank_ || peer.pid == ProcessId()) return true;
  return IsPresent(segment_.fd(), local_rank);
}

const char* NodeGroup::MeetingAheadOf(int rank) const {
  const int me = this->rank();
  for (size_t i = 0; i < circles_.size(); ++i) {
    const std::vector<int>& members = circles_[i].members();
    if (std::find(members.begin(), members.end(), me) == members.end()) continue;
    const auto& theirs = slot(rank).circle[i];
    const uint64_t number = theirs.arrivals.load(std::memory_order_acquire);
    const uint64_t mine = slot(me).circle[i].arrivals.load(std::memory_order_relaxed);
    if (number > mine) return NameOf(theirs.deposit[number % 2].kind);
  }
  return nullptr;
}

int NodeGroup::local_rank_of(int rank) const {
  // The place of a rank among those of the node grows with its number.
  return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

std::string NodeGroup::WhyGone(int rank) const {
  const RankSlot& peer = slot(rank);
  const uint32_t state = peer.state.load(std::memory_order_acquire);
  if (state == RankSlot::kLeft) return StrCat("left (", peer.reason, ")");
  if (state == RankSlot::kDied) return peer.reason;
  if (!is_local(rank)) return "";
  return IsAlive(local_rank_of(rank)) ? "" : StrCat("(process ", peer.pid, ") died");
}

Status NodeGroup::Lost(const std::string& text) {
  if (intercom_ != nullptr) intercom_->PassOnLosses();
  return Status(Code::kPeerLost, text);
}

void NodeGroup::NoteGone(int rank, RankSlot::State state, const std::string& reason,
                         const uint64_t (&arrivals)[kCircles]) {
  RankSlot& peer = slot(rank);
  // All service threads of the node get the news, and one of them writes it down.
  uint32_t expected = RankSlot::kAbsent;
  if (!peer.state.compare_exchange_strong(expected, RankSlot::kWritingNews)) return;
  CopyText(peer.reason, reason);
  for (int i = 0; i < kCircles; ++i) RaiseTo(arrivals[i], &peer.circle[i].arrivals);
  peer.state.store(state, std::memory_order_release);
}

void NodeGroup::NoteStanding(int rank, int circle, CallKind kind,
                             const uint64_t (&arrivals)[kCircles]) {
  RankSlot& peer = slot(rank);
  // It had been at these before it went there.
  for (int i = 0; i < kCircles; ++i) {
    if (i != circle) RaiseTo(arrivals[i], &peer.circle[i].arrivals);
  }
  const uint64_t number = arrivals[circle];
  if (peer.circle[circle].arrivals.load(std::memory_order_relaxed) >= number) return;
  peer.circle[circle].deposit[number % 2].kind = kind;
  RaiseTo(number, &peer.circle[circle].arrivals);
}

}  // namespace multiverso
