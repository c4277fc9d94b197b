#include "group/session_state.h"

#include "base/log.h"
#include "base/text.h"

namespace multiverso {

void SessionState::Abort(const Status& why) {
  abort_is_known_.store(true, std::memory_order_relaxed);
  AbortInBackground(why);
  AnnounceClose();
}

void SessionState::GiveUp(const Status& why) {
  // The others continue without a rank that has left, or report that it has.
  if (memory_->own_slot().state.load(std::memory_order_relaxed) == RankSlot::kLeft) return;
  if (members_->is_elastic()) return Leave(why.text());
  Abort(why);
}

void SessionState::AbortInBackground(const Status& why) {
  if (channel_ != nullptr) channel_->SendAndWait(AbortMessage(why, /*excludes=*/false, *members_));
  memory_->RecordAbort(members_->rank(), why);
}

Status SessionState::CheckNotExcluded() const {
  if (members_->is_elastic() &&
      memory_->own_slot().state.load(std::memory_order_relaxed) == RankSlot::kLeft) {
    return Status(Code::kState, StrCat("rank ", members_->rank(), " has left the session (",
                                       memory_->own_slot().reason, ")"));
  }
  // A message from another node may wait that says so.
  if (channel_ != nullptr && peers_->HasMissedHeartbeats()) channel_->CatchUp();
  const int by = peers_->ExcludedBy(members_->rank());
  if (by < 0) return Status::Ok();
  return Status(Code::kState,
                StrCat("rank ", by, " has excluded rank ", members_->rank(),
                       ", which sent no heartbeat for more than ",
                       std::chrono::duration<double>(members_->peer_timeout()).count(),
                       " s: it cannot take part any more"));
}

Status SessionState::CheckRunning(bool was_waiting) {
  const Status excluded = CheckNotExcluded();
  if (excluded.ok() && !IsAborted()) return Status::Ok();
  AnnounceClose();
  MV_RETURN_IF_NOT_OK(excluded);
  abort_is_known_.store(true, std::memory_order_relaxed);
  const NodeControl& control = *memory_->control();
  const auto code = static_cast<Code>(control.abort_code);
  const bool is_silence =
      control.abort_about >= 0 && peers_->IsExcludedForSilence(control.abort_about);
  if (code == Code::kMismatch || (code == Code::kTimeout && (was_waiting || is_silence))) {
    const Status original(code, control.abort_reason);
    return control.abort_about < 0 ? original : peers_->About(control.abort_about, original);
  }
  const int by = control.aborted_by;
  return peers_->About(
      by, Status(Code::kAborted, StrCat("rank ", by, " aborted the session: ", control.abort_reason,
                                        " (rank ", by, " ", peers_->Facts(by), ")")));
}

Status SessionState::ReportLost(int rank, const std::string& text) {
  // The rank may have aborted the session and ended since the caller looked.
  MV_RETURN_IF_NOT_OK(CheckRunning(/*was_waiting=*/true));
  if (channel_ != nullptr) channel_->SendLosses();
  if (connections_ != nullptr) connections_->AnnounceLoss(rank);
  return peers_->About(rank, Status(Code::kPeerLost, text));
}

Status SessionState::AbortForSilentRank(int rank, const std::string& waiting_in) {
  const Status timeout =
      SilenceOf(rank, StrCat(" while rank ", members_->rank(), " waited for it in ", waiting_in));
  abort_is_known_.store(true, std::memory_order_relaxed);
  AbortAndExclude(rank, timeout);
  AnnounceClose();
  return timeout;
}

void SessionState::AbortIfAnyIsSilent() {
  for (const int rank : members_->node_ranks()) {
    if (!peers_->EndsSession(rank) || peers_->IsLost(rank)) continue;
    AbortAndExclude(rank, SilenceOf(rank, ""));
  }
}

Status SessionState::SilenceOf(int rank, const std::string& meanwhile) const {
  return peers_->About(
      rank, Status(Code::kTimeout,
                   StrCat(members_->NameRank(rank), " (process ", memory_->slot(rank).pid,
                          ") has sent no heartbeat for ", TimeText(peers_->SilentFor(rank)),
                          meanwhile, peers_->Trace(rank))));
}

void SessionState::AbortAndExclude(int silent_rank, const Status& timeout) {
  if (channel_ != nullptr) {
    channel_->SendAndWait(AbortMessage(timeout, /*excludes=*/true, *members_));
  }
  // Every rank that learns of the abort also knows of the loss when it ends. In the moment between
  // these lines, others report the loss in place of the timeout.
  peers_->RecordExclusion(silent_rank, members_->rank());
  memory_->RecordAbort(members_->rank(), timeout);
}

void SessionState::RecordDeath(int rank, const std::string& how, int known_loss) {
  if (memory_->slot(rank).state.load(std::memory_order_acquire) != RankSlot::kAbsent) return;
  std::string reason = how;
  if (known_loss >= 0 && known_loss < members_->size() && known_loss != rank) {
    reason += StrCat(", after ", peers_->EndOf(known_loss));
  }
  const uint64_t unknown[kGroups] = {};
  peers_->RecordExit(rank, RankSlot::kDied, reason, unknown);
  channel_->SendDeath(rank, reason);
}

void SessionState::AnnounceLeaving() {
  if (memory_->control()->leaving.exchange(1) != 0 || channel_ == nullptr) return;
  channel_->Send(MessageAbout(members_->rank(), ControlMessage::kLeaving, *members_));
}

void SessionState::Leave(const std::string& reason) {
  RankSlot& mine = memory_->own_slot();
  if (mine.state.load(std::memory_order_relaxed) != RankSlot::kAlive) return;
  if (is_leaving_.exchange(true)) return;  // another thread is leaving already
  memory_->control()->some_lost.store(1);
  CopyText(mine.reason, reason);
  memory_->control()->NoteLoss(members_->rank());
  // In an elastic session, ranks may leave at any time.
  if (members_->survives_losses() && !members_->is_elastic() && members_->num_ranks_here() > 1) {
    LogWarning(StrCat(members_->NameRank(members_->rank()), " left (", mine.reason,
                      "); the others continue without it"));
  }
  mine.state.store(RankSlot::kLeft, std::memory_order_seq_cst);
  if (channel_ == nullptr) return;
  channel_->Send(ExitMessage(members_->rank(), RankSlot::kLeft, reason, *members_, *memory_));
  channel_->AnnounceClose();
  // The wait is short, since the receivers are polling. If they have ended too, nothing is lost.
  channel_->messenger()->Drain(Clock::now() + std::chrono::milliseconds(200));
  AnnounceClose();
}

void SessionState::Close() {
  if (members_->is_elastic()) memory_->control()->some_lost.store(1);
  // When two ranks of a node end at the same time, at least one of them sees that both have ended.
  memory_->own_slot().state.store(RankSlot::kClosed, std::memory_order_seq_cst);
  if (channel_ != nullptr) channel_->AnnounceClose();
  AnnounceClose();
}

}  // namespace multiverso
