#include "consistency/clock_exchange.h"

#include <algorithm>
#include <utility>

#include "base/frame.h"
#include "consistency/call_comparison.h"
#include "transport/messenger.h"

namespace multiverso {
namespace {

// Every leader writes to every other leader, so the interval grows with the number of nodes.
constexpr std::chrono::milliseconds kInterval{10};
constexpr std::chrono::milliseconds kIntervalPerNode{1};
// A rank of this node that waits in a collective is reported to the other nodes after this time.
constexpr auto kReportAfter = std::chrono::milliseconds(100);
constexpr auto kCheckInterval = std::chrono::milliseconds(20);
constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;
// Clocks are sent at once after so many ticks, before another worker must wait for them.
constexpr uint64_t kUrgentTicks = WorkerClocks::kTicksKept / 4;

// A message is this header, a TableEntries and its entries for each table, and the waiting ranks.
struct Header {
  int32_t sender;
  uint32_t tables;
  uint32_t waiting;
  uint64_t is_last;
};
struct TableEntries {
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
      last_has_come_(static_cast<size_t>(context->members().num_nodes()), false),
      waits_(static_cast<size_t>(context->members().num_ranks_here()),
             std::vector<WaitRecord>(kGroups)) {
  last_has_come_[static_cast<size_t>(context->members().node())] = true;
}

Status ClockExchange::Receive(const RoundsByTable& tables, bool* any) {
  for (bool taken = true; taken;) {
    std::string bytes;
    MV_RETURN_IF_NOT_OK(context_->control_channel()->messenger()->Take(
        Messenger::kAnyRank, kClockTag, kMaxMessageBytes, &bytes, &taken));
    if (!taken) break;
    *any = true;
    if (!Handle(bytes, tables)) context_->control_channel()->ReportInvalid("clock", -1);
  }
  return Status::Ok();
}

bool ClockExchange::Handle(const std::string& bytes, const RoundsByTable& tables) {
  const Membership& members = context_->members();
  Header header{};
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kClocks, &header) || header.sender < 0 ||
      header.sender >= members.size() || members.is_local(header.sender)) {
    return false;
  }
  // A rank that was suspended does not know yet that the others count it as lost.
  if (context_->peers()->IsExcludedForSilence(header.sender)) return true;
  const int node = members.node_of(header.sender);
  for (uint32_t i = 0; i < header.tables; ++i) {
    TableEntries table{};
    if (!reader.Read(&table) || table.entries < 0) return false;
    const auto found = tables.find(table.table);
    for (int64_t k = 0; k < table.entries; ++k) {
      Entry entry{};
      if (!reader.Read(&entry)) return false;
      if (found == tables.end()) continue;  // the table has been released here
      WorkerClocks* const clocks = found->second->clocks();
      if (entry.worker < 0 || entry.worker >= clocks->workers()) return false;
      const auto worker = static_cast<int>(entry.worker);
      if (members.node_of(clocks->rank_of(worker)) != node) return false;
      StoreAndCompare(clocks, worker, entry.snapshot);
    }
  }
  for (uint32_t i = 0; i < header.waiting; ++i) {
    WaitingRank waiting;
    if (!reader.Read(&waiting) || waiting.rank < 0 || waiting.rank >= members.size() ||
        members.node_of(waiting.rank) != node || waiting.group < 0 ||
        waiting.group >= kSpanningGroups) {
      return false;
    }
    context_->peers()->RecordWaiting(waiting.rank, waiting.group,
                                     static_cast<CollectiveKind>(waiting.kind), waiting.sequences);
  }
  if (reader.remaining() != 0) return false;
  if (header.is_last != 0) last_has_come_[static_cast<size_t>(node)] = true;
  return true;
}

bool ClockExchange::IsClosed() const {
  return has_sent_last_ && std::count(last_has_come_.begin(), last_has_come_.end(), false) == 0;
}

std::vector<ClockExchange::WaitingRank> ClockExchange::FindWaiting(Instant now) {
  std::vector<WaitingRank> all;
  if (now < checked_at_ + kCheckInterval) return all;
  checked_at_ = now;
  for (int local = 0; local < context_->members().num_ranks_here(); ++local) {
    const RankSlot& slot = context_->memory()->slot(context_->members().rank_of(local));
    for (int group = 0; group < kSpanningGroups; ++group) {
      WaitRecord& record = waits_[static_cast<size_t>(local)][static_cast<size_t>(group)];
      const uint64_t sequence = slot.groups[group].sequence.load(std::memory_order_acquire);
      const uint32_t completed = context_->memory()->control()->groups[group].completed.load();
      const bool waits = static_cast<int32_t>(completed - static_cast<uint32_t>(sequence)) < 0;
      if (!waits || sequence != record.sequence) {
        record = WaitRecord{sequence, now, false};
        continue;
      }
      if (record.is_reported || now < record.since + kReportAfter) continue;
      record.is_reported = true;
      WaitingRank waiting;
      waiting.rank = context_->members().rank_of(local);
      waiting.group = group;
      waiting.kind = static_cast<uint64_t>(slot.groups[group].SlotFor(sequence).kind());
      for (int i = 0; i < kGroups; ++i) waiting.sequences[i] = slot.groups[i].sequence.load();
      waiting.sequences[group] = sequence;
      all.push_back(waiting);
    }
  }
  return all;
}

std::string ClockExchange::PackChanges(const RoundsByTable& tables, uint32_t* count, bool* urgent) {
  std::string bytes;
  clocks_to_send_.clear();
  for (const auto& [id, rounds] : tables) {
    WorkerClocks* const clocks = rounds->clocks();
    std::vector<WorkerClocks::Snapshot>& sent = sent_clocks_[id];
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
                now.ticks >= sent[i].ticks + kUrgentTicks ||
                (!rounds->SumsRounds() &&
                 (now.adds != sent[i].adds || now.sync_point != sent[i].sync_point));
    }
    if (entries.empty()) continue;
    ++*count;
    AppendRaw(TableEntries{id, static_cast<int64_t>(entries.size() / sizeof(Entry))}, &bytes);
    bytes += entries;
    clocks_to_send_[id] = std::move(read);
  }
  return bytes;
}

Status ClockExchange::Send(const RoundsByTable& tables) {
  if (has_sent_last_) return Status::Ok();
  const Instant now = Clock::now();
  // The waiting ranks are read before the clocks, so that the message has all calls that a waiting
  // rank made before its wait.
  const std::vector<WaitingRank> waiting = FindWaiting(now);
  Header header{context_->members().rank(), 0, static_cast<uint32_t>(waiting.size()),
                is_closing_ ? uint64_t{1} : 0};
  bool urgent = !waiting.empty() || is_closing_;
  const std::string changes = PackChanges(tables, &header.tables, &urgent);
  has_changes_ = !changes.empty();
  if (!urgent && (changes.empty() || now < sent_at_ + interval_)) return Status::Ok();
  std::string bytes = MakeFrame(FrameKind::kClocks, header);
  bytes += changes;
  for (const WaitingRank& rank : waiting) AppendRaw(rank, &bytes);
  const Membership& members = context_->members();
  for (int node = 0; node < members.num_nodes(); ++node) {
    if (node == members.node()) continue;
    const Status posted =
        context_->control_channel()->messenger()->Post(members.leader_of(node), kClockTag, bytes);
    // A lost rank needs no clocks, and workers that wait for its rounds detect the loss themselves.
    if (!posted.ok() && !MayMeanLoss(posted)) return posted;
  }
  for (auto& [id, read] : clocks_to_send_) sent_clocks_[id] = std::move(read);
  clocks_to_send_.clear();
  has_changes_ = false;
  has_sent_last_ = is_closing_;
  sent_at_ = now;
  return Status::Ok();
}

}  // namespace multiverso
