#include "consistency/clock_exchange.h"

#include <algorithm>
#include <utility>

#include "base/raw_bytes.h"
#include "transport/messenger.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d56434c;
// Every leader writes to every other leader, so the interval grows with the number of nodes.
constexpr std::chrono::milliseconds kInterval{10};
constexpr std::chrono::milliseconds kIntervalPerNode{1};
// Other nodes are told of a rank that has waited for kWaitsFor. Checks are kLook apart.
constexpr auto kWaitsFor = std::chrono::milliseconds(100);
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr uint64_t kTicksBetween = WorkerClocks::kTicksKept / 4;

// A message is this header, the tables, each with its entries, and the waiting ranks.
struct Header {
  uint32_t magic;
  int32_t sender;
  uint32_t tables;
  uint32_t waiting;
  uint64_t is_last;
};
struct TableHeader {
  int64_t table;
  int64_t entries;
};
struct Entry {
  int64_t worker;
  WorkerClocks::Snapshot snapshot;
};

}  // namespace

struct ClockExchange::WaitingRank {
  int32_t rank = 0;
  int32_t group = 0;
  uint64_t kind = 0;
  uint64_t sequences[kGroups] = {};
};

ClockExchange::ClockExchange(RankContext* context)
    : context_(context),
      interval_(kInterval + kIntervalPerNode * context->members().num_nodes()),
      last_came_(static_cast<size_t>(context->members().num_nodes()), false),
      seen_(static_cast<size_t>(context->members().num_ranks_here()), std::vector<Seen>(kGroups)) {
  last_came_[static_cast<size_t>(context->members().node())] = true;
}

Status ClockExchange::Receive(const RoundsByTable& tables, bool* any) {
  for (bool got = true; got;) {
    std::string bytes;
    MV_RETURN_IF_NOT_OK(context_->control_channel()->messenger()->Take(
        Messenger::kAnyRank, kClockTag, kMostBytes, &bytes, &got));
    if (!got) break;
    *any = true;
    if (!Handle(bytes, tables)) context_->control_channel()->ReportInvalid("clock", -1);
  }
  return Status::Ok();
}

bool ClockExchange::Handle(const std::string& bytes, const RoundsByTable& tables) {
  const Membership& members = context_->members();
  Header header{};
  size_t at = 0;
  if (!ReadRaw(bytes, &at, &header) || header.magic != kMagic || header.sender < 0 ||
      header.sender >= members.size() || context_->members().is_local(header.sender)) {
    return false;
  }
  const int node = members.node_of(header.sender);
  for (uint32_t i = 0; i < header.tables; ++i) {
    TableHeader table{};
    if (!ReadRaw(bytes, &at, &table) || table.entries < 0) return false;
    const auto found = tables.find(table.table);
    for (int64_t k = 0; k < table.entries; ++k) {
      Entry entry{};
      if (!ReadRaw(bytes, &at, &entry)) return false;
      if (found == tables.end()) continue;  // the table has been released here
      WorkerClocks* const clocks = found->second->clocks();
      if (entry.worker < 0 || entry.worker >= clocks->workers()) return false;
      const auto worker = static_cast<int>(entry.worker);
      if (members.node_of(clocks->rank_of(worker)) != node) return false;
      clocks->Merge(worker, entry.snapshot);
    }
  }
  for (uint32_t i = 0; i < header.waiting; ++i) {
    WaitingRank waiting;
    if (!ReadRaw(bytes, &at, &waiting) || waiting.rank < 0 || waiting.rank >= members.size() ||
        members.node_of(waiting.rank) != node || waiting.group < 0 ||
        waiting.group >= kSpanningGroups) {
      return false;
    }
    context_->peers()->RecordWaiting(waiting.rank, waiting.group,
                                     static_cast<CollectiveKind>(waiting.kind), waiting.sequences);
  }
  if (at != bytes.size()) return false;
  if (header.is_last != 0) last_came_[static_cast<size_t>(node)] = true;
  return true;
}

bool ClockExchange::IsClosed() const {
  return last_sent_ && std::count(last_came_.begin(), last_came_.end(), false) == 0;
}

std::vector<ClockExchange::WaitingRank> ClockExchange::FindWaiting(Instant now) {
  std::vector<WaitingRank> all;
  if (now < looked_at_ + kLook) return all;
  looked_at_ = now;
  for (int local = 0; local < context_->members().num_ranks_here(); ++local) {
    const RankSlot& slot = context_->memory()->slot(context_->members().rank_of(local));
    for (int group = 0; group < kSpanningGroups; ++group) {
      Seen& seen = seen_[static_cast<size_t>(local)][static_cast<size_t>(group)];
      const uint64_t number = slot.groups[group].sequence.load(std::memory_order_acquire);
      const uint32_t completed = context_->memory()->control()->groups[group].completed.load();
      const bool waits = static_cast<int32_t>(completed - static_cast<uint32_t>(number)) < 0;
      if (!waits || number != seen.number) {
        seen = Seen{number, now, false};
        continue;
      }
      if (seen.is_told || now < seen.since + kWaitsFor) continue;
      seen.is_told = true;
      WaitingRank waiting;
      waiting.rank = context_->members().rank_of(local);
      waiting.group = group;
      waiting.kind = static_cast<uint64_t>(slot.groups[group].SlotFor(number).kind());
      for (int i = 0; i < kGroups; ++i) waiting.sequences[i] = slot.groups[i].sequence.load();
      waiting.sequences[group] = number;
      all.push_back(waiting);
    }
  }
  return all;
}

std::string ClockExchange::Changes(const RoundsByTable& tables, uint32_t* count, bool* urgent) {
  std::string bytes;
  read_.clear();
  for (const auto& [id, rounds] : tables) {
    WorkerClocks* const clocks = rounds->clocks();
    std::vector<WorkerClocks::Snapshot>& sent = sent_[id];
    sent.resize(clocks->here().size());
    std::string entries;
    std::vector<WorkerClocks::Snapshot> read;
    for (size_t i = 0; i < clocks->here().size(); ++i) {
      const int worker = clocks->here()[i];
      read.push_back(clocks->TakeSnapshot(worker));
      const WorkerClocks::Snapshot& now = read.back();
      if (now == sent[i]) continue;
      AppendRaw(Entry{worker, now}, &entries);
      *urgent = *urgent || now.finished != sent[i].finished ||
                now.ticks >= sent[i].ticks + kTicksBetween ||
                (!rounds->IsReplicated() && now.adds != sent[i].adds);
    }
    if (entries.empty()) continue;
    ++*count;
    AppendRaw(TableHeader{id, static_cast<int64_t>(entries.size() / sizeof(Entry))}, &bytes);
    bytes += entries;
    read_[id] = std::move(read);
  }
  return bytes;
}

Status ClockExchange::Send(const RoundsByTable& tables) {
  if (last_sent_) return Status::Ok();
  const Instant now = Clock::now();
  // The waiting ranks are read before the clocks, so that the message has all calls that a waiting
  // rank made before its wait.
  const std::vector<WaitingRank> waiting = FindWaiting(now);
  Header header{kMagic, context_->members().rank(), 0, static_cast<uint32_t>(waiting.size()),
                is_closing_ ? uint64_t{1} : 0};
  bool urgent = !waiting.empty() || is_closing_;
  const std::string changes = Changes(tables, &header.tables, &urgent);
  has_changes_ = !changes.empty();
  if (!urgent && (changes.empty() || now < sent_at_ + interval_)) return Status::Ok();
  std::string bytes;
  AppendRaw(header, &bytes);
  bytes += changes;
  for (const WaitingRank& one : waiting) AppendRaw(one, &bytes);
  const Membership& members = context_->members();
  for (int node = 0; node < context_->members().num_nodes(); ++node) {
    if (node == members.node()) continue;
    const Status posted =
        context_->control_channel()->messenger()->Post(members.leader_of(node), kClockTag, bytes);
    // A lost rank needs no clocks, and workers that wait for its rounds detect the loss themselves.
    if (!posted.ok() && !MayMeanLoss(posted)) return posted;
  }
  for (auto& [id, read] : read_) sent_[id] = std::move(read);
  read_.clear();
  has_changes_ = false;
  last_sent_ = is_closing_;
  sent_at_ = now;
  return Status::Ok();
}

}  // namespace multiverso
