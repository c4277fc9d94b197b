// NodeControl: the words that the ranks of a node share besides their tables. Its layout is the
// protocol between them; NodeGroup is the code that follows it.
#ifndef MULTIVERSO_NODE_CONTROL_SEGMENT_H_
#define MULTIVERSO_NODE_CONTROL_SEGMENT_H_

#include <atomic>
#include <cstdint>

#include "node/exchange_slot.h"
#include "node/flight_recorder.h"
#include "node/request_log.h"

namespace multiverso {

// The sets of ranks that meet: all of them, those that are workers, and the workers of a node. If
// all are workers the second is the first. The others span all nodes of the session.
constexpr int kGroups = 3;
constexpr int kSpanningCircles = 2;

// Of one rank of the session. The rank writes it, all others read it. That of a rank of another
// node is written by those who bring its news: the leader of a circle (Bridge) and the service
// threads (ControlChannel).
struct alignas(64) RankSlot {
  enum State : uint32_t {
    kAbsent = 0,
    kHere = 1,
    kClosed = 2,
    kLeft = 3,
    // Of ranks of other nodes only, which are absent otherwise.
    kWritingNews = 4,
    // Of those, and of ranks of this node that a session goes on without.
    kDied = 5,
  };

  std::atomic<uint32_t> state;
  int32_t rank;
  int64_t pid;                         // 0 of ranks of other nodes
  int32_t worker_id;                   // or -1
  std::atomic<uint32_t> was_told;      // its last calls have been logged
  std::atomic<uint32_t> was_late;      // that it has been silent has been logged
  std::atomic<uint32_t> was_excluded;  // the others wait for it no longer, since it was silent
  std::atomic<int64_t> heard;          // when of its last sign of life, in nanoseconds; 0 for never
  char reason[256];  // why it left; written before state becomes kLeft (or how it died)

  struct alignas(64) InGroup {
    std::atomic<uint64_t> arrivals;  // at how many meetings of the circle it has arrived
    // Of the first rank of another node, where sessions go on without lost ranks: the last meeting
    // for which all that this node brought is in the slots of its ranks (Muster).
    std::atomic<uint64_t> mustered;
    // What it brought to meeting n, in n % 2: a rank can be one meeting ahead of a slow reader, but
    // not two, since it would have to meet the reader in the one between.
    ExchangeSlot deposit[2];

    ExchangeSlot& SlotFor(uint64_t meeting) { return deposit[meeting % 2]; }
    const ExchangeSlot& SlotFor(uint64_t meeting) const { return deposit[meeting % 2]; }
  } circle[kGroups];
};

// What a table is, for those who look from outside.
struct TableLabel {
  std::atomic<uint32_t> is_set;
  int32_t dtype;
  int64_t num_row;
  int64_t num_col;
  char name[64];
};

struct alignas(64) NodeControl {
  // What it is, for who finds it without having been told: it has to be checked before anything
  // else is believed.
  static constexpr uint64_t kMagic = 0x3145444f4e2d564d;  // "MV-NODE1"
  std::atomic<uint64_t> magic;                            // written last
  uint32_t bytes_of_slot;
  uint32_t bytes_of_log;
  char version[32];  // of the library
  int32_t ranks;     // of the session
  int32_t nodes;
  int32_t node;
  int32_t mode;
  int32_t survives_losses;
  int32_t unused;
  int64_t started;  // seconds since 1970 UTC

  // Of the first tables, by number.
  TableLabel labels[FlightRecorder::kTables];
  // The checkpoint that was completed last, if any.
  std::atomic<uint32_t> has_saved;
  char saved[252];

  struct alignas(64) GroupWords {
    std::atomic<uint64_t> total_arrivals;  // of all its members on this node
    // The number of the last meeting at which all have arrived, modulo 2^32. Sleepers sleep here.
    alignas(64) std::atomic<uint32_t> completed;
    std::atomic<uint32_t> sleepers;
    // The same for the members on this node alone, in a circle that spans nodes. Its leader sleeps
    // here.
    alignas(64) std::atomic<uint32_t> gathered;
    std::atomic<uint32_t> sleeping_leaders;
  } circle[kGroups];

  // Rung for the service thread of the node's leader, which sleeps here.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> bell_sleepers;

  // Whether the session goes on without somebody: set before that rank's state.
  alignas(64) std::atomic<uint32_t> some_lost;

  enum Abort : uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  alignas(64) std::atomic<uint32_t> abort;
  int32_t aborted_by;
  int32_t abort_code;   // why: a Code
  int32_t abort_about;  // the rank that the error was about, or -1
  char abort_reason[512];

  RankSlot* slots() { return reinterpret_cast<RankSlot*>(this + 1); }
  const RankSlot* slots() const { return reinterpret_cast<const RankSlot*>(this + 1); }
  // Of a session of that many ranks. Those of ranks of other nodes stay empty.
  FlightRecorder* logs(int of) { return reinterpret_cast<FlightRecorder*>(slots() + of); }
  const FlightRecorder* logs(int of) const {
    return reinterpret_cast<const FlightRecorder*>(slots() + of);
  }
  // Of the requests that ranks of other nodes sent to this one.
  RequestLog* request_logs(int of) { return reinterpret_cast<RequestLog*>(logs(of) + of); }

  static int64_t BytesFor(int64_t ranks) {
    return static_cast<int64_t>(sizeof(NodeControl)) +
           ranks *
               static_cast<int64_t>(sizeof(RankSlot) + sizeof(FlightRecorder) + sizeof(RequestLog));
  }
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_CONTROL_SEGMENT_H_
