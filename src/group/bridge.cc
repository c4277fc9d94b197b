#include "group/bridge.h"

#include <algorithm>
#include <utility>

#include "base/raw_bytes.h"
#include "group/node_group.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564d54;

struct Header {
  uint32_t magic;
  int32_t circle;
  uint64_t meeting;
  int64_t count;
};

struct Entry {
  int32_t rank;
  uint32_t kind;
  uint32_t bytes;
};

constexpr int64_t kMostPerRank = sizeof(Entry) + ExchangeSlot::kMostBytes;

}  // namespace

std::string PackBrought(int circle, uint64_t meeting, const std::vector<Brought>& all) {
  std::string bytes;
  AppendRaw(Header{kMagic, circle, meeting, static_cast<int64_t>(all.size())}, &bytes);
  for (const Brought& one : all) {
    AppendRaw(
        Entry{one.rank, static_cast<uint32_t>(one.kind), static_cast<uint32_t>(one.data.size())},
        &bytes);
    bytes += one.data;
  }
  return bytes;
}

bool UnpackBrought(const std::string& bytes, int circle, uint64_t meeting,
                   const std::vector<int>& ranks, std::vector<Brought>* all) {
  Header header{};
  size_t at = 0;
  if (!ReadRaw(bytes, &at, &header) || header.magic != kMagic || header.circle != circle ||
      header.meeting != meeting || header.count != static_cast<int64_t>(ranks.size())) {
    return false;
  }
  all->clear();
  for (const int rank : ranks) {
    Entry entry{};
    if (!ReadRaw(bytes, &at, &entry) || entry.rank != rank ||
        entry.bytes > ExchangeSlot::kMostBytes || bytes.size() - at < entry.bytes) {
      return false;
    }
    all->push_back(
        Brought{rank, static_cast<CollectiveKind>(entry.kind), bytes.substr(at, entry.bytes)});
    at += entry.bytes;
  }
  return at == bytes.size();
}

Bridge::Bridge(NodeGroup* group, int circle, const std::vector<int>& members)
    : group_(group), circle_(circle), members_(members) {
  std::vector<int> place(static_cast<size_t>(group->num_nodes()), -1);
  for (const int rank : members_) {
    int& node_place = place[static_cast<size_t>(group->members().node_of(rank))];
    if (node_place < 0) {
      node_place = static_cast<int>(leaders_.size());
      leaders_.push_back(rank);
      ranks_.emplace_back();
    }
    ranks_[static_cast<size_t>(node_place)].push_back(rank);
  }
  const int here = place[static_cast<size_t>(group->members().node())];
  if (here < 0) return;
  mine_ = static_cast<size_t>(here);
  leader_ = leaders_[mine_];
}

std::vector<Brought> Bridge::BroughtHere(const std::vector<int>& ranks, uint64_t meeting) const {
  std::vector<Brought> all;
  for (const int rank : ranks) {
    const ExchangeSlot& deposit = group_->slot(rank).circle[circle_].SlotFor(meeting);
    all.push_back(Brought{rank, deposit.kind(), deposit.Bytes()});
  }
  return all;
}

void Bridge::Keep(const std::vector<Brought>& all, uint64_t meeting) const {
  for (const Brought& one : all) {
    if (group_->is_local(one.rank)) continue;
    RankSlot::InGroup& theirs = group_->slot(one.rank).circle[circle_];
    theirs.SlotFor(meeting).Write(meeting, one.kind, one.data.data(), one.data.size());
    if (theirs.arrivals.load(std::memory_order_relaxed) < meeting) {
      theirs.arrivals.store(meeting, std::memory_order_release);
    }
  }
}

Status Bridge::TakeFrom(size_t node, const std::vector<int>& ranks, uint64_t meeting, bool* came) {
  const int64_t most =
      static_cast<int64_t>(sizeof(Header)) + static_cast<int64_t>(ranks.size()) * kMostPerRank;
  for (bool got = true; got && !*came;) {
    std::string bytes;
    std::vector<Brought> all;
    const Status taken = group_->control_channel()->messenger()->Take(
        leaders_[node], kMeetingTag + circle_, most, &bytes, &got);
    if (!taken.ok() && !MayMeanLoss(taken)) return taken;
    if (!taken.ok() || !got) break;
    if (UnpackBrought(bytes, circle_, meeting, ranks, &all)) {
      Keep(all, meeting);
      *came = true;
    } else {
      group_->control_channel()->Drop("a meeting", leaders_[node]);
    }
  }
  return Status::Ok();
}

Status Bridge::Post(size_t node, std::string bytes) {
  const Status posted = group_->control_channel()->messenger()->Post(
      leaders_[node], kMeetingTag + circle_, std::move(bytes));
  // Who has died needs it no more, and who waits for its answer looks whether it has.
  return MayMeanLoss(posted) ? Status::Ok() : posted;
}

Status Bridge::Exchange(uint64_t meeting) {
  Messenger* const messenger = group_->control_channel()->messenger();
  if (begun_ != meeting) {
    begun_ = meeting;
    came_.assign(leaders_.size(), false);
    came_[mine_] = true;
    if (mine_ != 0) {
      MV_RETURN_IF_NOT_OK(
          Post(0, PackBrought(circle_, meeting, BroughtHere(ranks_[mine_], meeting))));
    }
  }
  messenger->Advance();
  if (mine_ != 0) {
    bool came = false;
    MV_RETURN_IF_NOT_OK(TakeFrom(0, members_, meeting, &came));
    return came ? Status::Ok() : Status::Pending();
  }
  for (size_t i = 1; i < leaders_.size(); ++i) {
    if (came_[i]) continue;
    bool came = false;
    MV_RETURN_IF_NOT_OK(TakeFrom(i, ranks_[i], meeting, &came));
    came_[i] = came;
  }
  if (std::count(came_.begin(), came_.end(), false) > 0) return Status::Pending();
  const std::string bytes = PackBrought(circle_, meeting, BroughtHere(members_, meeting));
  for (size_t i = 1; i < leaders_.size(); ++i) {
    MV_RETURN_IF_NOT_OK(Post(i, bytes));
  }
  messenger->Advance();
  return Status::Ok();
}

}  // namespace multiverso
