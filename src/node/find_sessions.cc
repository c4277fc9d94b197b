#include "node/find_sessions.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {

FoundSession::FoundSession(Segment segment) : segment_(std::move(segment)) {
  for (int rank = 0; rank < control()->num_ranks; ++rank) {
    if (control()->slots()[rank].pid != 0) ranks_.push_back(rank);
  }
}

Result<FoundSession> FoundSession::Open(const std::string& path, bool is_writable) {
  Result<Segment> segment = Segment::OpenFound(path, is_writable);
  if (!segment.ok()) return Status(Code::kUnsupported, segment.status().text());
  MV_RETURN_IF_NOT_OK(NodeSnapshot::Of(segment->data(), segment->bytes()).status());
  return FoundSession(std::move(segment.value()));
}

std::string FoundSession::name() const { return TextOf(control()->options.name); }

int FoundSession::RanksHere() const {
  return is_elastic() ? control()->joined.count() : static_cast<int>(ranks_.size());
}

int FoundSession::RankOf(int local_rank) const {
  return is_elastic() ? local_rank : ranks_[static_cast<size_t>(local_rank)];
}

bool FoundSession::IsAlive(int local_rank) const {
  if (local_rank < 0 || local_rank >= RanksHere()) return false;
  const RankSlot& slot = control()->slots()[RankOf(local_rank)];
  return slot.state.load(std::memory_order_acquire) == RankSlot::kAlive &&
         IsPresent(segment_.fd(), local_rank) && !ProcessWatch().HasEnded(local_rank, slot.process);
}

int FoundSession::CountAlive() const {
  int alive = 0;
  for (int local_rank = 0; local_rank < RanksHere(); ++local_rank) {
    alive += IsAlive(local_rank) ? 1 : 0;
  }
  return alive;
}

std::vector<FoundSession> FindSessions(int64_t pid, bool is_writable) {
  std::vector<FoundSession> sessions;
  for (const int64_t process : pid != 0 ? std::vector<int64_t>{pid} : OtherProcesses()) {
    for (const std::string& path : SegmentsOf(process, NodeControl::kMagic)) {
      // A process may end, and its segments with it, at any time.
      Result<FoundSession> found = FoundSession::Open(path, is_writable);
      if (!found.ok()) continue;
      const bool is_known = std::any_of(sessions.begin(), sessions.end(), [&](const auto& known) {
        return known.control()->session == found->control()->session &&
               known.control()->node == found->control()->node;
      });
      if (!is_known) sessions.push_back(std::move(found.value()));
    }
  }
  return sessions;
}

Result<std::string> DescribeSessions(int64_t pid) {
  if (!Segment::CanBeFound()) {
    return Status(Code::kUnsupported,
                  "finding the sessions of other processes needs Linux, which lists their files");
  }
  return JsonList(FindSessions(pid),
                  [](const FoundSession& found) {
                    std::vector<int> alive;
                    for (int local_rank = 0; local_rank < found.RanksHere(); ++local_rank) {
                      if (found.IsAlive(local_rank)) alive.push_back(found.RankOf(local_rank));
                    }
                    return JsonObject()
                        .Add("alive", JsonList(alive, [](int rank) { return rank; }))
                        .Add("node", found.snapshot().Json())
                        .Take();
                  })
      .text;
}

void NoteLossIn(int64_t pid, int rank) {
  for (const FoundSession& found : FindSessions(pid, /*is_writable=*/true)) {
    if (rank >= 0 && rank < found.control()->num_ranks) found.control()->NoteLoss(rank);
  }
}

}  // namespace multiverso
