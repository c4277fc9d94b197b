#include "liveness/failure_detector.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// A heartbeat is sent once a second, but at least ten times per peer_timeout, of which it takes no
// less than this.
constexpr std::chrono::nanoseconds kUsualInterval = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kMinInterval = std::chrono::milliseconds(5);
// Each node sends one to each other node. So many nodes send them more rarely: 500 messages per
// second take less than one percent of a core.
constexpr std::chrono::nanoseconds kIntervalPerNode = std::chrono::milliseconds(2);
// A rank whose own last heartbeat is older than this many intervals was suspended, or had no CPU.
constexpr int kMissedHeartbeats = 3;

}  // namespace

FailureDetector::FailureDetector(NodeControl* control, const Membership* members)
    : control_(control),
      members_(members),
      listeners_(members->service_ranks(members->node())),
      timeout_(std::max<std::chrono::nanoseconds>(members->peer_timeout(), 10 * kMinInterval)),
      interval_(std::min(std::max(kUsualInterval, members->num_nodes() * kIntervalPerNode),
                         timeout_ / 10)) {}

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
  RankSlot& slot = control_->slots()[members_->ranks_of(node).front()];
  slot.last_heartbeat.store(is_last ? 0 : NanosecondsNow(), std::memory_order_release);
  slot.silence_logged.store(0, std::memory_order_relaxed);
}

bool FailureDetector::MissesHeartbeat(int node) const {
  // A heartbeat may be late by half of the interval, because the threads of its way sleep.
  return SilentFor(members_->ranks_of(node).front()) >
         std::chrono::duration<double>(interval_ * 3 / 2).count();
}

double FailureDetector::SilentFor(int rank) const {
  const int64_t theirs = last_heartbeat(SlotOf(rank)).load(std::memory_order_acquire);
  const int64_t mine = last_heartbeat(members_->rank()).load(std::memory_order_acquire);
  const int64_t now = NanosecondsNow();
  if (theirs == 0 || rank == members_->rank()) return 0;
  // The others send no heartbeats to a rank that they have excluded.
  if (control_->slots()[members_->rank()].excluded_by.load() != 0) return 0;
  if (now - mine > kMissedHeartbeats * interval_.count()) return 0;
  if (!members_->is_local(rank) && FirstListener(now) < 0) return 0;
  return std::max(0.0, static_cast<double>(now - std::max(theirs, running_since_.load())) * 1e-9);
}

int FailureDetector::FirstListener(int64_t now) const {
  const auto found = std::find_if(listeners_.begin(), listeners_.end(), [&](int rank) {
    const int64_t last = last_heartbeat(rank).load(std::memory_order_acquire);
    return now - last <= kMissedHeartbeats * interval_.count();
  });
  return found == listeners_.end() ? -1 : *found;
}

bool FailureDetector::HasMissedHeartbeats(int rank) const {
  return SilentFor(rank) > std::chrono::duration<double>(kMissedHeartbeats * interval_).count();
}

bool FailureDetector::IsSilent(int rank) const {
  return SilentFor(rank) > std::chrono::duration<double>(timeout_).count();
}

void FailureDetector::WarnOfSilentRanks() const {
  for (int i = 0; i < members_->num_ranks_here(); ++i) WarnIfSilent(&members_->node_ranks()[i], 1);
  // One rank of a node is enough to watch the others, which are many.
  if (FirstListener(NanosecondsNow()) != members_->rank()) return;
  for (int node = 0; node < members_->num_nodes(); ++node) {
    const std::vector<int>& ranks = members_->ranks_of(node);
    if (node != members_->node()) WarnIfSilent(ranks.data(), ranks.size());
  }
}

void FailureDetector::WarnIfSilent(const int* ranks, size_t count) const {
  const double silent = SilentFor(*ranks);
  if (silent < std::chrono::duration<double>(warns_after()).count()) return;
  RankSlot& slot = control_->slots()[*ranks];
  const bool is_alive = slot.state.load() == RankSlot::kAlive || slot.pid == 0;
  if (!is_alive || slot.silence_logged.exchange(1) != 0) return;
  for (size_t i = 0; i < count; ++i) {
    LogWarning(StrCat(members_->NameRank(ranks[i]), " has sent no heartbeat for ", TimeText(silent),
                      ": it may be suspended, or its machine is out of reach"));
  }
}

}  // namespace multiverso
