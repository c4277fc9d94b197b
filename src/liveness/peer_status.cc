#include "liveness/peer_status.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait_lines.h"
#include "node/node_snapshot.h"

namespace multiverso {
namespace {

constexpr int kLoggedCalls = 8;
// How long a killed process may still exist. It makes no step after its few last microseconds, but
// the kernel may need time to free its memory, or may have frozen the process.
constexpr std::chrono::nanoseconds kLongestEnd = std::chrono::seconds(1);

Result<NodeSnapshot> SnapshotOf(const NodeMemory& memory) {
  return NodeSnapshot::Of(memory.segment().data(), memory.segment().bytes());
}

}  // namespace

PeerStatus::PeerStatus(const NodeMemory* memory, const Membership* members,
                       const FailureDetector* failure_detector)
    : memory_(memory), members_(members), failure_detector_(failure_detector) {}

bool PeerStatus::IsAlive(int local_rank) const {
  if (local_rank < 0 || local_rank >= members_->num_ranks_here()) return false;
  const int rank = members_->rank_of(local_rank);
  const RankSlot& peer = memory_->slot(rank);
  // A rank that has not joined yet has no presence mark. A rank that is a thread of this process
  // lives as long as the process.
  const int fd = memory_->segment().fd();
  if (peer.state.load(std::memory_order_acquire) == RankSlot::kAbsent || fd < 0 ||
      local_rank == members_->local_rank()) {
    return true;
  }
  const bool is_thread = peer.pid == ProcessId();
  if (!is_thread && (!IsPresent(fd, local_rank) || processes_.HasEnded(local_rank, peer.process))) {
    return false;
  }
  if (members_->survives_losses() && IsSilent(rank)) Fence(rank);
  const int64_t ended_at = peer.ended_at.load(std::memory_order_acquire);
  return ended_at == 0 || NanosecondsNow() < ended_at + kLongestEnd.count();
}

Status PeerStatus::CheckWait(int local_rank) const {
  const int rank = members_->rank_of(local_rank);
  if (rank == members_->rank() || !IsExcludedForSilence(rank)) return Status::Ok();
  // A process that has been told to end still exists for a moment.
  const bool can_be_ended =
      members_->survives_losses() &&
      memory_->slot(rank).state.load(std::memory_order_acquire) != RankSlot::kDied;
  if (can_be_ended || !IsAlive(local_rank)) return Status::Ok();
  return About(rank, Status(Code::kTimeout, StrCat(members_->NameRank(rank), " ", EndHere(rank))));
}

void PeerStatus::Fence(int rank) const {
  RankSlot& peer = memory_->slot(rank);
  // A rank that has ended its session sends no heartbeats.
  if (peer.state.load(std::memory_order_acquire) != RankSlot::kAlive) return;
  int32_t nobody = 0;
  if (peer.excluded_by.compare_exchange_strong(nobody, members_->rank() + 1)) {
    LogWarning(
        StrCat(members_->NameRank(rank), " ", EndHere(rank), ", and ends its process if it can"));
  } else if (peer.ended_at.load() != 0) {
    return;
  }
  // If the first rank to come here has died, or cannot end the process, another may.
  if (processes_.End(members_->local_rank_of(rank), peer.process)) {
    int64_t never = 0;
    (void)peer.ended_at.compare_exchange_strong(never, NanosecondsNow());
  } else {
    Exclude(rank, EndHere(rank));
  }
}

std::string PeerStatus::EndHere(int rank) const {
  const RankSlot& peer = memory_->slot(rank);
  const int by = ExcludedBy(rank);
  if (by < 0) return StrCat("(process ", peer.pid, ") died");
  const double limit = std::chrono::duration<double>(members_->peer_timeout()).count();
  return StrCat("(process ", peer.pid, ") sent no heartbeat for more than ", limit, " s, so rank ",
                by, " excluded it");
}

std::string PeerStatus::ExitReason(int rank) const {
  const RankSlot& peer = memory_->slot(rank);
  const uint32_t state = peer.state.load(std::memory_order_acquire);
  if (state == RankSlot::kLeft) return StrCat("left (", peer.reason, ")");
  if (state == RankSlot::kClosed && members_->is_elastic()) return "has shut down";
  if (state == RankSlot::kDied) {
    return members_->is_local(rank) ? EndHere(rank) : std::string(peer.reason);
  }
  if (!members_->is_local(rank)) {
    if (!IsSilent(rank)) return "";
    const std::string reason =
        StrCat("has sent no heartbeat for ", TimeText(SilentFor(rank)),
               ", nor has any rank of its node: it died, or cannot be reached");
    const uint64_t unknown[kGroups] = {};
    RecordExit(rank, RankSlot::kDied, reason, unknown, members_->rank());
    return reason;
  }
  // IsAlive may exclude the rank. In a session that does not survive losses, SessionState does.
  if (IsAlive(members_->local_rank_of(rank)) && peer.state.load() != RankSlot::kDied &&
      (members_->survives_losses() || !IsExcludedForSilence(rank))) {
    return "";
  }
  memory_->control()->NoteLoss(rank);
  return EndHere(rank);
}

std::string PeerStatus::EndOf(int rank) const {
  const std::string reason = ExitReason(rank);
  return StrCat(members_->NameRank(rank), " ", reason.empty() ? "was lost" : reason);
}

Status PeerStatus::LossOf(int rank, const std::string& consequence) const {
  return About(rank, Status(Code::kPeerLost, EndOf(rank) + consequence));
}

bool PeerStatus::AnyLost() const {
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (rank != members_->rank() && IsLost(rank)) return true;
  }
  return false;
}

bool PeerStatus::AnyDied() const {
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (rank == members_->rank()) continue;
    const bool is_local = members_->is_local(rank);
    const bool is_gone = is_local ? !IsAlive(members_->local_rank_of(rank)) : IsSilent(rank);
    // This comes last, because a rank changes its state when it closes its session, and may be gone
    // a moment later.
    const uint32_t state = memory_->slot(rank).state.load(std::memory_order_acquire);
    const uint32_t state_before = is_local ? RankSlot::kAlive : RankSlot::kAbsent;
    if (state == RankSlot::kDied || (is_gone && state == state_before)) return true;
  }
  return false;
}

bool PeerStatus::AnyExcludedForSilence() const {
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (IsExcludedForSilence(rank)) return true;
  }
  return false;
}

bool PeerStatus::IsExcluded(int rank) const {
  if (!members_->survives_losses()) return false;
  const uint32_t state = memory_->slot(rank).state.load(std::memory_order_acquire);
  return state == RankSlot::kLeft || (state == RankSlot::kDied && rank != members_->rank()) ||
         (state == RankSlot::kClosed && members_->is_elastic());
}

void PeerStatus::Exclude(int rank, const std::string& reason) const {
  memory_->control()->some_lost.store(1);
  uint32_t expected = RankSlot::kAlive;
  // Only the first rank to notice the loss logs it. A rank that left is already excluded.
  if (!memory_->slot(rank).state.compare_exchange_strong(expected, RankSlot::kDied)) return;
  LogWarning(StrCat(members_->NameRank(rank), " ", reason, "; the others continue without it"));
  LogLastCalls(rank);
}

void PeerStatus::ExcludeIfLost(int rank) const {
  const std::string reason = ExitReason(rank);
  if (!reason.empty()) Exclude(rank, reason);
}

std::vector<int> PeerStatus::EndedRanks() const {
  std::vector<int> ended;
  for (int rank = 0; rank < members_->size() && members_->survives_losses(); ++rank) {
    // Only ranks that take part need a check.
    const uint32_t state = memory_->slot(rank).state.load(std::memory_order_acquire);
    if (state == RankSlot::kAlive && rank != members_->rank()) ExcludeIfLost(rank);
    if (IsExcluded(rank)) ended.push_back(rank);
  }
  return ended;
}

std::vector<int> PeerStatus::LostRanks() const {
  std::vector<int> lost = EndedRanks();
  const auto has_closed = [&](int rank) {
    return memory_->slot(rank).state.load(std::memory_order_acquire) == RankSlot::kClosed;
  };
  lost.erase(std::remove_if(lost.begin(), lost.end(), has_closed), lost.end());
  return lost;
}

int PeerStatus::CurrentMaster() const {
  // A worker that has shut down stays the master, so that only one worker finds that it is, even if
  // others ask after the master's program has ended.
  const std::vector<int> lost = LostRanks();
  std::vector<int> remaining;
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (!std::binary_search(lost.begin(), lost.end(), rank)) remaining.push_back(rank);
  }
  return MasterOf(remaining);
}

int PeerStatus::MasterOf(const std::vector<int>& ranks) const {
  const auto first =
      std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return members_->is_worker(rank); });
  return first == ranks.end() ? members_->master_rank() : *first;
}

void PeerStatus::RecordExclusion(int rank, int by) const {
  int32_t nobody = 0;
  (void)memory_->slot(rank).excluded_by.compare_exchange_strong(nobody, by + 1);
}

void PeerStatus::RecordExit(int rank, RankSlot::State state, const std::string& reason,
                            const uint64_t (&sequences)[kGroups], int excluded_by) const {
  RankSlot& peer = memory_->slot(rank);
  // Several threads of the node may receive the report; the first one records it.
  uint32_t expected = RankSlot::kAbsent;
  if (!peer.state.compare_exchange_strong(expected, RankSlot::kUpdating)) return;
  CopyText(peer.reason, reason);
  peer.excluded_by.store(excluded_by + 1);
  for (int i = 0; i < kGroups; ++i) peer.groups[i].RaiseSequence(sequences[i]);
  memory_->control()->some_lost.store(1);
  peer.state.store(state, std::memory_order_release);
}

void PeerStatus::RecordWaiting(int rank, int group, CollectiveKind kind,
                               const uint64_t (&sequences)[kGroups]) const {
  RankSlot& peer = memory_->slot(rank);
  // Whoever finds that it waits also finds that it is not late in any collective before.
  for (int i = 0; i < kGroups; ++i) peer.groups[i].RaiseSequence(sequences[i]);
  peer.groups[group].RaiseAwaited(sequences[group], kind);
}

const char* PeerStatus::CollectiveAwaitedBy(int rank) const {
  for (const int i : {kWorldGroup, kWorkerGroup}) {
    if (i == kWorkerGroup && !members_->is_worker()) continue;
    const RankSlot::GroupProgress& theirs = memory_->slot(rank).groups[i];
    const bool is_here = members_->is_local(rank);
    const uint64_t number =
        is_here ? theirs.sequence.load(std::memory_order_acquire) : theirs.awaited_number();
    const uint64_t mine = memory_->own_slot().groups[i].sequence.load(std::memory_order_relaxed);
    if (number <= mine || !TakesPartNow(mine)) continue;
    return NameOf(is_here ? theirs.SlotFor(number).kind() : theirs.awaited_kind());
  }
  return nullptr;
}

bool PeerStatus::TakesPartNow(uint64_t sequence) const {
  if (!members_->is_elastic()) return true;
  const auto& calls = memory_->control()->calls;
  const auto joined = static_cast<uint32_t>(calls.latest.load(std::memory_order_acquire));
  const auto over = static_cast<uint32_t>(calls.over.load(std::memory_order_acquire));
  return static_cast<uint32_t>(members_->rank()) < joined &&
         static_cast<int32_t>(static_cast<uint32_t>(sequence) - over) <= 0;
}

Status PeerStatus::About(int rank, const Status& error) const {
  PeerFault peer;
  peer.rank = rank;
  const double silent_for = SilentFor(rank);
  if (silent_for > 0) peer.silent_for = silent_for;
  peer.host = members_->host_of(rank);
  peer.last_call = LastCallOf(rank);
  const auto snapshot = SnapshotOf(*memory_);
  if (snapshot.ok()) peer.table = snapshot.value().LastTable(members_->rank());
  peer.checkpoint = LastCheckpoint();
  return error.About(std::move(peer));
}

std::string PeerStatus::Facts(int rank, const std::string& last_call) const {
  std::string text = StrCat("on ", members_->host_of(rank));
  const std::string last = members_->is_local(rank) ? LastCallOf(rank) : last_call;
  if (!last.empty()) text += StrCat("; its last call: ", last);
  const double silent_for = SilentFor(rank);
  if (silent_for > 0) text += StrCat("; last heard of ", TimeText(silent_for), " ago");
  const std::string checkpoint = LastCheckpoint();
  return checkpoint.empty() ? text : StrCat(text, "; last checkpoint: ", checkpoint);
}

std::string PeerStatus::Trace(int rank, const std::string& last_call) const {
  return StrCat(" (", Facts(rank, last_call), ")");
}

bool PeerStatus::TakeLineAbout(int rank) const {
  // A wait asks again after kEvery, a little less than which has then passed since its last line.
  constexpr std::chrono::nanoseconds kApart = WaitLines::kEvery - std::chrono::seconds(1);
  std::atomic<int64_t>& logged = memory_->slot(rank).lateness_logged;
  int64_t last = logged.load(std::memory_order_relaxed);
  const int64_t now = NanosecondsNow();
  if (last != 0 && now - last < kApart.count()) return false;
  return logged.compare_exchange_strong(last, now);
}

void PeerStatus::LogLastCalls(int rank) const {
  if (!members_->is_local(rank) || memory_->slot(rank).calls_logged.exchange(1) != 0) return;
  const auto snapshot = SnapshotOf(*memory_);
  const std::string calls = snapshot.ok() ? snapshot.value().LastCalls(rank, kLoggedCalls) : "";
  if (!calls.empty()) LogWarning(StrCat("the last calls of rank ", rank, ":\n", calls));
}

std::string PeerStatus::LastCallOf(int rank) const {
  const auto snapshot = SnapshotOf(*memory_);
  return snapshot.ok() && members_->is_local(rank) ? snapshot.value().LastCall(rank) : "";
}

std::string PeerStatus::LastCheckpoint() const {
  const NodeControl& control = *memory_->control();
  const uint32_t number = control.num_checkpoints.load(std::memory_order_acquire);
  return number == 0 ? "" : control.checkpoints[number % 2];
}

}  // namespace multiverso
