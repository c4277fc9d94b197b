// NodeControl: the memory that the ranks of a node share besides their tables: states, heartbeats,
// collective calls and aborts. Its layout is the protocol between the ranks (Group,
// LeaderExchange).
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/presence.h"
#include "node/agreed_options.h"
#include "node/exchange_slot.h"
#include "node/flight_recorder.h"
#include "node/joined_ranks.h"

namespace multiverso {

// The groups of ranks: all ranks, the workers of the session, and the workers of one node. If every
// rank is a worker, kWorkerGroup is not used: kWorldGroup takes its place.
enum GroupIndex : int { kWorldGroup = 0, kWorkerGroup = 1, kNodeWorkerGroup = 2 };
constexpr int kGroups = 3;
constexpr int kSpanningGroups = 2;  // the first groups, whose members may be on several nodes

// What this node knows about one rank of the session. A rank of this node writes its own slot;
// other ranks of the node set only its `state` (to kDied), excluded_by, ended_at, calls_logged,
// silence_logged and lateness_logged. They write the slot of a rank of another node, from messages
// and connections (PeerStatus).
struct alignas(64) RankSlot {
  enum State : uint32_t {
    kAbsent = 0,  // not joined yet; also an alive or closed rank of another node
    kAlive = 1,
    kClosed = 2,    // ended by shutdown
    kLeft = 3,      // ended without shutdown
    kUpdating = 4,  // only for a rank of another node: a thread is writing the reason
    // The process ended, or the rank was excluded. Set for ranks of other nodes and, in a session
    // that survives losses, for ranks of this node.
    kDied = 5,
  };

  std::atomic<uint32_t> state;
  int32_t rank;  // this and the next two: 0 for ranks of other nodes
  int64_t pid;
  ProcessMark process;                   // all zeros for ranks of other nodes
  int32_t worker_id;                     // -1 if the rank is not a worker
  int32_t local_rank;                    // the index of its recorder; 0 for ranks of other nodes
  std::atomic<uint32_t> calls_logged;    // whether its last calls have been logged
  std::atomic<uint32_t> silence_logged;  // whether its current silence has been logged
  std::atomic<int32_t> excluded_by;      // 1 + the rank that has found it silent; 0 if none has
  std::atomic<uint32_t> leaves;          // of an elastic session: whether it was told to end
  std::atomic<uint32_t> was_told;        // of another node: whether it was told of its exclusion
  // In nanoseconds of Clock; 0 before the first, and after the last of another node, whose
  // heartbeats are in the slot of its first rank.
  std::atomic<int64_t> last_heartbeat;
  std::atomic<int64_t> lateness_logged;  // when a line last named the rank as late; 0 for never
  char reason[256];  // why the rank left or, on another node, died; written before its state
  // When another rank of the node has killed its process, in nanoseconds of Clock, or 0.
  std::atomic<int64_t> ended_at;

  struct alignas(64) GroupProgress {
    // The number, from 1, of the latest collective of the group that the rank has begun.
    std::atomic<uint64_t> sequence;
    // The latest collective in which a rank of another node is known to have waited. It is not in
    // the slots, because another thread may store the payload there at the same time.
    std::atomic<uint64_t> awaited;  // its number << 8 | its kind
    // The payload of collective n is in slots[n % 2]. A rank can be one collective ahead of a slow
    // reader, but not two, since the collective in between cannot succeed without the reader.
    ExchangeSlot slots[2];

    ExchangeSlot& SlotFor(uint64_t number) { return slots[number % 2]; }
    const ExchangeSlot& SlotFor(uint64_t number) const { return slots[number % 2]; }

    // Records that the rank has begun this collective, unless a later one is known.
    void RaiseSequence(uint64_t number) { Raise(&sequence, number); }
    // Records that the rank waits in this collective, unless a later one is known.
    void RaiseAwaited(uint64_t number, CollectiveKind kind) {
      Raise(&awaited, number << 8 | (static_cast<uint64_t>(kind) & 0xff));
    }
    uint64_t awaited_number() const { return awaited.load(std::memory_order_acquire) >> 8; }
    CollectiveKind awaited_kind() const {
      return static_cast<CollectiveKind>(awaited.load(std::memory_order_acquire) & 0xff);
    }

    static void Raise(std::atomic<uint64_t>* word, uint64_t value) {
      uint64_t before = word->load(std::memory_order_relaxed);
      while (before < value &&
             !word->compare_exchange_weak(before, value, std::memory_order_release)) {
      }
    }
  } groups[kGroups];
};

// The name and shape of a table, for error messages and observers.
struct TableLabel {
  std::atomic<uint32_t> is_set;
  int32_t dtype;  // a DType
  int64_t num_row;
  int64_t num_col;
  int64_t capacity;  // of a hash table, or 0
  char name[64];
  // Of a hash table: what has happened to the keys of this node (KeyCounts).
  static constexpr int kKeyCounts = 7;
  std::atomic<int64_t> key_counts[kKeyCounts];
};

struct alignas(64) NodeControl {
  // Observers, such as `multiverso top`, check the magic number and the sizes before they trust
  // other fields (NodeSnapshot). The magic number is written after all fields up to `started`.
  static constexpr uint64_t kMagic = 0x3645444f4e2d564d;  // "MV-NODE6"
  std::atomic<uint64_t> magic;
  uint32_t bytes_of_slot;
  uint32_t bytes_of_recorder;
  char version[32];        // of the library
  int32_t num_ranks;       // of the session
  int32_t num_ranks_here;  // of this node
  int32_t num_nodes;
  int32_t node;                     // the index of this node
  std::atomic<int32_t> first_lost;  // 1 more than the rank that was lost first; 0 if none is known
  int64_t started;                  // seconds since 1970 UTC
  uint64_t session;                 // Membership::session, which the tables also have (TableHeader)
  AgreedOptions options;

  // ---- Only of an elastic session
  int32_t initial_size;  // the ranks that opened it; 0 in a session that is not elastic
  char host[64];
  JoinedRanks joined;
  // Collective calls, numbered from 1, the opening of the session (CollectiveCall).
  struct Calls {
    // The number of the latest call that has begun, times 2^32, plus the number of ranks that had
    // joined by then, and so may take part in it.
    std::atomic<uint64_t> latest;
    // The number of the latest call that is over, times 2^32, plus the number of its last
    // allgather, modulo 2^32. Ranks that do not take part sleep on `changes`.
    std::atomic<uint64_t> over;
    std::atomic<uint32_t> changes;
    std::atomic<uint32_t> sleepers;
    // The kinds of the last calls; call n is in kinds[n % kKinds].
    static constexpr uint32_t kKinds = 256;
    std::atomic<uint32_t> kinds[kKinds];
    // Call n, if it has failed, is in failures[n % kKinds]: n times 2^32, plus the number of its
    // Code without sign times 2^16, plus 1 more than the lost rank or 0.
    std::atomic<uint64_t> failures[kKinds];
    std::atomic<int64_t> loaded_step;  // the step of the last load, or -1
  } calls;

  // The number of tables that have been created, so that readers look for new ones.
  std::atomic<uint32_t> tables_created;
  // Publications are numbered from 1. Buffer i of each dense table (TableHeader) has publication
  // contents[i], or is free or being overwritten if that is 0 (BufferPins). Tables of which only
  // some rows exist alternate between two buffers, whose publications are at the end of `contents`.
  static constexpr int kBuffers = 4;
  static constexpr uint64_t kMayBeTaken = uint64_t{1} << 63;  // while pins of it are looked for
  std::atomic<uint64_t> contents[kBuffers + 2];
  std::atomic<uint64_t>& content_of(bool is_lazy, int buffer) {
    return contents[is_lazy ? kBuffers + buffer : buffer];
  }
  std::atomic<uint64_t> published;     // the latest that is complete
  std::atomic<int64_t> steps[2];       // of publication n, in steps[n % 2]
  std::atomic<uint32_t> publications;  // `published` modulo 2^32, on which readers sleep

  // The labels by table number. Later tables have no label.
  TableLabel labels[FlightRecorder::kTables];
  // Number n of the complete checkpoints of this session, counted from 1, is in checkpoints[n % 2],
  // so that a rank can read the path of the latest one while the next is recorded.
  std::atomic<uint32_t> num_checkpoints;
  char checkpoints[2][252];

  struct alignas(64) GroupState {
    std::atomic<uint64_t> total_begun;  // how often members on this node have begun a collective
    // The latest collective, modulo 2^32, that is complete: all members that are not excluded have
    // begun it, and the payloads of other nodes are here. Members sleep on this word.
    alignas(64) std::atomic<uint32_t> completed;
    std::atomic<uint32_t> sleepers;
    // In a group that spans nodes: the latest collective, modulo 2^32, that all members on this
    // node have begun. The node's leader sleeps on this word.
    alignas(64) std::atomic<uint32_t> gathered;
    std::atomic<uint32_t> sleeping_leaders;
    // The latest collective that all members on all nodes have begun, whose payloads are here.
    std::atomic<uint64_t> all_begun;
    // If the members made the same call with the same payload in collective n, common_of[n % 2] is
    // n, and common[n % 2] stands for the slots of the members on other nodes.
    std::atomic<uint64_t> common_of[2];
    ExchangeSlot common[2];
  } groups[kGroups];

  // The service thread of Membership::leader_of sleeps on the bell; ranks change it to wake it.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> bell_sleepers;

  // Whether the loss of any rank has been recorded. Set before the state of the lost rank.
  alignas(64) std::atomic<uint32_t> some_lost;
  // Whether a rank of the session was told to end, and the ranks are to leave together.
  std::atomic<uint32_t> leaving;

  // kWriting: the first rank to record an abort is writing the four fields after `abort`.
  enum Abort : uint32_t { kNone = 0, kWriting = 1, kSet = 2 };
  alignas(64) std::atomic<uint32_t> abort;
  int32_t aborted_by;
  int32_t abort_code;   // a Code
  int32_t abort_about;  // the rank that the error is about; -1 if it is about none
  char abort_reason[512];

  // Records that a rank is lost, unless another was lost before.
  void NoteLoss(int rank) {
    int32_t none = 0;
    first_lost.compare_exchange_strong(none, rank + 1);
  }

  // After this struct come two arrays: the slots of all ranks of the session, in rank order, and
  // the recorders of the ranks of this node, by local rank. The caller passes the size of the
  // first, since num_ranks may be unset or, in a file, invalid.
  RankSlot* slots() { return reinterpret_cast<RankSlot*>(this + 1); }
  const RankSlot* slots() const { return reinterpret_cast<const RankSlot*>(this + 1); }
  FlightRecorder* recorders(int session_size) {
    return reinterpret_cast<FlightRecorder*>(slots() + session_size);
  }
  const FlightRecorder* recorders(int session_size) const {
    return reinterpret_cast<const FlightRecorder*>(slots() + session_size);
  }

  static int64_t BytesFor(int64_t session_size, int64_t ranks_here) {
    return static_cast<int64_t>(sizeof(NodeControl)) +
           session_size * static_cast<int64_t>(sizeof(RankSlot)) +
           ranks_here * static_cast<int64_t>(sizeof(FlightRecorder));
  }
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");

}  // namespace multiverso
