// FlightRecorder: the last calls of a rank, and its traffic with each table, in the control segment
// of its node. Other processes can read the recorder, even after the rank has died.
//
// A rank writes only its own recorder, with relaxed stores and no lock, so recording a call costs
// only a few nanoseconds. Two threads of a rank may overwrite each other's entry or lose a count.
// That is harmless, since recorders serve only error messages and observers.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "node/exchange_slot.h"
#include "shard/request.h"

namespace multiverso {

// The number of a collective call is its CollectiveKind plus this number.
inline constexpr int32_t kCollectiveCalls = 32;
static_assert(static_cast<int32_t>(RequestKind::kEnd) <= kCollectiveCalls);

constexpr int32_t NumberOf(CollectiveKind kind) {
  return kCollectiveCalls + static_cast<int32_t>(kind);
}

// The calls of a rank. Calls on tables have the numbers of RequestKind.
enum class CallKind : int32_t {
  kNone = 0,
  kBarrier = NumberOf(CollectiveKind::kBarrier),
  kCreateTable = NumberOf(CollectiveKind::kCreateTable),
  kCollectiveGet = NumberOf(CollectiveKind::kCollectiveGet),
  kAggregate = NumberOf(CollectiveKind::kAggregate),
  kSave = NumberOf(CollectiveKind::kSave),
  kSaveWait = NumberOf(CollectiveKind::kSaveWait),
  kLoad = NumberOf(CollectiveKind::kLoad),
  kClose = NumberOf(CollectiveKind::kClose),
  kPublish = NumberOf(CollectiveKind::kPublish),
  kBroadcast = NumberOf(CollectiveKind::kBroadcast),
  kAllGather = NumberOf(CollectiveKind::kAllGather),
  kAllToAll = NumberOf(CollectiveKind::kAllToAll),
  kReduceScatter = NumberOf(CollectiveKind::kReduceScatter),
  kLeaving = NumberOf(CollectiveKind::kLeaving),
};

// Returns whether only the workers make the collective call.
constexpr bool IsOfWorkers(CallKind call) {
  return call == CallKind::kAggregate ||
         (call >= CallKind::kBroadcast && call <= CallKind::kReduceScatter);
}
constexpr CallKind CallOf(RequestKind kind) { return static_cast<CallKind>(kind); }
const char* NameOf(CallKind call);

// What calls and rounds add to the traffic of a table.
struct MessageCounts {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  // The bytes of the same messages if their values were not encoded.
  int64_t raw_bytes_sent = 0;
  int64_t raw_bytes_received = 0;
  Clock::duration encoding{};  // and decoding
  Clock::duration waiting{};   // for other nodes
};

struct alignas(64) FlightRecorder {
  static constexpr int kEntries = 32;
  // Tables from number kTables - 1 on share the last traffic counts.
  static constexpr int kTables = 64;
  // Table calls that move fewer bytes record an approximate start, and an end only if they had to
  // wait, because reading an exact clock would take a tenth of their time.
  static constexpr int64_t kTimedBytes = int64_t{1} << 20;

  struct alignas(64) Entry {
    std::atomic<uint64_t> number;  // counts the rank's calls from 1; 0 if the entry is unused
    std::atomic<int64_t> began;    // in nanoseconds of Clock
    std::atomic<int64_t> ended;    // 0 until the call ends, and after it if no time was recorded
    std::atomic<int64_t> bytes;    // that the call moves
    std::atomic<int32_t> call;     // a CallKind
    std::atomic<int32_t> table;    // the number of the table; -1 if the call is not on a table
    std::atomic<int32_t> outcome;  // a Code; kPending until the call ends

    Instant began_at() const {
      return Instant(std::chrono::nanoseconds(began.load(std::memory_order_relaxed)));
    }
    void End(Code code) {
      ended.store(NanosecondsNow(), std::memory_order_relaxed);
      outcome.store(static_cast<int32_t>(code), std::memory_order_relaxed);
    }
    // Ends the record of a call that did not wait.
    void EndAtOnce(Code code) {
      if (bytes.load(std::memory_order_relaxed) >= kTimedBytes) return End(code);
      outcome.store(static_cast<int32_t>(code), std::memory_order_relaxed);
    }
  };

  // The traffic from and to one table.
  struct Traffic {
    std::atomic<uint64_t> gets;
    std::atomic<uint64_t> adds;
    std::atomic<uint64_t> bytes_got;
    std::atomic<uint64_t> bytes_added;
    // Messages between nodes: those of the rank's calls and, on the leader of a node, of rounds.
    std::atomic<uint64_t> bytes_sent;
    std::atomic<uint64_t> bytes_received;
    std::atomic<uint64_t> raw_bytes_sent;  // see MessageCounts
    std::atomic<uint64_t> raw_bytes_received;
    std::atomic<uint64_t> encoding;  // in nanoseconds
    std::atomic<uint64_t> waiting;
  };

  std::atomic<uint64_t> calls;  // the number of calls begun
  Entry entries[kEntries];      // call n is in entries[n % kEntries]
  Traffic traffic[kTables];

  // Records that a call begins. The caller ends the returned entry with End or EndAtOnce.
  Entry* Begin(CallKind call, int64_t table, int64_t bytes) {
    const uint64_t number = calls.load(std::memory_order_relaxed) + 1;
    calls.store(number, std::memory_order_relaxed);
    Entry& entry = entries[number % kEntries];
    entry.number.store(number, std::memory_order_relaxed);
    const bool is_timed = table < 0 || bytes >= kTimedBytes;
    entry.began.store(is_timed ? NanosecondsNow() : RecentNanoseconds(), std::memory_order_relaxed);
    entry.ended.store(0, std::memory_order_relaxed);
    entry.bytes.store(bytes, std::memory_order_relaxed);
    entry.call.store(static_cast<int32_t>(call), std::memory_order_relaxed);
    entry.table.store(static_cast<int32_t>(table), std::memory_order_relaxed);
    entry.outcome.store(static_cast<int32_t>(Code::kPending), std::memory_order_release);
    return &entry;
  }

  void CountGet(int64_t table, int64_t bytes) {
    Traffic& counts = CountsOf(table);
    Increase(&counts.gets, 1);
    Increase(&counts.bytes_got, static_cast<uint64_t>(bytes));
  }
  void CountAdd(int64_t table, int64_t bytes) {
    Traffic& counts = CountsOf(table);
    Increase(&counts.adds, 1);
    Increase(&counts.bytes_added, static_cast<uint64_t>(bytes));
  }
  void CountMessages(int64_t table, const MessageCounts& counts) {
    Traffic& traffic_of_table = CountsOf(table);
    Increase(&traffic_of_table.bytes_sent, static_cast<uint64_t>(counts.bytes_sent));
    Increase(&traffic_of_table.bytes_received, static_cast<uint64_t>(counts.bytes_received));
    Increase(&traffic_of_table.raw_bytes_sent, static_cast<uint64_t>(counts.raw_bytes_sent));
    Increase(&traffic_of_table.raw_bytes_received,
             static_cast<uint64_t>(counts.raw_bytes_received));
    Increase(&traffic_of_table.encoding, NanosecondsIn(counts.encoding));
    Increase(&traffic_of_table.waiting, NanosecondsIn(counts.waiting));
  }

 private:
  Traffic& CountsOf(int64_t table) { return traffic[table < kTables ? table : kTables - 1]; }
  static uint64_t NanosecondsIn(Clock::duration time) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  }
  static void Increase(std::atomic<uint64_t>* count, uint64_t by) {
    count->store(count->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

}  // namespace multiverso
