#include "liveness/peer_status.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "memory/presence.h"
#include "node/node_snapshot.h"

namespace multiverso {
namespace {

// Of a lost rank's last calls, how many are logged.
constexpr int kCallsTold = 8;

void RaiseTo(uint64_t number, std::atomic<uint64_t>* known) {
  uint64_t before = known->load(std::memory_order_relaxed);
  while (before < number &&
         !known->compare_exchange_weak(before, number, std::memory_order_release)) {
  }
}

}  // namespace

PeerStatus::PeerStatus(const Segment* control, const Membership* members,
                       const FailureDetector* failure_detector)
    : segment_(control),
      members_(members),
      failure_detector_(failure_detector),
      control_(reinterpret_cast<NodeControl*>(control->data())) {}

bool PeerStatus::IsAlive(int local_rank) const {
  const std::vector<int>& here = members_->node_ranks();
  if (local_rank < 0 || local_rank >= static_cast<int>(here.size())) return false;
  const RankSlot& peer = slot(here[static_cast<size_t>(local_rank)]);
  // A rank that has not joined yet has no mark; one that is a thread of this process lives as long
  // as the process.
  if (peer.state.load(std::memory_order_acquire) == RankSlot::kAbsent) return true;
  if (segment_->fd() < 0 || local_rank == members_->local_rank() || peer.pid == ProcessId())
    return true;
  return IsPresent(segment_->fd(), local_rank);
}

std::string PeerStatus::ExitReason(int rank) const {
  const RankSlot& peer = slot(rank);
  const uint32_t state = peer.state.load(std::memory_order_acquire);
  if (state == RankSlot::kLeft) return StrCat("left (", peer.reason, ")");
  if (state == RankSlot::kDied) {
    return members_->is_local(rank) ? StrCat("(process ", peer.pid, ") died")
                                    : std::string(peer.reason);
  }
  if (!members_->is_local(rank)) {
    if (!failure_detector_->IsSilent(rank)) return "";
    return StrCat("has not been heard of for ", failure_detector_->SilentFor(rank),
                  " s, like all of its node: it died, or cannot be reached");
  }
  return IsAlive(members_->local_rank_of(rank)) ? "" : StrCat("(process ", peer.pid, ") died");
}

int PeerStatus::FirstRankOfLostNode(int node) const {
  int first = -1;
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (members_->node_of(rank) != node) continue;
    if (ExitReason(rank).empty()) return -1;
    if (first < 0) first = rank;
  }
  return first;
}

bool PeerStatus::IsExcluded(int rank) const {
  if (!members_->survives_losses()) return false;
  const uint32_t state = slot(rank).state.load(std::memory_order_acquire);
  return state == RankSlot::kLeft || state == RankSlot::kDied;
}

void PeerStatus::Exclude(int rank, const std::string& gone) const {
  control_->some_lost.store(1);
  uint32_t expected = RankSlot::kHere;
  // Of all who notice, one says so. A rank that left has said so itself, and is counted out by
  // that.
  if (!slot(rank).state.compare_exchange_strong(expected, RankSlot::kDied)) return;
  LogWarning(StrCat(members_->NameRank(rank), " ", gone, "; the others go on without it"));
  LogLastCalls(rank);
}

std::vector<int> PeerStatus::LostRanks() const {
  std::vector<int> lost;
  for (int i = 0; i < members_->size() && members_->survives_losses(); ++i) {
    // Who is counted out needs no look, and who closed has not been lost.
    const uint32_t state = slot(i).state.load(std::memory_order_acquire);
    if (state == RankSlot::kHere && i != members_->rank()) {
      const std::string gone = ExitReason(i);
      if (!gone.empty()) Exclude(i, gone);
    }
    if (IsExcluded(i)) lost.push_back(i);
  }
  return lost;
}

int PeerStatus::CurrentMaster() const {
  const std::vector<int> lost = LostRanks();
  std::vector<int> there;
  for (int i = 0; i < members_->size(); ++i) {
    if (!std::binary_search(lost.begin(), lost.end(), i)) there.push_back(i);
  }
  return MasterOf(there);
}

int PeerStatus::MasterOf(const std::vector<int>& ranks) const {
  const auto first =
      std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return members_->is_worker(rank); });
  return first == ranks.end() ? members_->master_rank() : *first;
}

void PeerStatus::RecordExit(int rank, RankSlot::State state, const std::string& reason,
                            const uint64_t (&arrivals)[kGroups]) const {
  RankSlot& peer = slot(rank);
  // All service threads of the node get the news, and one of them writes it down.
  uint32_t expected = RankSlot::kAbsent;
  if (!peer.state.compare_exchange_strong(expected, RankSlot::kWritingNews)) return;
  CopyText(peer.reason, reason);
  for (int i = 0; i < kGroups; ++i) RaiseTo(arrivals[i], &peer.circle[i].arrivals);
  control_->some_lost.store(1);
  peer.state.store(state, std::memory_order_release);
}

void PeerStatus::RecordWaiting(int rank, int circle, CollectiveKind kind,
                               const uint64_t (&arrivals)[kGroups]) const {
  RankSlot& peer = slot(rank);
  // It had been at these before it went there.
  for (int i = 0; i < kGroups; ++i) {
    if (i != circle) RaiseTo(arrivals[i], &peer.circle[i].arrivals);
  }
  const uint64_t number = arrivals[circle];
  if (peer.circle[circle].arrivals.load(std::memory_order_relaxed) >= number) return;
  peer.circle[circle].SlotFor(number).WriteKind(kind);
  RaiseTo(number, &peer.circle[circle].arrivals);
}

Status PeerStatus::About(int rank, const Status& error) const {
  PeerFault peer;
  peer.rank = rank;
  const double silent_for = failure_detector_->SilentFor(rank);
  if (silent_for > 0) peer.silent_for = silent_for;
  peer.host = members_->host_of(rank);
  peer.last_call = LastCallOf(rank);
  const auto view = NodeSnapshot::Of(segment_->data(), segment_->bytes());
  if (view.ok()) peer.table = view.value().LastTable(members_->rank());
  peer.checkpoint = Saved();
  return error.About(std::move(peer));
}

std::string PeerStatus::Facts(int rank) const {
  std::string text = StrCat("on ", members_->host_of(rank));
  const std::string last = LastCallOf(rank);
  if (!last.empty()) text += StrCat("; its last call: ", last);
  const double silent_for = failure_detector_->SilentFor(rank);
  if (silent_for > 0) text += StrCat("; last heard of ", silent_for, " s ago");
  const std::string saved = Saved();
  return saved.empty() ? text : StrCat(text, "; last checkpoint: ", saved);
}

std::string PeerStatus::Trace(int rank) const { return StrCat(" (", Facts(rank), ")"); }

void PeerStatus::LogLastCalls(int rank) const {
  if (!members_->is_local(rank) || slot(rank).was_told.exchange(1) != 0) return;
  const auto view = NodeSnapshot::Of(segment_->data(), segment_->bytes());
  const std::string calls = view.ok() ? view.value().LastCalls(rank, kCallsTold) : "";
  if (!calls.empty()) LogWarning(StrCat("the last calls of rank ", rank, ":\n", calls));
}

std::string PeerStatus::LastCallOf(int rank) const {
  const auto view = NodeSnapshot::Of(segment_->data(), segment_->bytes());
  return view.ok() && members_->is_local(rank) ? view.value().LastCall(rank) : "";
}

std::string PeerStatus::Saved() const {
  return control_->has_saved.load(std::memory_order_acquire) == 0 ? "" : control_->saved;
}

}  // namespace multiverso
