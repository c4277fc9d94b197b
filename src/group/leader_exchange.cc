#include "group/leader_exchange.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"

namespace multiverso {

LeaderExchange::LeaderExchange(int group, const std::vector<int>& ranks, const Membership* members,
                               const NodeMemory* memory, ControlChannel* channel)
    : group_(group),
      members_(members),
      memory_(memory),
      channel_(channel),
      leaders_(static_cast<size_t>(members->num_nodes()), -1),
      early_(static_cast<size_t>(members->num_nodes())) {
  for (const int rank : ranks) {
    int* const leader = &leaders_[static_cast<size_t>(members->node_of(rank))];
    if (*leader < 0) *leader = rank;
  }
}

std::vector<int> LeaderExchange::MissingNodes(uint64_t sequence) const {
  std::vector<int> missing;
  for (int node = 0; node < members_->num_nodes(); ++node) {
    if (node == members_->node() || LeaderOf(node) < 0) continue;
    if (received(node).load(std::memory_order_acquire) < sequence) missing.push_back(node);
  }
  return missing;
}

bool LeaderExchange::IsFirstNode() const {
  const auto first =
      std::find_if(leaders_.begin(), leaders_.end(), [](int leader) { return leader >= 0; });
  return first - leaders_.begin() == members_->node();
}

Status LeaderExchange::SendContribution(uint64_t sequence, Attachment* attachment) {
  std::string contribution;
  if (!PackContribution(*memory_, *members_, group_, sequence, &contribution)) {
    return Status::Pending();
  }
  sent_ = sequence;
  if (attachment != nullptr) Attach(attachment->Pack(), &contribution);
  return SendToOthers(contribution);
}

void LeaderExchange::GiveUp(uint64_t sequence, CollectiveKind kind, const std::string& vote) {
  if (sent_ == sequence) return;
  sent_ = sequence;
  // A rank that cannot be told waits for this one until its deadline.
  (void)SendToOthers(PackFailure(*members_, group_, sequence, kind, vote));
}

Status LeaderExchange::SendToOthers(const std::string& contribution) {
  for (int node = 0; node < members_->num_nodes(); ++node) {
    const int leader = LeaderOf(node);
    if (node == members_->node() || leader < 0) continue;
    const Status posted = channel_->messenger()->Post(leader, kExchangeTag + group_, contribution);
    (void)MV_FAILPOINT("exchange.sent");
    // If the other leader has died, Group reports that it is lost.
    if (!posted.ok() && !MayMeanLoss(posted)) return posted;
  }
  return Status::Ok();
}

Status LeaderExchange::Exchange(uint64_t sequence, Attachment* attachment) {
  const bool sends_last = attachment == nullptr && IsFirstNode();
  if (sent_ != sequence && !sends_last) MV_RETURN_IF_NOT_OK(SendContribution(sequence, attachment));
  if (begun_ != sequence) {
    begun_ = sequence;
    for (std::string& early : early_) {
      if (!early.empty()) (void)Store(std::exchange(early, std::string()), sequence, attachment);
    }
  }
  Messenger* const messenger = channel_->messenger();
  messenger->Advance();
  for (bool got = true; got && !MissingNodes(sequence).empty();) {
    std::string bytes;
    const Status taken = messenger->Take(Messenger::kAnyRank, kExchangeTag + group_,
                                         MaxContributionBytes(*members_), &bytes, &got);
    if (!taken.ok() && !MayMeanLoss(taken)) return taken;
    if (!taken.ok() || !got) break;
    (void)MV_FAILPOINT("exchange.received");
    if (!Store(bytes, sequence, attachment)) channel_->ReportInvalid("collective", -1);
  }
  if (!MissingNodes(sequence).empty()) return Status::Pending();
  if (attachment != nullptr) attachment->Finish();
  return sent_ == sequence ? Status::Ok() : SendContribution(sequence, attachment);
}

bool LeaderExchange::Store(const std::string& bytes, uint64_t sequence, Attachment* attachment) {
  NodeContribution theirs;
  if (!UnpackContribution(bytes, *members_, &theirs) || theirs.group != group_ ||
      theirs.ranks.empty() || theirs.sequence > sequence + 1) {
    return false;
  }
  std::atomic<uint64_t>& latest = received(theirs.node);
  // Nobody here waits for an earlier collective any more.
  if (theirs.sequence < sequence || theirs.sequence <= latest.load()) return true;
  // What belongs to the next collective can be taken only when this rank has begun it.
  if (theirs.sequence > sequence) {
    early_[static_cast<size_t>(theirs.node)] = bytes;
    return true;
  }
  if (attachment != nullptr && !attachment->Take(theirs)) return false;
  for (const RankContribution& rank : theirs.ranks) {
    RankSlot::GroupProgress& progress = memory_->slot(rank.rank).groups[group_];
    progress.SlotFor(sequence).Write(rank.kind, rank.data.data(), rank.data.size());
    progress.RaiseSequence(sequence);
  }
  latest.store(sequence, std::memory_order_release);
  return true;
}

}  // namespace multiverso
