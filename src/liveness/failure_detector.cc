#include "liveness/failure_detector.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// A heartbeat is sent ten times per peer_timeout, within these bounds.
constexpr std::chrono::nanoseconds kMaxInterval = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kMinInterval = std::chrono::milliseconds(5);
// A rank whose own last heartbeat is older than this many intervals was suspended, or had no CPU.
constexpr int kMissedHeartbeats = 3;

}  // namespace

FailureDetector::FailureDetector(NodeControl* control, const Membership* members)
    : control_(control),
      members_(members),
      listeners_(members->service_ranks(members->node())),
      timeout_(std::max<std::chrono::nanoseconds>(members->peer_timeout(), 10 * kMinInterval)),
      interval_(std::min(kMaxInterval, timeout_ / 10)) {}

void FailureDetector::Beat() {
  const int64_t now = NanosecondsNow();
  const int64_t last = last_heartbeat(members_->rank()).load(std::memory_order_relaxed);
  if (now - last > kMissedHeartbeats * interval_.count()) running_since_.store(now);
  last_heartbeat(members_->rank()).store(now, std::memory_order_release);
  control_->slots()[members_->rank()].silence_logged.store(0, std::memory_order_relaxed);
}

bool FailureDetector::HasMissedHeartbeats() const {
  const int64_t mine = last_heartbeat(members_->rank()).load(std::memory_order_acquire);
  return mine != 0 && NanosecondsNow() - mine > kMissedHeartbeats * interval_.count();
}

void FailureDetector::RecordHeartbeat(int node, bool is_last) {
  const int64_t now = is_last ? 0 : NanosecondsNow();
  for (int rank = 0; rank < members_->size(); ++rank) {
    if (members_->node_of(rank) != node) continue;
    last_heartbeat(rank).store(now, std::memory_order_release);
    control_->slots()[rank].silence_logged.store(0, std::memory_order_relaxed);
  }
}

double FailureDetector::SilentFor(int rank) const {
  const int64_t theirs = last_heartbeat(rank).load(std::memory_order_acquire);
  const int64_t mine = last_heartbeat(members_->rank()).load(std::memory_order_acquire);
  const int64_t now = NanosecondsNow();
  if (theirs == 0 || rank == members_->rank()) return 0;
  // The others send no heartbeats to a rank that they have excluded.
  if (control_->slots()[members_->rank()].excluded_by.load() != 0) return 0;
  if (now - mine > kMissedHeartbeats * interval_.count()) return 0;
  if (!members_->is_local(rank) && !HearsOtherNodes(now)) return 0;
  return std::max(0.0, static_cast<double>(now - std::max(theirs, running_since_.load())) * 1e-9);
}

bool FailureDetector::HearsOtherNodes(int64_t now) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](int rank) {
    const int64_t last = last_heartbeat(rank).load(std::memory_order_acquire);
    return now - last <= kMissedHeartbeats * interval_.count();
  });
}

bool FailureDetector::HasMissedHeartbeats(int rank) const {
  return SilentFor(rank) > std::chrono::duration<double>(kMissedHeartbeats * interval_).count();
}

bool FailureDetector::IsSilent(int rank) const {
  return SilentFor(rank) > std::chrono::duration<double>(timeout_).count();
}

void FailureDetector::WarnOfSilentRanks() const {
  for (int rank = 0; rank < members_->size(); ++rank) {
    RankSlot& slot = control_->slots()[rank];
    const double silent = SilentFor(rank);
    const bool is_alive = slot.state.load() == RankSlot::kAlive || slot.pid == 0;
    const bool is_late = silent >= std::chrono::duration<double>(warns_after()).count();
    if (!is_alive || !is_late) continue;
    if (slot.silence_logged.exchange(1) != 0) continue;
    LogWarning(StrCat(members_->NameRank(rank), " has sent no heartbeat for ", TimeText(silent),
                      ": it may be suspended, or its machine is out of reach"));
  }
}

}  // namespace multiverso
