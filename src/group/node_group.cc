#include "group/node_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "memory/futex.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<std::unique_ptr<NodeGroup>> NodeGroup::Join(Segment control, const Membership& members,
                                                   std::unique_ptr<Messenger> messenger,
                                                   std::unique_ptr<PeerConnections> connections) {
  const auto here = static_cast<int>(members.node_ranks().size());
  if (control.bytes() < ControlBytes(members.size()) + ScratchBytes(here)) {
    return Status(Code::kInternal, "the control segment is too small");
  }
  if (control.fd() >= 0) MV_RETURN_IF_NOT_OK(MarkPresent(control.fd(), members.local_rank()));
  return std::unique_ptr<NodeGroup>(
      new NodeGroup(std::move(control), members, std::move(messenger), std::move(connections)));
}

NodeGroup::NodeGroup(Segment control, const Membership& members,
                     std::unique_ptr<Messenger> messenger,
                     std::unique_ptr<PeerConnections> connections)
    : segment_(std::move(control)),
      members_(members),
      control_(reinterpret_cast<NodeControl*>(segment_.data())),
      // Of the machine: a rank that is bound to a core does not share it for that.
      spin_policy_(size() > OnlineCores() ? kSharedCore : kOwnCore),
      failure_detector_(std::make_unique<FailureDetector>(control_, &members_)),
      peers_(std::make_unique<PeerStatus>(&segment_, &members_, failure_detector_.get())),
      connections_(std::move(connections)) {
  std::vector<int> world;
  std::vector<int> workers;
  for (int i = 0; i < members.size(); ++i) {
    world.push_back(i);
    if (members.is_worker(i)) workers.push_back(i);
  }
  if (messenger != nullptr) {
    messenger->RefuseIf([this](int other) {
      // In a session that goes on, nothing more is said to one that left either.
      const uint32_t state = slot(other).state.load(std::memory_order_relaxed);
      return state == RankSlot::kDied || (state == RankSlot::kLeft && members_.survives_losses()) ||
             (connections_ != nullptr && connections_->HasEnded(other));
    });
    control_channel_ = std::make_unique<ControlChannel>(std::move(messenger), this);
  }
  circles_.emplace_back(this, 0, world);
  if (workers.size() < world.size()) circles_.emplace_back(this, 1, workers);
  workers.erase(
      std::remove_if(workers.begin(), workers.end(), [&](int worker) { return !is_local(worker); }),
      workers.end());
  node_workers_ = std::make_unique<Group>(this, 2, workers);
  RankSlot& mine = slot(rank());
  mine.rank = rank();
  mine.pid = ProcessId();
  mine.worker_id = members.worker_id();
  if (local_rank() == 0) Introduce();
  mine.state.store(RankSlot::kHere, std::memory_order_release);
}

void NodeGroup::Introduce() {
  control_->bytes_of_slot = sizeof(RankSlot);
  control_->bytes_of_log = sizeof(FlightRecorder);
  CopyText(control_->version, members_.version());
  control_->ranks = members_.size();
  control_->nodes = members_.num_nodes();
  control_->node = members_.node();
  control_->mode = members_.mode();
  control_->survives_losses = members_.survives_losses() ? 1 : 0;
  control_->started = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  control_->magic.store(NodeControl::kMagic, std::memory_order_release);
}

NodeGroup::~NodeGroup() {
  Leave("left without calling shutdown");
  if (control_channel_ == nullptr) return;
  // Those who were sent something last are polling for it. After an orderly end nothing else is
  // under way, and the messenger can go.
  Messenger* const messenger = control_channel_->messenger();
  const bool all_sent = messenger->Drain(Clock::now() + std::chrono::seconds(1));
  const bool closed = slot(rank()).state.load(std::memory_order_relaxed) == RankSlot::kClosed;
  // With ranks that have died MPI has no end.
  const bool some_lost = members_.survives_losses() && peers_->AnyExcluded();
  if (all_sent && closed && !some_lost) messenger->Close();
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
  AbortInBackground(why);
  AnnounceClose();
}

void NodeGroup::AbortInBackground(const Status& why) {
  if (control_channel_ != nullptr) control_channel_->SendAbort(why);
  RecordAbort(rank(), why);
}

void NodeGroup::RecordAbort(int by, const Status& why) {
  uint32_t expected = NodeControl::kNone;
  if (!control_->abort.compare_exchange_strong(expected, NodeControl::kWriting)) return;
  control_->aborted_by = by;
  control_->abort_code = static_cast<int32_t>(why.code());
  control_->abort_about = why.peer() == nullptr ? -1 : why.peer()->rank;
  CopyText(control_->abort_reason, why.text());
  control_->abort.store(NodeControl::kSet, std::memory_order_release);
}

bool NodeGroup::IsAborted() const {
  return control_->abort.load(std::memory_order_acquire) == NodeControl::kSet;
}

Status NodeGroup::ExcludeSilentRank(int rank, const std::string& waiting_in) {
  const Status timeout = peers_->About(
      rank, Status(Code::kTimeout,
                   StrCat(members_.NameRank(rank), " (process ", slot(rank).pid,
                          ") has given no sign of life for ", failure_detector_->SilentFor(rank),
                          " s while rank ", this->rank(), " waited for it in ", waiting_in,
                          peers_->Trace(rank))));
  slot(rank).was_excluded.store(1);
  if (members_.survives_losses()) {
    peers_->Exclude(rank, "has given no sign of life for too long");
  } else {
    Abort(timeout);
  }
  return timeout;
}

Status NodeGroup::CheckNotExcluded() const {
  if (slot(rank()).was_excluded.load(std::memory_order_acquire) == 0) return Status::Ok();
  return Status(Code::kState, StrCat("the other ranks have given rank ", rank(),
                                     " up, which gave no sign of life for more than ",
                                     std::chrono::duration<double>(members_.peer_timeout()).count(),
                                     " s: it cannot take part any more"));
}

Status NodeGroup::CheckAborted(bool was_waiting) {
  const Status given_up = CheckNotExcluded();
  if (given_up.ok() && !IsAborted()) return Status::Ok();
  AnnounceClose();
  MV_RETURN_IF_NOT_OK(given_up);
  abort_is_known_.store(true, std::memory_order_relaxed);
  const auto code = static_cast<Code>(control_->abort_code);
  // A mismatch is everybody's, and a timeout that of all who waited for the same.
  if (code == Code::kMismatch || (code == Code::kTimeout && was_waiting)) {
    const Status same(code, control_->abort_reason);
    return control_->abort_about < 0 ? same : peers_->About(control_->abort_about, same);
  }
  const int by = control_->aborted_by;
  return peers_->About(
      by,
      Status(Code::kAborted, StrCat("rank ", by, " gave the session up: ", control_->abort_reason,
                                    " (rank ", by, " ", peers_->Facts(by), ")")));
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
  control_->some_lost.store(1);
  CopyText(mine.reason, reason);
  if (members_.survives_losses() && size() > 1) {
    LogWarning(StrCat(members_.NameRank(rank()), " left (", mine.reason,
                      "); the others go on without it"));
  }
  mine.state.store(RankSlot::kLeft, std::memory_order_release);
  if (control_channel_ == nullptr) return;
  control_channel_->SendExit(rank(), RankSlot::kLeft, reason);
  // Its receivers are polling, so this is quick; if they have gone too, nothing is lost.
  control_channel_->messenger()->Drain(Clock::now() + std::chrono::milliseconds(200));
  AnnounceClose();
}

void NodeGroup::Close() {
  slot(rank()).state.store(RankSlot::kClosed, std::memory_order_release);
  AnnounceClose();
}

const char* NodeGroup::CollectiveAwaitedBy(int rank) const {
  const int me = this->rank();
  for (size_t i = 0; i < circles_.size(); ++i) {
    const std::vector<int>& members = circles_[i].members();
    if (std::find(members.begin(), members.end(), me) == members.end()) continue;
    const auto& theirs = slot(rank).circle[i];
    const uint64_t number = theirs.arrivals.load(std::memory_order_acquire);
    const uint64_t mine = slot(me).circle[i].arrivals.load(std::memory_order_relaxed);
    if (number > mine) return NameOf(theirs.SlotFor(number).kind());
  }
  return nullptr;
}

Status NodeGroup::Lost(int rank, const std::string& text) {
  if (control_channel_ != nullptr) control_channel_->SendLosses();
  if (connections_ != nullptr) connections_->AnnounceLoss(rank);
  return peers_->About(rank, Status(Code::kPeerLost, text));
}

void NodeGroup::Label(int64_t table, const std::string& name, int32_t dtype, int64_t rows,
                      int64_t columns) const {
  if (table >= FlightRecorder::kTables) return;
  TableLabel& label = control_->labels[table];
  label.is_set.store(0);
  CopyText(label.name, name);
  label.dtype = dtype;
  label.num_row = rows;
  label.num_col = columns;
  label.is_set.store(1, std::memory_order_release);
}

void NodeGroup::RecordSaved(const std::string& path) const {
  CopyText(control_->saved, path);
  control_->has_saved.store(1, std::memory_order_release);
}

void NodeGroup::RecordDeath(int rank, const std::string& how, int after) {
  if (slot(rank).state.load(std::memory_order_acquire) != RankSlot::kAbsent) return;
  std::string reason = how;
  if (after >= 0 && after < members_.size() && after != rank) {
    const std::string gone = peers_->ExitReason(after);
    reason += StrCat(", after ", members_.NameRank(after), " ", gone.empty() ? "was lost" : gone);
  }
  const uint64_t unknown[kGroups] = {};
  peers_->RecordExit(rank, RankSlot::kDied, reason, unknown);
  control_channel_->SendDeath(rank, reason);
}

}  // namespace multiverso
