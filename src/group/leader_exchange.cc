#include "group/leader_exchange.h"

#include "base/failpoint.h"

namespace multiverso {

LeaderExchange::LeaderExchange(int group, const Membership* members, const NodeMemory* memory,
                               ControlChannel* channel)
    : group_(group),
      members_(members),
      memory_(memory),
      channel_(channel),
      place_of_(static_cast<size_t>(members->num_nodes()), -1) {
  std::vector<int> first(place_of_.size(), -1);
  std::vector<int64_t> count(place_of_.size(), 0);
  for (int rank = 0; rank < members->size(); ++rank) {
    if (!IsMember(rank)) continue;
    const auto node = static_cast<size_t>(members->node_of(rank));
    if (count[node]++ == 0) first[node] = rank;
  }
  before_.push_back(0);
  for (size_t node = 0; node < first.size(); ++node) {
    if (count[node] == 0) continue;
    place_of_[node] = num_places();
    leaders_.push_back(first[node]);
    before_.push_back(before_.back() + count[node]);
  }
  me_ = place_of_[static_cast<size_t>(members->node())];
}

int64_t LeaderExchange::MembersOf(int nodes, int place) const {
  const auto before = [this](int at) { return before_[static_cast<size_t>(at)]; };
  const int first = place + 1 - nodes;
  if (first >= 0) return before(place + 1) - before(first);
  return before(place + 1) + before_.back() - before(first + num_places());
}

bool LeaderExchange::Begin(uint64_t sequence, Attachment* attachment) {
  Contributions mine;
  for (const int rank : members_->node_ranks()) {
    if (!IsMember(rank)) continue;
    const RankSlot::GroupProgress& progress = memory_->slot(rank).groups[group_];
    if (progress.sequence.load(std::memory_order_acquire) < sequence) return false;
    const ExchangeSlot& payload = progress.SlotFor(sequence);
    mine.Append({1, payload.marked_kind(), payload.Bytes()});
  }
  if (attachment != nullptr) mine.attached.emplace_back(members_->node(), attachment->Pack());
  sequence_ = sequence;
  step_ = 0;
  held_ = std::move(mine);
  // Nobody here waits for an earlier collective any more.
  early_.erase(early_.begin(), early_.lower_bound({sequence, 0}));
  return true;
}

Status LeaderExchange::Send() {
  const int nodes = NodesOf(step_);
  const int64_t surplus = held_.members() - MembersOf(nodes, me_);
  Contributions last;
  if (surplus > 0) {
    last = held_;
    last.DropFirst(surplus);
    const auto is_surplus = [&](const auto& attached) {
      const int place = place_of_[static_cast<size_t>(attached.first)];
      return PlaceAfter(-place) >= nodes;
    };
    last.attached.erase(std::remove_if(last.attached.begin(), last.attached.end(), is_surplus),
                        last.attached.end());
  }
  const Status posted = channel_->messenger()->Post(
      leaders_[static_cast<size_t>(PlaceAfter(1 << step_))], kExchangeTag + group_,
      PackContributions(group_, members_->node(), step_, sequence_, surplus > 0 ? last : held_));
  (void)MV_FAILPOINT("exchange.sent");
  // If the other leader has died, Group reports that it is lost.
  return !posted.ok() && MayMeanLoss(posted) ? Status::Ok() : posted;
}

Status LeaderExchange::Exchange(uint64_t sequence, Attachment* attachment) {
  if (sequence_ != sequence) {
    if (!Begin(sequence, attachment)) return Status::Pending();
    MV_RETURN_IF_NOT_OK(Send());
  }
  channel_->messenger()->Advance();
  while (step_ < steps()) {
    const auto taken = early_.find({sequence, step_});
    if (taken == early_.end()) {
      bool got = false;
      MV_RETURN_IF_NOT_OK(Take(&got));
      if (!got) return Status::Pending();
      continue;
    }
    Contributions all = std::move(taken->second);
    early_.erase(taken);
    all.Append(std::move(held_));
    held_ = std::move(all);
    ++step_;
    if (step_ < steps()) MV_RETURN_IF_NOT_OK(Send());
  }
  Store();
  if (attachment == nullptr) return Status::Ok();
  for (const auto& [node, attached] : held_.attached) {
    if (node == members_->node()) continue;
    if (!attachment->Take(leaders_[static_cast<size_t>(place_of_[static_cast<size_t>(node)])],
                          attached)) {
      return Status(Code::kTransport, "a collective message has values of another call");
    }
  }
  held_.attached.clear();
  attachment->Finish();
  return Status::Ok();
}

Status LeaderExchange::Take(bool* got) {
  std::string bytes;
  const Status taken = channel_->messenger()->Take(Messenger::kAnyRank, kExchangeTag + group_,
                                                   MaxContributionsBytes(*members_), &bytes, got);
  if (!taken.ok()) {
    *got = false;
    return MayMeanLoss(taken) ? Status::Ok() : taken;
  }
  if (!*got) return Status::Ok();
  (void)MV_FAILPOINT("exchange.received");
  if (!Keep(bytes)) channel_->ReportInvalid("collective", -1);
  return Status::Ok();
}

bool LeaderExchange::Keep(const std::string& bytes) {
  ContributionsMessage message;
  if (!UnpackContributions(bytes, &message) || !IsValid(message)) return false;
  if (message.sequence == sequence_ + 1 ||
      (message.sequence == sequence_ && message.step >= step_)) {
    early_.emplace(std::pair(message.sequence, message.step), std::move(message.contributions));
  }
  return true;
}

bool LeaderExchange::IsValid(const ContributionsMessage& message) const {
  // All members begin a collective before one of them begins the next one.
  if (message.group != group_ || message.sequence > sequence_ + 1 || message.step < 0 ||
      message.step >= steps()) {
    return false;
  }
  const int nodes = NodesOf(message.step);
  const int from = PlaceAfter(-(1 << message.step));
  if (message.node != members_->node_of(leaders_[static_cast<size_t>(from)]) ||
      message.contributions.members() != MembersOf(nodes, from)) {
    return false;
  }
  int furthest = nodes;
  for (const auto& [node, attached] : message.contributions.attached) {
    if (node < 0 || node >= members_->num_nodes()) return false;
    const int place = place_of_[static_cast<size_t>(node)];
    const int before = place < 0 ? nodes : (from - place + num_places()) % num_places();
    if (before >= furthest) return false;
    furthest = before;
  }
  return true;
}

void LeaderExchange::Store() {
  NodeControl::GroupState& state = memory_->control()->groups[group_];
  if (held_.runs.size() == 1) {
    const PayloadRun& all = held_.runs.front();
    state.common[sequence_ % 2].Write(all.kind, all.data.data(), all.data.size());
    state.common_of[sequence_ % 2].store(sequence_, std::memory_order_release);
  } else {
    // In the order of what this leader holds, which ends with its own node.
    std::vector<int> members(static_cast<size_t>(before_.back()));
    std::vector<int64_t> next(static_cast<size_t>(num_places()));
    for (int i = 0; i < num_places(); ++i) {
      const int place = PlaceAfter(1 + i);
      next[static_cast<size_t>(place)] = MembersOf(i + 1, place) - MembersOf(1, place);
    }
    for (int rank = 0; rank < members_->size(); ++rank) {
      if (!IsMember(rank)) continue;
      const auto place =
          static_cast<size_t>(place_of_[static_cast<size_t>(members_->node_of(rank))]);
      members[static_cast<size_t>(next[place]++)] = rank;
    }
    auto rank = members.begin();
    for (const PayloadRun& run : held_.runs) {
      for (uint32_t i = 0; i < run.members; ++i, ++rank) {
        if (members_->is_local(*rank)) continue;
        RankSlot::GroupProgress& progress = memory_->slot(*rank).groups[group_];
        progress.SlotFor(sequence_).Write(run.kind, run.data.data(), run.data.size());
        progress.RaiseSequence(sequence_);
      }
    }
  }
  state.all_begun.store(sequence_, std::memory_order_release);
  held_.runs.clear();
}

}  // namespace multiverso
