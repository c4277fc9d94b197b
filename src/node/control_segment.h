// NodeControl: the words that the ranks of a node share besides their tables. This layout is the
// protocol between the ranks: NodeMemory finds the parts, and Group and LeaderExchange follow it.
#ifndef MULTIVERSO_NODE_CONTROL_SEGMENT_H_
#define MULTIVERSO_NODE_CONTROL_SEGMENT_H_

#include <atomic>
#include <cstdint>

#include "node/exchange_slot.h"
#include "node/flight_recorder.h"
#include "node/request_log.h"

namespace multiverso {

// The groups of ranks, by number: 0 is the world, 1 the workers of the session, 2 the workers of
// one node. Where every rank is a worker, group 0 serves as group 1. The first two span all nodes.
constexpr int kGroups = 3;
constexpr int kSpanningGroups = 2;

// The state of one rank of the session. The rank writes its own slot, and all others read it. The
// slot of a rank of another node is written by ranks of this node, from what they learn by messages
// and connections (LeaderExchange, ControlChannel, SessionState).
struct alignas(64) RankSlot {
  enum State : uint32_t {
    kAbsent = 0,  // not joined yet; also an alive or closed rank of another node
    kAlive = 1,
    kClosed = 2,    // ended in order
    kLeft = 3,      // ended without shutdown
    kUpdating = 4,  // of a rank of another node: a thread is writing the reason
    // The process ended, or the rank was excluded. Set for ranks of other nodes and, in a session
    // that survives losses, for ranks of this node.
    kDied = 5,
  };

  std::atomic<uint32_t> state;
  int32_t rank;
  int64_t pid;                           // 0 for ranks of other nodes
  int32_t worker_id;                     // or -1
  std::atomic<uint32_t> calls_logged;    // whether its last calls have been logged
  std::atomic<uint32_t> silence_logged;  // whether its silence has been logged
  std::atomic<uint32_t> was_excluded;    // whether others stopped waiting for the rank
  std::atomic<int64_t> last_heartbeat;   // in nanoseconds; 0 for never
  char reason[256];                      // why the rank left or died; written before its state

  struct alignas(64) InGroup {
    // The number, from 1, of the latest collective of the group that the rank has begun.
    std::atomic<uint64_t> sequence;
    // Used only in the slot of the first rank of another node: the latest collective for which the
    // slots of all members on that node are filled in (LeaderExchange).
    std::atomic<uint64_t> received;
    // The payload of collective n is in slots[n % 2]. A rank can be one collective ahead of a slow
    // reader, but not two, since the collective in between is not complete without the reader.
    ExchangeSlot slots[2];

    ExchangeSlot& SlotFor(uint64_t number) { return slots[number % 2]; }
    const ExchangeSlot& SlotFor(uint64_t number) const { return slots[number % 2]; }

    // Records that the rank has begun this collective, unless a later one is known.
    void RaiseSequence(uint64_t number) {
      uint64_t before = sequence.load(std::memory_order_relaxed);
      while (before < number &&
             !sequence.compare_exchange_weak(before, number, std::memory_order_release)) {
      }
    }
  } group[kGroups];
};

// The description of a table for readers from outside.
struct TableLabel {
  std::atomic<uint32_t> is_set;
  int32_t dtype;
  int64_t num_row;
  int64_t num_col;
  char name[64];
};

struct alignas(64) NodeControl {
  // Readers from outside check the magic number and the sizes before they trust other fields.
  static constexpr uint64_t kMagic = 0x3145444f4e2d564d;  // "MV-NODE1"
  std::atomic<uint64_t> magic;                            // written last
  uint32_t bytes_of_slot;
  uint32_t bytes_of_recorder;
  char version[32];  // of the library
  int32_t ranks;     // of the session
  int32_t nodes;
  int32_t node;
  int32_t mode;
  int32_t survives_losses;
  int32_t unused;
  int64_t started;  // seconds since 1970 UTC

  // The labels by table number. Tables with higher numbers have no label.
  TableLabel labels[FlightRecorder::kTables];
  // The path of the latest complete checkpoint.
  std::atomic<uint32_t> has_checkpoint;
  char checkpoint[252];

  struct alignas(64) GroupWords {
    std::atomic<uint64_t> total_begun;  // the sum of `sequence` over the members on this node
    // The latest collective that all members have begun, modulo 2^32. Members sleep on this word.
    alignas(64) std::atomic<uint32_t> completed;
    std::atomic<uint32_t> sleepers;
    // The latest collective that all members on this node have begun, modulo 2^32. In a group that
    // spans nodes, the node's leader sleeps on this word.
    alignas(64) std::atomic<uint32_t> gathered;
    std::atomic<uint32_t> sleeping_leaders;
  } group[kGroups];

  // The service thread of the node's leader sleeps on the bell; ranks change it to wake the thread.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> bell_sleepers;

  // Whether any rank has been lost. It is set before the state of the lost rank.
  alignas(64) std::atomic<uint32_t> some_lost;

  enum Abort : uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  alignas(64) std::atomic<uint32_t> abort;
  int32_t aborted_by;
  int32_t abort_code;   // a Code
  int32_t abort_about;  // the rank that the error is about, or -1
  char abort_reason[512];

  // The arrays behind this struct have one entry per rank of the session, by rank.
  RankSlot* slots() { return reinterpret_cast<RankSlot*>(this + 1); }
  const RankSlot* slots() const { return reinterpret_cast<const RankSlot*>(this + 1); }
  FlightRecorder* recorders(int num_ranks) {
    return reinterpret_cast<FlightRecorder*>(slots() + num_ranks);
  }
  const FlightRecorder* recorders(int num_ranks) const {
    return reinterpret_cast<const FlightRecorder*>(slots() + num_ranks);
  }
  RequestLog* request_logs(int num_ranks) {
    return reinterpret_cast<RequestLog*>(recorders(num_ranks) + num_ranks);
  }

  static int64_t BytesFor(int64_t ranks) {
    return static_cast<int64_t>(sizeof(NodeControl)) +
           ranks *
               static_cast<int64_t>(sizeof(RankSlot) + sizeof(FlightRecorder) + sizeof(RequestLog));
  }
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_CONTROL_SEGMENT_H_
