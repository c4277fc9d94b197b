#include "node/node_snapshot.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace multiverso {
namespace {

const char* NameOfState(uint32_t state) {
  switch (state) {
    case RankSlot::kAlive:
      return "here";
    case RankSlot::kClosed:
      return "closed";
    case RankSlot::kLeft:
      return "left";
    case RankSlot::kDied:
      return "died";
    default:
      return "absent";
  }
}

// Returns the seconds between two instants, or 0 if `to` is unknown (0) or earlier.
double SecondsFrom(int64_t from, int64_t to) {
  return static_cast<double>(std::max<int64_t>(to - from, 0)) * 1e-9;
}

}  // namespace

const char* NameOf(CallKind call) {
  const auto number = static_cast<int32_t>(call);
  if (number > 0 && number < kCollectiveCalls) return NameOf(static_cast<RequestKind>(number));
  return NameOf(static_cast<CollectiveKind>(number - kCollectiveCalls));
}

// A copy of a flight recorder's entry, since the rank may write to the entry at any time.
struct NodeSnapshot::Call {
  uint64_t number;
  int64_t bytes;
  CallKind call;
  int64_t table;
  int32_t outcome;
  double ago;   // seconds since the call began
  double took;  // the duration in seconds, so far if it is under way; 0 if its end was not timed

  bool is_under_way() const { return outcome == static_cast<int32_t>(Code::kPending); }
};

Result<NodeSnapshot> NodeSnapshot::Of(const char* data, int64_t bytes) {
  const auto* const control = reinterpret_cast<const NodeControl*>(data);
  if (bytes < static_cast<int64_t>(sizeof(NodeControl)) ||
      control->magic.load(std::memory_order_acquire) != NodeControl::kMagic) {
    return Status(Code::kUnsupported, "this is not a control segment of Multiverso");
  }
  if (control->bytes_of_slot != sizeof(RankSlot) ||
      control->bytes_of_recorder != sizeof(FlightRecorder) || control->num_ranks < 1 ||
      control->num_ranks > kMaxRanks || control->num_ranks_here < 1 ||
      control->num_ranks_here > control->num_ranks ||
      bytes < NodeControl::BytesFor(control->num_ranks, control->num_ranks_here)) {
    return Status(Code::kUnsupported, StrCat("this is the control segment of another version: ",
                                             TextOf(control->version)));
  }
  return NodeSnapshot(control);
}

int NodeSnapshot::size() const {
  return is_elastic() ? std::clamp(control_->joined.count(), 0, num_ranks_) : num_ranks_;
}

std::string NodeSnapshot::NameOfTable(int64_t table) const {
  if (table < 0 || table >= FlightRecorder::kTables) return "";
  const TableLabel& label = control_->labels[table];
  return label.is_set.load(std::memory_order_acquire) == 0 ? "" : TextOf(label.name);
}

const FlightRecorder* NodeSnapshot::RecorderOf(int rank) const {
  const RankSlot& slot = control_->slots()[rank];
  const int local_rank = slot.local_rank;
  if (slot.pid == 0 || local_rank < 0 || local_rank >= num_ranks_here_) return nullptr;
  return control_->recorders(num_ranks_) + local_rank;
}

std::vector<NodeSnapshot::Call> NodeSnapshot::CallsOf(int rank, int max_calls) const {
  std::vector<Call> calls;
  const FlightRecorder* const recorder = RecorderOf(rank);
  if (recorder == nullptr) return calls;
  const int64_t now = NanosecondsNow();
  for (const FlightRecorder::Entry& entry : recorder->entries) {
    Call call{};
    call.number = entry.number.load(std::memory_order_relaxed);
    if (call.number == 0) continue;
    call.outcome = entry.outcome.load(std::memory_order_acquire);
    const int64_t began = entry.began.load(std::memory_order_relaxed);
    const int64_t ended = entry.ended.load(std::memory_order_relaxed);
    call.bytes = entry.bytes.load(std::memory_order_relaxed);
    call.call = static_cast<CallKind>(entry.call.load(std::memory_order_relaxed));
    call.table = entry.table.load(std::memory_order_relaxed);
    call.ago = SecondsFrom(began, now);
    call.took = call.is_under_way() ? call.ago : SecondsFrom(began, ended);
    calls.push_back(call);
  }
  std::sort(calls.begin(), calls.end(),
            [](const Call& a, const Call& b) { return a.number > b.number; });
  if (calls.size() > static_cast<size_t>(max_calls)) calls.resize(static_cast<size_t>(max_calls));
  return calls;
}

std::string NodeSnapshot::Describe(const Call& call) const {
  std::string text = NameOf(call.call);
  const std::string name = NameOfTable(call.table);
  if (!name.empty()) text += StrCat(" of table '", name, "'");
  if (name.empty() && call.table >= 0) text += StrCat(" of table number ", call.table);
  if (call.bytes > 0) text += StrCat(" (", SizeText(call.bytes), ")");
  if (call.is_under_way()) return text + StrCat(", in it for ", TimeText(call.took));
  text += StrCat(", ", TimeText(call.ago), " ago");
  if (call.took > 0) text += StrCat(", took ", TimeText(call.took));
  if (call.outcome != 0) text += StrCat(", failed with ", NameOf(static_cast<Code>(call.outcome)));
  return text;
}

std::string NodeSnapshot::LastCall(int rank) const {
  const std::vector<Call> calls = CallsOf(rank, 1);
  return calls.empty() ? "" : Describe(calls[0]);
}

std::string NodeSnapshot::LastTable(int rank) const {
  const std::vector<Call> calls = CallsOf(rank, 1);
  return calls.empty() ? "" : NameOfTable(calls[0].table);
}

std::string NodeSnapshot::LastCalls(int rank, int max_calls) const {
  std::string lines;
  for (const Call& call : CallsOf(rank, max_calls)) {
    lines += StrCat(lines.empty() ? "" : "\n", "  call ", call.number, ": ", Describe(call));
  }
  return lines;
}

std::vector<int> NodeSnapshot::AwaitedBy(int rank) const {
  std::vector<int> awaited;
  const std::vector<Call> calls = CallsOf(rank, 1);
  if (calls.empty() || !calls[0].is_under_way()) return awaited;
  const auto may_be_awaited = [&](int other) {
    const RankSlot& slot = control_->slots()[other];
    return other != rank && RecorderOf(other) != nullptr && slot.state.load() == RankSlot::kAlive;
  };
  for (int group = 0; group < kGroups; ++group) {
    const auto sequence_of = [&](int member) {
      return control_->slots()[member].groups[group].sequence.load(std::memory_order_acquire);
    };
    const uint64_t sequence = sequence_of(rank);
    const uint32_t completed = control_->groups[group].completed.load();
    // `completed` is modulo 2^32, so only the difference can be compared.
    if (static_cast<int32_t>(completed - static_cast<uint32_t>(sequence)) >= 0) continue;
    for (int other = 0; other < size(); ++other) {
      const bool is_member = group == kWorldGroup || control_->slots()[other].worker_id >= 0;
      if (is_member && may_be_awaited(other) && sequence_of(other) < sequence) {
        awaited.push_back(other);
      }
    }
  }
  const int64_t table = calls[0].table;
  if (!awaited.empty() || control_->options.mode.mode == Mode::kAsync || table < 0 ||
      table >= FlightRecorder::kTables) {
    return awaited;
  }
  // In sync mode and with bounded staleness, a rank waits for the ranks that have made fewer adds.
  const auto adds_of = [&](int member) { return RecorderOf(member)->traffic[table].adds.load(); };
  for (int other = 0; other < size(); ++other) {
    if (may_be_awaited(other) && adds_of(other) < adds_of(rank)) awaited.push_back(other);
  }
  return awaited;
}

JsonObject NodeSnapshot::DescribeSession() const {
  const AgreedOptions& options = control_->options;
  JsonObject node;
  node.Add("version", TextOf(control_->version)).Add("ranks", size()).Add("elastic", is_elastic());
  node.Add("max_workers", options.max_workers).Add("nodes", control_->num_nodes);
  node.Add("node", control_->node).Add("mode", static_cast<int>(options.mode.mode));
  node.Add("continues", options.on_loss == OnLoss::kContinue).Add("started", control_->started);
  return node;
}

JsonValue NodeSnapshot::Json() const {
  const int64_t now = NanosecondsNow();
  std::vector<int> node_ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (RecorderOf(rank) != nullptr) node_ranks.push_back(rank);
  }
  const auto describe_rank = [&](int rank) {
    const RankSlot& slot = control_->slots()[rank];
    const std::vector<Call> calls = CallsOf(rank, 1);
    const int64_t heard = slot.last_heartbeat.load();
    JsonObject object;
    object.Add("rank", rank).Add("pid", slot.pid).Add("worker_id", slot.worker_id);
    object.Add("state", NameOfState(slot.state.load()));
    object.Add("calls", RecorderOf(rank)->calls.load());
    object.Add("in_call", !calls.empty() && calls[0].is_under_way());
    object.Add("silent_for", heard == 0 ? JsonValue() : ToJson(SecondsFrom(heard, now)));
    object.Add("call", calls.empty() ? JsonValue() : ToJson(Describe(calls[0])));
    return object.Add("waits_for", JsonList(AwaitedBy(rank), [](int other) { return other; }))
        .Take();
  };
  std::vector<int> tables;
  for (int table = 0; table < FlightRecorder::kTables; ++table) {
    if (control_->labels[table].is_set.load(std::memory_order_acquire) != 0) {
      tables.push_back(table);
    }
  }
  const auto describe_table = [&](int number) {
    const TableLabel& label = control_->labels[number];
    JsonObject object;
    object.Add("id", number).Add("name", TextOf(label.name)).Add("num_row", label.num_row);
    object.Add("num_col", label.num_col).Add("capacity", label.capacity);
    const auto load = [](const std::atomic<int64_t>& count) { return count.load(); };
    object.Add("keys", label.capacity > 0 ? JsonList(label.key_counts, load) : JsonValue());
    using Traffic = FlightRecorder::Traffic;
    const auto add_counts = [&](const char* key, std::atomic<uint64_t> Traffic::* count) {
      object.Add(key, JsonList(node_ranks, [&](int rank) {
                   return (RecorderOf(rank)->traffic[number].*count).load();
                 }));
    };
    add_counts("gets", &Traffic::gets);
    add_counts("adds", &Traffic::adds);
    add_counts("bytes_got", &Traffic::bytes_got);
    add_counts("bytes_added", &Traffic::bytes_added);
    add_counts("bytes_sent", &Traffic::bytes_sent);
    add_counts("bytes_received", &Traffic::bytes_received);
    add_counts("raw_bytes_sent", &Traffic::raw_bytes_sent);
    add_counts("raw_bytes_received", &Traffic::raw_bytes_received);
    add_counts("encoding", &Traffic::encoding);
    add_counts("waiting", &Traffic::waiting);
    return object.Take();
  };
  JsonObject node = DescribeSession();
  node.Add("nanoseconds", now).Add("session", control_->session);
  node.Add("name", TextOf(control_->options.name));
  node.Add("published", control_->published.load());
  const uint32_t saves = control_->num_checkpoints.load();
  node.Add("saved", saves == 0 ? JsonValue() : ToJson(TextOf(control_->checkpoints[saves % 2])));
  node.Add("members", JsonList(node_ranks, describe_rank));
  return node.Add("tables", JsonList(tables, describe_table)).Take();
}

}  // namespace multiverso
