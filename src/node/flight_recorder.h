// FlightRecorder: the last calls of a rank, and its traffic with each table, in the control segment
// of its node. Other processes can read the recorder after the rank has died.
//
// A rank writes only its own recorder, with plain stores and no lock, so a note costs only a few
// nanoseconds. Two threads of a rank may spoil each other's note or lose a count, which is harmless
// since nothing is decided by the records.
#ifndef MULTIVERSO_NODE_FLIGHT_RECORDER_H_
#define MULTIVERSO_NODE_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "shard/request.h"

namespace multiverso {

// The calls of a rank. Calls on tables have the numbers of RequestKind.
enum class CallKind : int32_t {
  kNone = 0,
  kCollectiveGet = 32,
  kBarrier,
  kCreateTable,
  kAggregate,
  kSave,
  kSaveWait,
  kLoad,
  kClose,
};

constexpr CallKind CallOf(RequestKind kind) { return static_cast<CallKind>(kind); }
const char* NameOf(CallKind call);

struct alignas(64) FlightRecorder {
  static constexpr int kKept = 32;
  // The number of tables with counts of their own. Tables created later share the last counts.
  static constexpr int kTables = 64;
  // Smaller table calls record an approximate time, and record a duration only if they had to wait,
  // because reading an exact clock would take a tenth of their time.
  static constexpr int64_t kTimedBytes = int64_t{1} << 20;

  struct alignas(64) Entry {
    std::atomic<uint64_t> number;  // of the rank's calls, from 1; 0 if unused
    std::atomic<int64_t> began;    // in nanoseconds of Clock
    std::atomic<int64_t> ended;    // 0 if the time was not read
    std::atomic<int64_t> bytes;    // moved by the call
    std::atomic<int32_t> call;     // a CallKind
    std::atomic<int32_t> table;    // the number of the table, or -1
    std::atomic<int32_t> outcome;  // a Code; kPending until the call ends

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
  };

  std::atomic<uint64_t> calls;
  Entry entries[kKept];
  Traffic traffic[kTables];

  // Records that a call begins. The caller ends the entry.
  Entry* Begin(CallKind call, int64_t table, int64_t bytes) {
    const uint64_t number = calls.load(std::memory_order_relaxed) + 1;
    calls.store(number, std::memory_order_relaxed);
    Entry& entry = entries[number % kKept];
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
    Raise(&counts.gets, 1);
    Raise(&counts.bytes_got, static_cast<uint64_t>(bytes));
  }
  void CountAdd(int64_t table, int64_t bytes) {
    Traffic& counts = CountsOf(table);
    Raise(&counts.adds, 1);
    Raise(&counts.bytes_added, static_cast<uint64_t>(bytes));
  }

 private:
  Traffic& CountsOf(int64_t table) { return traffic[table < kTables ? table : kTables - 1]; }
  static void Raise(std::atomic<uint64_t>* count, uint64_t by) {
    count->store(count->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_FLIGHT_RECORDER_H_
