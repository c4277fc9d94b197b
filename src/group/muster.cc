#include "group/muster.h"

#include <algorithm>
#include <utility>

#include "base/raw_bytes.h"
#include "base/text.h"
#include "group/node_group.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564d53;
// How often a leader asks for what may have been lost with the one before.
constexpr auto kAskAgain = std::chrono::milliseconds(100);

struct Header {
  uint32_t magic;
  int32_t circle;
  uint64_t meeting;
  int32_t node;
  int32_t count;
};

// Of a rank: what it brought, or, if it did not come, how it went.
struct Entry {
  int32_t rank;
  uint32_t kind;  // 0: it did not come
  uint32_t state;
  uint32_t bytes;
};

constexpr int64_t kMostPerRank = sizeof(Entry) + ExchangeSlot::kMostBytes;

bool IsMember(const Membership& members, int circle, int rank) {
  return circle == 0 || members.is_worker(rank);
}

void RaiseTo(uint64_t number, std::atomic<uint64_t>* known) {
  uint64_t before = known->load(std::memory_order_relaxed);
  while (before < number &&
         !known->compare_exchange_weak(before, number, std::memory_order_release)) {
  }
}

}  // namespace

bool PackMuster(const NodeGroup& group, int circle, uint64_t meeting, std::string* bytes) {
  const Membership& members = group.members();
  Header header{kMagic, circle, meeting, members.node(), 0};
  std::string entries;
  for (const int rank : members.node_ranks()) {
    if (!IsMember(members, circle, rank)) continue;
    // In this order: who is counted out comes no more.
    const bool is_out = group.peers()->IsExcluded(rank);
    const RankSlot& slot = group.slot(rank);
    const RankSlot::InGroup& in_circle = slot.circle[circle];
    const bool came = in_circle.arrivals.load(std::memory_order_acquire) >= meeting;
    if (!came && !is_out) return false;
    std::string data;
    Entry entry{rank, 0, slot.state.load(), 0};
    if (came) {
      CollectiveKind kind{};
      if (!in_circle.SlotFor(meeting).ReadOf(meeting, &kind, &data)) return false;
      entry.kind = static_cast<uint32_t>(kind);
    } else {
      data = entry.state == RankSlot::kLeft ? slot.reason : group.peers()->ExitReason(rank);
    }
    entry.bytes = static_cast<uint32_t>(data.size());
    AppendRaw(entry, &entries);
    entries += data;
    ++header.count;
  }
  bytes->clear();
  AppendRaw(header, bytes);
  *bytes += entries;
  return true;
}

Muster::Muster(NodeGroup* group, int circle, const std::vector<int>& members)
    : group_(group),
      circle_(circle),
      first_(static_cast<size_t>(group->num_nodes()), -1),
      members_(static_cast<size_t>(group->num_nodes())),
      early_(static_cast<size_t>(group->num_nodes())) {
  for (int rank = group->members().size() - 1; rank >= 0; --rank) {
    first_[static_cast<size_t>(group->members().node_of(rank))] = rank;
  }
  for (const int rank : members) {
    members_[static_cast<size_t>(group->members().node_of(rank))].push_back(rank);
  }
}

std::atomic<uint64_t>& Muster::mustered(size_t node) const {
  return group_->slot(first_[node]).circle[circle_].mustered;
}

int Muster::Leader() const {
  for (const int rank : members_[static_cast<size_t>(group_->members().node())]) {
    if (!group_->peers()->IsExcluded(rank)) return rank;
  }
  return -1;
}

std::vector<int> Muster::Missing(uint64_t meeting) const {
  std::vector<int> missing;
  for (size_t node = 0; node < members_.size(); ++node) {
    const bool is_here = static_cast<int>(node) == group_->members().node();
    if (is_here || members_[node].empty()) continue;
    if (mustered(node).load(std::memory_order_acquire) < meeting) {
      missing.push_back(static_cast<int>(node));
    }
  }
  return missing;
}

Status Muster::Exchange(uint64_t meeting) {
  ControlChannel* const control_channel = group_->control_channel();
  Messenger* const messenger = control_channel->messenger();
  if (told_ != meeting) {
    std::string mine;
    if (!PackMuster(*group_, circle_, meeting, &mine)) return Status::Pending();
    told_ = meeting;
    for (const std::vector<int>& theirs : members_) {
      const auto leader = std::find_if(theirs.begin(), theirs.end(), [&](int rank) {
        return !group_->peers()->IsExcluded(rank);
      });
      if (leader == theirs.end() || group_->is_local(*leader)) continue;
      const Status posted = messenger->Post(*leader, kMeetingTag + circle_, mine);
      // If that one has died, who comes after it asks.
      if (!posted.ok() && !MayMeanLoss(posted)) return posted;
    }
  }
  for (std::string& early : early_) {
    if (!early.empty()) (void)Understand(std::exchange(early, std::string()), meeting);
  }
  messenger->Advance();
  const int64_t most =
      static_cast<int64_t>(sizeof(Header)) + group_->members().size() * kMostPerRank;
  for (bool got = true; got;) {
    std::string bytes;
    const Status taken =
        messenger->Take(Messenger::kAnyRank, kMeetingTag + circle_, most, &bytes, &got);
    if (!taken.ok() && !MayMeanLoss(taken)) return taken;
    if (!taken.ok() || !got) break;
    if (!Understand(bytes, meeting)) control_channel->Drop("a meeting", -1);
  }
  const std::vector<int> missing = Missing(meeting);
  if (missing.empty()) return Status::Ok();
  const Instant now = Clock::now();
  if (group_->peers()->AnyExcluded() && now >= asked_ + kAskAgain) {
    asked_ = now;
    for (const int node : missing) control_channel->AskForMuster(node, circle_, meeting);
  }
  return Status::Pending();
}

bool Muster::Understand(const std::string& bytes, uint64_t meeting) {
  Header header{};
  size_t at = 0;
  if (!ReadRaw(bytes, &at, &header) || header.magic != kMagic || header.circle != circle_ ||
      header.node < 0 || header.node >= group_->num_nodes() ||
      header.node == group_->members().node()) {
    return false;
  }
  const auto node = static_cast<size_t>(header.node);
  const std::vector<int>& ranks = members_[node];
  if (header.count != static_cast<int32_t>(ranks.size()) || header.meeting > meeting + 1) {
    return false;
  }
  std::vector<Entry> entries;
  std::vector<size_t> places;
  for (const int rank : ranks) {
    Entry entry{};
    if (!ReadRaw(bytes, &at, &entry) || entry.rank != rank ||
        entry.bytes > ExchangeSlot::kMostBytes || bytes.size() - at < entry.bytes) {
      return false;
    }
    if (entry.kind == 0 && entry.state != RankSlot::kLeft && entry.state != RankSlot::kDied) {
      return false;
    }
    entries.push_back(entry);
    places.push_back(at);
    at += entry.bytes;
  }
  if (at != bytes.size()) return false;
  // What is known already was told again. Of a meeting before the slots may be in use for the next
  // but one.
  if (header.meeting < meeting || mustered(node).load() >= header.meeting) return true;
  // What was told of the meeting before went to a leader that has died, and has been asked for:
  // first comes that, and then this.
  if (mustered(node).load() + 1 < header.meeting) {
    early_[node] = bytes;
    return true;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const char* const data = bytes.data() + places[i];
    if (entry.kind == 0) {
      const uint64_t unknown[kGroups] = {};
      group_->peers()->RecordExit(entry.rank, static_cast<RankSlot::State>(entry.state),
                                  std::string(data, entry.bytes), unknown);
      continue;
    }
    RankSlot::InGroup& theirs = group_->slot(entry.rank).circle[circle_];
    theirs.SlotFor(header.meeting)
        .Write(header.meeting, static_cast<CollectiveKind>(entry.kind), data, entry.bytes);
    RaiseTo(header.meeting, &theirs.arrivals);
  }
  mustered(node).store(header.meeting, std::memory_order_release);
  return true;
}

}  // namespace multiverso
