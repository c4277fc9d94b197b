#include "transport/node_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "memory/futex.h"
#include "memory/presence.h"
#include "transport/node_view.h"

namespace multiverso {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// Of a lost rank's last calls, how many are logged.
constexpr int kCallsTold = 8;

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
                                                   std::unique_ptr<Messenger> messenger,
                                                   std::unique_ptr<Lifelines> lifelines) {
  const auto here = static_cast<int>(members.node_ranks().size());
  if (control.bytes() < ControlBytes(members.size()) + ScratchBytes(here)) {
    return Status(Code::kInternal, "the control segment is too small");
  }
  if (control.fd() >= 0) MV_RETURN_IF_NOT_OK(MarkPresent(control.fd(), members.local_rank()));
  return std::unique_ptr<NodeGroup>(
      new NodeGroup(std::move(control), members, std::move(messenger), std::move(lifelines)));
}

NodeGroup::NodeGroup(Segment control, const Membership& members,
                     std::unique_ptr<Messenger> messenger, std::unique_ptr<Lifelines> lifelines)
    : segment_(std::move(control)),
      members_(members),
      control_(reinterpret_cast<NodeControl*>(segment_.data())),
      ranks_(members.node_ranks()),
      local_rank_(members.local_rank()),
      // Of the machine: a rank that is bound to a core does not share it for that.
      looking_(static_cast<int64_t>(ranks_.size()) > OnlineCores() ? kSharedCore : kOwnCore),
      pulse_(std::make_unique<Pulse>(control_, &members_)),
      lifelines_(std::move(lifelines)) {
  std::vector<int> everybody;
  std::vector<int> workers;
  for (int i = 0; i < members.size(); ++i) {
    everybody.push_back(i);
    if (members.is_worker(i)) workers.push_back(i);
  }
  if (messenger != nullptr) {
    messenger->RefuseIf([this](int other) {
      // In a session that goes on, nothing more is said to one that left either.
      const uint32_t state = slot(other).state.load(std::memory_order_relaxed);
      return state == RankSlot::kDied || (state == RankSlot::kLeft && members_.survives_losses()) ||
             (lifelines_ != nullptr && lifelines_->HasEnded(other));
    });
    intercom_ = std::make_unique<Intercom>(std::move(messenger), this);
  }
  circles_.emplace_back(this, 0, everybody);
  if (workers.size() < everybody.size()) circles_.emplace_back(this, 1, workers);
  workers.erase(
      std::remove_if(workers.begin(), workers.end(), [&](int worker) { return !is_local(worker); }),
      workers.end());
  neighbours_ = std::make_unique<Circle>(this, 2, workers);
  RankSlot& mine = slot(rank());
  mine.rank = rank();
  mine.pid = ProcessId();
  mine.worker_id = members.worker_id();
  if (local_rank_ == 0) Introduce();
  mine.state.store(RankSlot::kHere, std::memory_order_release);
}

void NodeGroup::Introduce() {
  control_->bytes_of_slot = sizeof(RankSlot);
  control_->bytes_of_log = sizeof(FlightLog);
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
  if (intercom_ == nullptr) return;
  // Those who were sent something last are polling for it. After an orderly end nothing else is
  // under way, and the messenger can go.
  Messenger* const messenger = intercom_->messenger();
  const bool all_sent = messenger->Drain(Clock::now() + std::chrono::seconds(1));
  const bool closed = slot(rank()).state.load(std::memory_order_relaxed) == RankSlot::kClosed;
  // With ranks that have died MPI has no end.
  const bool some_lost = members_.survives_losses() && SomeAreCountedOut();
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
  SayGoodbye();
}

void NodeGroup::AbortInBackground(const Status& why) {
  if (intercom_ != nullptr) intercom_->TellAbort(why);
  NoteAbort(rank(), why);
}

void NodeGroup::NoteAbort(int by, const Status& why) {
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

Status NodeGroup::GiveUp(int rank, const std::string& waiting_in) {
  const Status timeout = About(
      rank, Status(Code::kTimeout, StrCat(members_.NameRank(rank), " (process ", slot(rank).pid,
                                          ") has given no sign of life for ",
                                          pulse_->SilentFor(rank), " s while rank ", this->rank(),
                                          " waited for it in ", waiting_in, Trace(rank))));
  slot(rank).was_given_up.store(1);
  if (members_.survives_losses()) {
    CountOut(rank, "has given no sign of life for too long");
  } else {
    Abort(timeout);
  }
  return timeout;
}

Status NodeGroup::CheckNotGivenUp() const {
  if (slot(rank()).was_given_up.load(std::memory_order_acquire) == 0) return Status::Ok();
  return Status(Code::kState, StrCat("the other ranks have given rank ", rank(),
                                     " up, which gave no sign of life for more than ",
                                     std::chrono::duration<double>(members_.peer_timeout()).count(),
                                     " s: it cannot take part any more"));
}

Status NodeGroup::CheckAborted(bool was_waiting) {
  const Status given_up = CheckNotGivenUp();
  if (given_up.ok() && !IsAborted()) return Status::Ok();
  SayGoodbye();
  MV_RETURN_IF_NOT_OK(given_up);
  abort_is_known_.store(true, std::memory_order_relaxed);
  const auto code = static_cast<Code>(control_->abort_code);
  // A mismatch is everybody's, and a timeout that of all who waited for the same.
  if (code == Code::kMismatch || (code == Code::kTimeout && was_waiting)) {
    const Status same(code, control_->abort_reason);
    return control_->abort_about < 0 ? same : About(control_->abort_about, same);
  }
  const int by = control_->aborted_by;
  return About(by, Status(Code::kAborted,
                          StrCat("rank ", by, " gave the session up: ", control_->abort_reason,
                                 " (rank ", by, " ", Facts(by), ")")));
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
  if (intercom_ == nullptr) return;
  intercom_->TellGone(rank(), RankSlot::kLeft, reason);
  // Its receivers are polling, so this is quick; if they have gone too, nothing is lost.
  intercom_->messenger()->Drain(Clock::now() + std::chrono::milliseconds(200));
  SayGoodbye();
}

void NodeGroup::Close() {
  slot(rank()).state.store(RankSlot::kClosed, std::memory_order_release);
  SayGoodbye();
}

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
  if (state == RankSlot::kDied) {
    return is_local(rank) ? StrCat("(process ", peer.pid, ") died") : std::string(peer.reason);
  }
  if (!is_local(rank)) {
    if (!pulse_->IsSilent(rank)) return "";
    return StrCat("has not been heard of for ", pulse_->SilentFor(rank),
                  " s, like all of its node: it died, or cannot be reached");
  }
  return IsAlive(local_rank_of(rank)) ? "" : StrCat("(process ", peer.pid, ") died");
}

Status NodeGroup::Lost(int rank, const std::string& text) {
  if (intercom_ != nullptr) intercom_->PassOnLosses();
  SayGoodbye();
  return About(rank, Status(Code::kPeerLost, text));
}

Status NodeGroup::About(int rank, const Status& error) const {
  PeerFault peer;
  peer.rank = rank;
  const double silent_for = pulse_->SilentFor(rank);
  if (silent_for > 0) peer.silent_for = silent_for;
  peer.host = members_.host_of(rank);
  peer.last_call = LastCallOf(rank);
  const auto view = NodeView::Of(segment_.data(), segment_.bytes());
  if (view.ok()) peer.table = view.value().LastTable(this->rank());
  peer.checkpoint = Saved();
  return error.About(std::move(peer));
}

bool NodeGroup::IsCountedOut(int rank) const {
  if (!members_.survives_losses()) return false;
  const uint32_t state = slot(rank).state.load(std::memory_order_acquire);
  return state == RankSlot::kLeft || state == RankSlot::kDied;
}

int NodeGroup::FirstOfLostNode(int node) const {
  int first = -1;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (members_.node_of(rank) != node) continue;
    if (WhyGone(rank).empty()) return -1;
    if (first < 0) first = rank;
  }
  return first;
}

void NodeGroup::CountOut(int rank, const std::string& gone) {
  control_->some_lost.store(1);
  uint32_t expected = RankSlot::kHere;
  // Of all who notice, one says so. A rank that left has said so itself, and is counted out by
  // that.
  if (!slot(rank).state.compare_exchange_strong(expected, RankSlot::kDied)) return;
  LogWarning(StrCat(members_.NameRank(rank), " ", gone, "; the others go on without it"));
  LogLastCalls(rank);
}

std::vector<int> NodeGroup::LostRanks() {
  std::vector<int> lost;
  for (int i = 0; i < members_.size() && members_.survives_losses(); ++i) {
    // Who is counted out needs no look, and who closed has not been lost.
    const uint32_t state = slot(i).state.load(std::memory_order_acquire);
    if (state == RankSlot::kHere && i != rank()) {
      const std::string gone = WhyGone(i);
      if (!gone.empty()) CountOut(i, gone);
    }
    if (IsCountedOut(i)) lost.push_back(i);
  }
  return lost;
}

int NodeGroup::MasterNow() {
  const std::vector<int> lost = LostRanks();
  std::vector<int> there;
  for (int i = 0; i < members_.size(); ++i) {
    if (!std::binary_search(lost.begin(), lost.end(), i)) there.push_back(i);
  }
  return MasterOf(there);
}

int NodeGroup::MasterOf(const std::vector<int>& ranks) const {
  const auto first =
      std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return members_.is_worker(rank); });
  return first == ranks.end() ? members_.master_rank() : *first;
}

std::string NodeGroup::LastCallOf(int rank) const {
  const auto view = NodeView::Of(segment_.data(), segment_.bytes());
  return view.ok() && is_local(rank) ? view.value().LastCall(rank) : "";
}

std::string NodeGroup::Facts(int rank) const {
  std::string text = StrCat("on ", members_.host_of(rank));
  const std::string last = LastCallOf(rank);
  if (!last.empty()) text += StrCat("; its last call: ", last);
  const double silent_for = pulse_->SilentFor(rank);
  if (silent_for > 0) text += StrCat("; last heard of ", silent_for, " s ago");
  const std::string saved = Saved();
  return saved.empty() ? text : StrCat(text, "; last checkpoint: ", saved);
}

std::string NodeGroup::Trace(int rank) const { return StrCat(" (", Facts(rank), ")"); }

void NodeGroup::LogLastCalls(int rank) const {
  if (!is_local(rank) || slot(rank).was_told.exchange(1) != 0) return;
  const auto view = NodeView::Of(segment_.data(), segment_.bytes());
  const std::string calls = view.ok() ? view.value().LastCalls(rank, kCallsTold) : "";
  if (!calls.empty()) LogWarning(StrCat("the last calls of rank ", rank, ":\n", calls));
}

void NodeGroup::Label(int64_t table, const std::string& name, int32_t dtype, int64_t rows,
                      int64_t columns) const {
  if (table >= FlightLog::kTables) return;
  TableLabel& label = control_->labels[table];
  label.is_set.store(0);
  CopyText(label.name, name);
  label.dtype = dtype;
  label.num_row = rows;
  label.num_col = columns;
  label.is_set.store(1, std::memory_order_release);
}

std::string NodeGroup::Saved() const {
  return control_->has_saved.load(std::memory_order_acquire) == 0 ? "" : control_->saved;
}

void NodeGroup::NoteSaved(const std::string& path) const {
  CopyText(control_->saved, path);
  control_->has_saved.store(1, std::memory_order_release);
}

void NodeGroup::NoteDeath(int rank, const std::string& how) {
  if (slot(rank).state.load(std::memory_order_acquire) != RankSlot::kAbsent) return;
  const uint64_t unknown[kCircles] = {};
  NoteGone(rank, RankSlot::kDied, how, unknown);
  intercom_->TellDeath(rank, how);
}

void NodeGroup::NoteGone(int rank, RankSlot::State state, const std::string& reason,
                         const uint64_t (&arrivals)[kCircles]) {
  RankSlot& peer = slot(rank);
  // All service threads of the node get the news, and one of them writes it down.
  uint32_t expected = RankSlot::kAbsent;
  if (!peer.state.compare_exchange_strong(expected, RankSlot::kWritingNews)) return;
  CopyText(peer.reason, reason);
  for (int i = 0; i < kCircles; ++i) RaiseTo(arrivals[i], &peer.circle[i].arrivals);
  control_->some_lost.store(1);
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
