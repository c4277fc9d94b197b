#include "group/control_channel.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/failpoint.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// How often a node checks whether its ranks have died.
constexpr auto kCheckInterval = std::chrono::milliseconds(200);
// How long a process that ends waits for its last messages. Their receivers are polling.
constexpr auto kSendTimeout = std::chrono::milliseconds(200);
// After a suspension, no message waits any more if none has arrived for this time.
constexpr auto kQuiet = std::chrono::milliseconds(20);
// A poll takes microseconds. If it takes this long after a loss, MPI waits for the lost rank.
constexpr auto kStuckAfter = std::chrono::seconds(1);

// Returns a sentence that names the lost ranks, or an empty text if no rank is lost.
std::string LostRankNames(const Membership& members, const PeerStatus& peers) {
  std::string names;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (rank == members.rank() || !peers.IsLost(rank)) continue;
    names += StrCat(names.empty() ? ". Lost: " : ", ", peers.EndOf(rank));
  }
  return names;
}

}  // namespace

ControlChannel::ControlChannel(std::unique_ptr<Messenger> messenger, const Membership* members,
                               const NodeMemory* memory, FailureDetector* failure_detector,
                               const PeerStatus* peers)
    : messenger_(std::move(messenger)),
      members_(members),
      memory_(memory),
      failure_detector_(failure_detector),
      peers_(peers),
      reported_(static_cast<size_t>(members->size()), false) {
  for (int node = 0; node < members->num_nodes(); ++node) {
    service_ranks_.push_back(members->service_ranks(node));
    speakers_.push_back(service_ranks_.back().front());
  }
}

bool ControlChannel::Poll() {
  const std::unique_lock<std::mutex> guard(polling_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  polling_since_.store(NanosecondsNow(), std::memory_order_relaxed);
  const Received received = ReceiveAndCheck();
  polling_since_.store(0, std::memory_order_relaxed);
  return received.any_but_heartbeats;
}

void ControlChannel::CatchUp() {
  // One poll of MPI may find only some of the messages that wait.
  Instant last = Clock::now();
  (void)PollUntil(last + kSendTimeout, Backoff(std::chrono::milliseconds(1)), [&] {
    const std::unique_lock<std::mutex> guard(polling_, std::try_to_lock);
    if (!guard.owns_lock()) return Status::Pending();
    const bool received_any = ReceiveAndCheck().any;
    const Instant now = Clock::now();
    if (received_any) last = now;
    return now >= last + kQuiet ? Status::Ok() : Status::Pending();
  });
}

ControlChannel::Received ControlChannel::ReceiveAndCheck() {
  Received received;
  messenger_->Advance();
  const Status status = failure_.is_set() ? failure_.Get() : failure_.Defer(ReceiveAll(&received));
  // A failure caused by a lost rank aborts nothing: the ranks that wait for that rank report it.
  if (!status.ok() && !status.pending() && !(MayMeanLoss(status) && peers_->AnyLost())) {
    memory_->RecordAbort(members_->rank(), status);
  } else {
    CheckNodePeers();
    SendHeartbeatIfDue();
  }
  return received;
}

void ControlChannel::WarnIfStuck() {
  const int64_t since = polling_since_.load(std::memory_order_relaxed);
  // The time while this rank was suspended does not count as waiting for MPI.
  const int64_t waiting_since = std::max(since, failure_detector_->running_since());
  const std::chrono::nanoseconds stuck(since == 0 ? 0 : NanosecondsNow() - waiting_since);
  if (stuck < std::min<std::chrono::nanoseconds>(kStuckAfter, failure_detector_->warns_after())) {
    return;
  }
  // Without a lost rank, the call may only be slow, for instance because MPI is connecting.
  const bool any_lost = peers_->AnyLost();
  if (!any_lost && stuck < failure_detector_->warns_after()) return;
  if (stuck_logged_.exchange(true)) return;
  LogWarning(StrCat(members_->NameRank(members_->rank()), " has been in a call of MPI for ",
                    TimeText(static_cast<double>(stuck.count()) * 1e-9),
                    " that should have returned at once: MPI may wait for a rank that was killed "
                    "while sending, and then the call lasts until this process ends",
                    any_lost ? LostRankNames(*members_, *peers_) : ""));
}

Status ControlChannel::ReceiveAll(Received* received) {
  for (;;) {
    std::string bytes;
    bool got = false;
    MV_RETURN_IF_NOT_OK(messenger_->Take(Messenger::kAnyRank, kControlTag,
                                         FrameBytes<ControlMessage>(), &bytes, &got));
    if (!got) return Status::Ok();
    ControlMessage message;
    const bool is_valid = ReadControlMessage(bytes, *members_, &message);
    if (!is_valid || !Handle(message)) {
      ReportInvalid("control", is_valid ? message.sender : -1);
      continue;
    }
    received->any = true;
    received->any_but_heartbeats |= message.kind != ControlMessage::kHeartbeat;
  }
}

bool ControlChannel::Handle(const ControlMessage& message) {
  // A rank that was suspended does not know yet that the others count it as lost.
  if (peers_->IsExcludedForSilence(message.sender)) return true;
  switch (message.kind) {
    case ControlMessage::kAborted: {
      if (message.code >= 0) return false;
      if (message.sequence > static_cast<uint64_t>(members_->size())) return false;
      const Status why(static_cast<Code>(message.code), message.text);
      if (message.rank >= 0 && message.sequence > 0) {
        peers_->RecordExclusion(message.rank, static_cast<int>(message.sequence) - 1);
      }
      memory_->RecordAbort(message.sender,
                           message.rank < 0 ? why : peers_->About(message.rank, why));
      return true;
    }
    case ControlMessage::kExit:
      if (message.code != RankSlot::kLeft && message.code != RankSlot::kDied) return false;
      if (message.sequence > static_cast<uint64_t>(members_->size())) return false;
      if (members_->is_local(message.rank)) return HandleOwnExclusion(message);
      peers_->RecordExit(message.rank, static_cast<RankSlot::State>(message.code), message.text,
                         message.sequences, static_cast<int>(message.sequence) - 1);
      return true;
    case ControlMessage::kLateQuestion:
      (void)messenger_->Post(message.sender, kAnswerTag,
                             AnswerQuestion(message, *members_, *memory_, *peers_));
      return true;
    case ControlMessage::kLeaving:
      memory_->control()->leaving.store(1);
      return true;
    case ControlMessage::kHeartbeat: {
      const int node = members_->node_of(message.sender);
      speakers_[static_cast<size_t>(node)] = message.sender;
      failure_detector_->RecordHeartbeat(node, message.code != 0);
      return true;
    }
    default:
      return false;
  }
}

bool ControlChannel::HandleOwnExclusion(const ControlMessage& message) {
  const int by = static_cast<int>(message.sequence) - 1;
  if (by < 0 || members_->is_local(by)) return false;
  // A node is silent as a whole, and only its service ranks receive this message.
  for (const int rank : members_->node_ranks()) peers_->RecordExclusion(rank, by);
  return true;
}

void ControlChannel::Send(const ControlMessage& event) {
  for (int node = 0; node < members_->num_nodes(); ++node) {
    if (node != members_->node()) SendToAllOf(node, event);
  }
}

void ControlChannel::SendAndWait(const ControlMessage& event) {
  Send(event);
  messenger_->AwaitPosted(Clock::now() + kSendTimeout);
}

void ControlChannel::SendToAllOf(int node, const ControlMessage& message) {
  for (const int rank : service_ranks_[static_cast<size_t>(node)]) {
    // A failure to send is ignored: a rank without the message still stops at its own deadline.
    (void)messenger_->Post(rank, kControlTag, MakeFrame(FrameKind::kControl, message));
  }
}

void ControlChannel::SendTo(int node, const ControlMessage& message) {
  (void)messenger_->Post(ServiceRankOf(node), kControlTag, MakeFrame(FrameKind::kControl, message));
}

void ControlChannel::SendDeath(int rank, const std::string& how) {
  const ControlMessage message = ExitMessage(rank, RankSlot::kDied, how, *members_, *memory_);
  for (int node = 0; node < members_->num_nodes(); ++node) {
    if (node != members_->node() && node != members_->node_of(rank)) SendTo(node, message);
  }
  messenger_->AwaitPosted(Clock::now() + kSendTimeout);
}

void ControlChannel::CheckNodePeers() {
  const Instant now = Clock::now();
  if (now < last_check_ + kCheckInterval) return;
  last_check_ = now;
  // Only one rank reports losses, so that few messages are sent.
  if (SpeaksForNode()) SendNewLosses();
}

void ControlChannel::SendLosses() {
  {
    const std::unique_lock<std::mutex> guard = LockWithin(kSendTimeout, &polling_);
    if (!guard.owns_lock()) return;
    SendNewLosses();
  }
  messenger_->AwaitPosted(Clock::now() + kSendTimeout);
}

void ControlChannel::SendNewLosses() {
  for (int node = 0; node < members_->num_nodes(); ++node) {
    const std::vector<int>& theirs = members_->ranks_of(node);
    // The ranks of a node are silent together. One was found so by this node only if it has
    // recorded a loss.
    const bool may_be_silent = peers_->HasRecordedLoss() || peers_->IsSilent(theirs.front());
    if (node == members_->node() || !may_be_silent) continue;
    for (const int rank : theirs) {
      if (!reported_[static_cast<size_t>(rank)]) SendIfSilent(rank);
    }
  }
  for (const int rank : members_->node_ranks()) {
    if (reported_[static_cast<size_t>(rank)] || rank == members_->rank()) continue;
    const std::atomic<uint32_t>& state = memory_->slot(rank).state;
    if (state.load(std::memory_order_acquire) != RankSlot::kAlive) continue;
    const std::string reason = peers_->ExitReason(rank);
    // A rank that left has informed all nodes itself.
    if (reason.empty() || state.load() != RankSlot::kAlive) continue;
    reported_[static_cast<size_t>(rank)] = true;
    Send(ExitMessage(rank, RankSlot::kDied, reason, *members_, *memory_));
  }
}

void ControlChannel::SendIfSilent(int rank) {
  const std::string reason = peers_->ExitReason(rank);
  if (reason.empty() || !peers_->WasFoundSilentHere(rank)) return;
  reported_[static_cast<size_t>(rank)] = true;
  Send(ExitMessage(rank, RankSlot::kDied, reason, *members_, *memory_));
  // Further messages would fill the memory in which MPI keeps what the suspended rank has not yet
  // received. Then no message would reach any rank of this machine.
  memory_->slot(rank).was_told.store(1);
}

void ControlChannel::SendHeartbeatIfDue() {
  const Instant now = Clock::now();
  if (has_closed_ || now < last_heartbeat_ + failure_detector_->interval()) return;
  last_heartbeat_ = now;
  // A node whose first rank is suspended is not silent.
  if (SpeaksForNode()) SendHeartbeat(/*is_last=*/false);
}

void ControlChannel::AnnounceClose() {
  (void)MV_FAILPOINT("channel.close");
  const std::unique_lock<std::mutex> guard = LockWithin(kSendTimeout, &polling_);
  if (!guard.owns_lock()) return;
  has_closed_ = true;
  const std::vector<int>& here = members_->node_ranks();
  const bool any_open = std::any_of(here.begin(), here.end(), [this](int rank) {
    return rank != members_->rank() && memory_->slot(rank).state.load() == RankSlot::kAlive;
  });
  // After an abort, no rank waits for those that are still open.
  if (!any_open || memory_->IsAborted()) SendHeartbeat(/*is_last=*/true);
}

void ControlChannel::SendHeartbeat(bool is_last) {
  ControlMessage message = MessageAbout(members_->rank(), ControlMessage::kHeartbeat, *members_);
  message.code = is_last ? 1 : 0;
  if (is_last) return Send(message);
  for (int node = 0; node < members_->num_nodes(); ++node) {
    if (node == members_->node()) continue;
    if (failure_detector_->MissesHeartbeat(node)) {
      SendToAllOf(node, message);
    } else {
      (void)messenger_->Post(speakers_[static_cast<size_t>(node)], kControlTag,
                             MakeFrame(FrameKind::kControl, message));
    }
  }
}

bool ControlChannel::SpeaksForNode() const {
  for (const int rank : service_ranks_[static_cast<size_t>(members_->node())]) {
    if (rank == members_->rank()) return true;
    if (!peers_->IsLost(rank) && !failure_detector_->HasMissedHeartbeats(rank)) return false;
  }
  return false;
}

int ControlChannel::ServiceRankOf(int node) const {
  const std::vector<int>& ranks = service_ranks_[static_cast<size_t>(node)];
  for (const int rank : ranks) {
    if (!peers_->IsLost(rank)) return rank;
  }
  return ranks.front();
}

void ControlChannel::ReportInvalid(const char* expected, int from) {
  if (invalid_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  LogWarning(StrCat("rank ", members_->rank(), " dropped an invalid ", expected, " message from ",
                    from < 0 ? std::string("another rank") : StrCat("rank ", from),
                    "; further ones are not logged"));
}

}  // namespace multiverso
