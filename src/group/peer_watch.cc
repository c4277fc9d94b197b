#include "group/peer_watch.h"

#include <algorithm>

#include "base/log.h"
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

int PeerWatch::LossThatSilences() const {
  const std::vector<int> services = members_->service_ranks(members_->node());
  const auto is_lost = [&](int rank) { return peers_->IsLost(rank); };
  return std::all_of(services.begin(), services.end(), is_lost) ? services.front() : -1;
}

int PeerWatch::LossThatSilences(const std::vector<int>& ranks) const {
  const auto is_elsewhere = [&](int rank) { return !members_->is_local(rank); };
  return std::any_of(ranks.begin(), ranks.end(), is_elsewhere) ? LossThatSilences() : -1;
}

Status PeerWatch::Lost(const std::vector<int>& ranks, const std::string& where) const {
  std::string ends;
  for (const int rank : ranks) ends += StrCat(ends.empty() ? "" : ", ", peers_->EndOf(rank));
  const int last = ranks.back();
  peers_->LogLastCalls(last);
  return state_->ReportLost(last, StrCat(ends, where, peers_->Trace(last)));
}

std::string PeerWatch::Describe(const char* waited, const Late& late) const {
  return StrCat("rank ", members_->rank(), " ", waited, " ",
                TimeText(SecondsBetween(began_, Clock::now())), late.call, " for ", late.awaited,
                late.first < 0 ? "" : peers_->Trace(late.first, late.last_call));
}

Status PeerWatch::TimedOut(const Late& late) const {
  const Status timeout(Code::kTimeout, Describe("waited", late) + LimitAdvice(option_));
  return late.first < 0 ? timeout : peers_->About(late.first, timeout);
}

Status PeerWatch::AbortTimedOut(const Late& late) const {
  Status timeout = TimedOut(late);
  state_->Abort(timeout);
  return timeout;
}

void PeerWatch::LogLate(const Late& late, Instant deadline) {
  // Another rank or thread that logs the same may end its wait sooner, so this one asks again soon.
  lines_.Postpone(Clock::now(), WaitLines::kFirst);
  if (!peers_->TakeLineAbout(late.first < 0 ? members_->rank() : late.first)) return;
  LogWarning(Describe("has waited", late) + LimitText(deadline - began_, option_));
}

}  // namespace multiverso
