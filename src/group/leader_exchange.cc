#include "group/leader_exchange.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"

namespace multiverso {
namespace {

// The time between two requests of a leader for missing contributions, which may have been lost
// with its predecessor.
constexpr auto kRequestInterval = std::chrono::milliseconds(100);

}  // namespace

LeaderExchange::LeaderExchange(int group, const std::vector<int>& ranks, const Membership* members,
                               const NodeMemory* memory, const PeerStatus* peers,
                               ControlChannel* channel)
    : group_(group),
      members_(members),
      memory_(memory),
      peers_(peers),
      channel_(channel),
      first_ranks_(static_cast<size_t>(members->num_nodes()), -1),
      ranks_(static_cast<size_t>(members->num_nodes())),
      early_(static_cast<size_t>(members->num_nodes())) {
  for (int rank = members->size() - 1; rank >= 0; --rank) {
    first_ranks_[static_cast<size_t>(members->node_of(rank))] = rank;
  }
  for (const int rank : ranks) {
    ranks_[static_cast<size_t>(members->node_of(rank))].push_back(rank);
  }
}

int LeaderExchange::LeaderOf(int node) const {
  for (const int rank : ranks_[static_cast<size_t>(node)]) {
    if (!peers_->IsExcluded(rank)) return rank;
  }
  return -1;
}

std::vector<int> LeaderExchange::MissingNodes(uint64_t sequence) const {
  std::vector<int> missing;
  for (int node = 0; node < members_->num_nodes(); ++node) {
    if (node == members_->node() || ranks_[static_cast<size_t>(node)].empty()) continue;
    if (received(node).load(std::memory_order_acquire) < sequence) missing.push_back(node);
  }
  return missing;
}

bool LeaderExchange::IsFirstNode() const {
  const auto first_node =
      std::find_if(ranks_.begin(), ranks_.end(), [](const auto& ranks) { return !ranks.empty(); });
  return first_node - ranks_.begin() == members_->node();
}

Status LeaderExchange::SendContribution(uint64_t sequence, Attachment* attachment) {
  std::string contribution;
  if (!PackContribution(*memory_, *members_, *peers_, members_->node(), group_, sequence,
                        &contribution)) {
    return Status::Pending();
  }
  sent_ = sequence;
  if (attachment != nullptr) Attach(attachment->Pack(), &contribution);
  for (int node = 0; node < members_->num_nodes(); ++node) {
    const int leader = LeaderOf(node);
    if (node == members_->node() || leader < 0) continue;
    const Status posted = channel_->messenger()->Post(leader, kExchangeTag + group_, contribution);
    (void)MV_FAILPOINT("exchange.sent");
    // If the other leader has died, its successor asks for the contribution.
    if (!posted.ok() && !MayMeanLoss(posted)) return posted;
  }
  return Status::Ok();
}

Status LeaderExchange::Exchange(uint64_t sequence, Attachment* attachment) {
  const bool sends_last = !members_->survives_losses() && attachment == nullptr && IsFirstNode();
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
  const std::vector<int> missing = MissingNodes(sequence);
  if (missing.empty()) {
    if (attachment != nullptr) attachment->Finish();
    return sent_ == sequence ? Status::Ok() : SendContribution(sequence, attachment);
  }
  const Instant now = Clock::now();
  if (members_->survives_losses() && peers_->HasRecordedLoss() &&
      now >= last_request_ + kRequestInterval) {
    last_request_ = now;
    for (const int node : missing) channel_->RequestContribution(node, group_, sequence);
  }
  return Status::Pending();
}

bool LeaderExchange::Store(const std::string& bytes, uint64_t sequence, Attachment* attachment) {
  NodeContribution theirs;
  if (!UnpackContribution(bytes, *members_, &theirs) || theirs.group != group_ ||
      theirs.ranks.empty() || theirs.sequence > sequence + 1) {
    return false;
  }
  std::atomic<uint64_t>& latest = received(theirs.node);
  // Second copies, which new leaders send, are ignored. So are contributions to older collectives,
  // since the slots may already hold payloads of a newer one.
  if (theirs.sequence < sequence || theirs.sequence <= latest.load()) return true;
  // What is attached to the next collective can be taken only when this rank has begun it. Without
  // an attachment, other leaders may already ask for the contribution of a lost node.
  const bool must_wait = theirs.sequence > sequence && !theirs.attached.empty();
  if (theirs.sequence > latest.load() + 1 || must_wait) {
    early_[static_cast<size_t>(theirs.node)] = bytes;
    return true;
  }
  if (attachment != nullptr && theirs.sequence == sequence && !attachment->Take(theirs)) {
    return false;
  }
  for (const RankContribution& rank : theirs.ranks) {
    if (!rank.takes_part) {
      const uint64_t unknown[kGroups] = {};
      peers_->RecordExit(rank.rank, rank.state, rank.data, unknown);
      continue;
    }
    RankSlot::GroupProgress& progress = memory_->slot(rank.rank).groups[group_];
    progress.SlotFor(theirs.sequence)
        .Write(theirs.sequence, rank.kind, rank.data.data(), rank.data.size());
    progress.RaiseSequence(theirs.sequence);
  }
  latest.store(theirs.sequence, std::memory_order_release);
  return true;
}

}  // namespace multiverso
