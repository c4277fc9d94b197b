#include "node/node_snapshot.h"

#include <algorithm>
#include <cstdio>
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

// Returns a text in memory that other processes may be writing to.
template <size_t N>
std::string TextOf(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += '\\';
    if (byte < 0x20 || byte >= 0x7f) {
      // Other bytes are written as Latin-1 characters, since a name may be cut within a UTF-8 one.
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Returns the seconds between two instants, or 0 if `to` is unknown (0) or earlier.
double SecondsFrom(int64_t from, int64_t to) {
  return static_cast<double>(std::max<int64_t>(to - from, 0)) * 1e-9;
}

// Returns the seconds since a heartbeat as JSON, or null if there was none.
std::string SilentFor(int64_t heard, int64_t now) {
  return heard == 0 ? "null" : StrCat(SecondsFrom(heard, now));
}

template <class Range, class Format>
std::string JsonList(const Range& range, const Format& format) {
  std::string text = "[";
  for (const auto& element : range) text += (text.size() > 1 ? "," : "") + format(element);
  return text + "]";
}

}  // namespace

const char* NameOf(CallKind call) {
  if (call > CallKind::kNone && call < CallKind::kCollectiveGet) {
    return NameOf(static_cast<RequestKind>(call));
  }
  switch (call) {
    case CallKind::kNone:
      break;
    case CallKind::kCollectiveGet:
      return "get(sync=True)";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kCreateTable:
      return "the creation of a table";
    case CallKind::kAggregate:
      return "aggregate";
    case CallKind::kSave:
      return "save";
    case CallKind::kSaveWait:
      return "wait_for_save";
    case CallKind::kLoad:
      return "load";
    case CallKind::kClose:
      return "shutdown";
    case CallKind::kPublish:
      return "publish";
  }
  return "an unknown call";
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
      control->num_ranks > kMaxRanks || bytes < NodeControl::BytesFor(control->num_ranks)) {
    return Status(Code::kUnsupported, StrCat("this is the control segment of another version: ",
                                             TextOf(control->version)));
  }
  return NodeSnapshot(control);
}

int NodeSnapshot::size() const {
  return is_elastic() ? std::clamp(control_->joined.load(), 0, num_ranks_) : num_ranks_;
}

std::string NodeSnapshot::NameOfTable(int64_t table) const {
  if (table < 0 || table >= FlightRecorder::kTables) return "";
  const TableLabel& label = control_->labels[table];
  return label.is_set.load(std::memory_order_acquire) == 0 ? "" : TextOf(label.name);
}

std::vector<NodeSnapshot::Call> NodeSnapshot::CallsOf(int rank, int max_calls) const {
  const FlightRecorder& recorder = control_->recorders(num_ranks_)[rank];
  const int64_t now = NanosecondsNow();
  std::vector<Call> calls;
  for (const FlightRecorder::Entry& entry : recorder.entries) {
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
    return other != rank && slot.pid != 0 && slot.state.load() == RankSlot::kAlive;
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
  if (!awaited.empty() || control_->mode == 0 || table < 0 || table >= FlightRecorder::kTables) {
    return awaited;
  }
  // In sync mode and with bounded staleness, a rank waits for the ranks that have made fewer adds.
  const auto adds_of = [&](int member) {
    return control_->recorders(num_ranks_)[member].traffic[table].adds.load();
  };
  for (int other = 0; other < size(); ++other) {
    if (may_be_awaited(other) && adds_of(other) < adds_of(rank)) awaited.push_back(other);
  }
  return awaited;
}

std::string NodeSnapshot::Json() const {
  const int64_t now = NanosecondsNow();
  std::vector<int> node_ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (control_->slots()[rank].pid != 0) node_ranks.push_back(rank);
  }
  const auto describe_rank = [&](int rank) {
    const RankSlot& slot = control_->slots()[rank];
    const std::vector<Call> calls = CallsOf(rank, 1);
    const bool is_in_call = !calls.empty() && calls[0].is_under_way();
    return StrCat(
        "{\"rank\":", rank, ",\"pid\":", slot.pid, ",\"worker_id\":", slot.worker_id,
        ",\"state\":\"", NameOfState(slot.state.load()),
        "\",\"calls\":", control_->recorders(num_ranks_)[rank].calls.load(),
        ",\"in_call\":", is_in_call ? "true" : "false",
        ",\"silent_for\":", SilentFor(slot.last_heartbeat.load(), now),
        ",\"call\":", calls.empty() ? "null" : Quoted(Describe(calls[0])),
        ",\"waits_for\":", JsonList(AwaitedBy(rank), [](int other) { return StrCat(other); }), "}");
  };
  std::vector<int> tables;
  for (int table = 0; table < FlightRecorder::kTables; ++table) {
    if (control_->labels[table].is_set.load(std::memory_order_acquire) != 0) {
      tables.push_back(table);
    }
  }
  const auto describe_table = [&](int number) {
    const TableLabel& label = control_->labels[number];
    const auto counts = [&](std::atomic<uint64_t> FlightRecorder::Traffic::* count) {
      return JsonList(node_ranks, [&](int rank) {
        return StrCat((control_->recorders(num_ranks_)[rank].traffic[number].*count).load());
      });
    };
    std::string keys = "null";
    if (label.capacity > 0) {
      keys = "[";
      for (const auto& key_count : label.key_counts) keys += StrCat(key_count.load(), ",");
      keys.back() = ']';
    }
    return StrCat("{\"id\":", number, ",\"name\":", Quoted(TextOf(label.name)),
                  ",\"num_row\":", label.num_row, ",\"num_col\":", label.num_col,
                  ",\"capacity\":", label.capacity, ",\"keys\":", keys,
                  ",\"gets\":", counts(&FlightRecorder::Traffic::gets),
                  ",\"adds\":", counts(&FlightRecorder::Traffic::adds),
                  ",\"bytes_got\":", counts(&FlightRecorder::Traffic::bytes_got),
                  ",\"bytes_added\":", counts(&FlightRecorder::Traffic::bytes_added),
                  ",\"bytes_sent\":", counts(&FlightRecorder::Traffic::bytes_sent),
                  ",\"bytes_received\":", counts(&FlightRecorder::Traffic::bytes_received),
                  ",\"raw_bytes_sent\":", counts(&FlightRecorder::Traffic::raw_bytes_sent),
                  ",\"raw_bytes_received\":", counts(&FlightRecorder::Traffic::raw_bytes_received),
                  ",\"encoding\":", counts(&FlightRecorder::Traffic::encoding),
                  ",\"waiting\":", counts(&FlightRecorder::Traffic::waiting), "}");
  };
  return StrCat("{\"version\":", Quoted(TextOf(control_->version)), ",\"ranks\":", size(),
                ",\"elastic\":", is_elastic() ? "true" : "false",
                ",\"max_workers\":", control_->max_workers, ",\"nodes\":", control_->num_nodes,
                ",\"node\":", control_->node, ",\"mode\":", control_->mode,
                ",\"continues\":", control_->survives_losses != 0 ? "true" : "false",
                ",\"started\":", control_->started, ",\"nanoseconds\":", now,
                ",\"name\":", Quoted(TextOf(control_->name)),
                ",\"published\":", control_->published.load(), ",\"saved\":",
                control_->has_checkpoint.load() != 0 ? Quoted(TextOf(control_->checkpoint))
                                                     : std::string("null"),
                ",\"members\":", JsonList(node_ranks, describe_rank),
                ",\"tables\":", JsonList(tables, describe_table), "}");
}

}  // namespace multiverso
