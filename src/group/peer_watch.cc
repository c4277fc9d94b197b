#include "group/peer_watch.h"

#include "base/text.h"

namespace multiverso {

std::string PeerWatch::WhileWaiting(const std::string& call) const {
  return StrCat(" while rank ", members_->rank(), " waited for it in ", call);
}

bool PeerWatch::MessagesHaveArrived() {
  constexpr auto kDelay = std::chrono::milliseconds(500);  // much longer than a message takes
  const Instant now = Clock::now();
  if (!loss_noticed_.has_value()) loss_noticed_ = now;
  return now >= *loss_noticed_ + kDelay;
}

Status PeerWatch::Lost(const std::vector<int>& ranks, const std::string& where,
                       const std::string& consequence) const {
  std::string ends;
  for (const int rank : ranks) ends += StrCat(ends.empty() ? "" : ", ", peers_->EndOf(rank));
  const int last = ranks.back();
  peers_->LogLastCalls(last);
  return state_->ReportLost(last, StrCat(ends, where, peers_->Trace(last), consequence));
}

Status PeerWatch::Late(const std::string& call, const std::string& awaited, int first) const {
  const Status timeout(
      Code::kTimeout,
      StrCat("rank ", members_->rank(), " waited ", TimeText(SecondsBetween(began_, Clock::now())),
             call, " for ", awaited, first < 0 ? "" : peers_->Trace(first)));
  return first < 0 ? timeout : peers_->About(first, timeout);
}

Status PeerWatch::AbortLate(const std::string& call, const std::string& awaited, int first) const {
  Status timeout = Late(call, awaited, first);
  state_->Abort(timeout);
  return timeout;
}

}  // namespace multiverso
