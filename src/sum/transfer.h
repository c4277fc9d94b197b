// Transfer: a collective in which each worker of a node receives parts of the arrays of the others:
// a broadcast, an all-gather, an all-to-all, or a reduce-scatter, which combines the parts that it
// receives.
//
// The arrays pass through scratch memory in chunks. Every worker stages a chunk of what it sends,
// all synchronize once, and each takes what it receives. If all receive the same array, a chunk is
// a part of that array. Otherwise it has a slot for each receiver, so that all are busy in each
// chunk.
//
// The workers compare their calls at the first chunk. If the parts have different sizes, each
// worker also stages how much it sends to and expects from each other, and all check all of these.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "group/rank_context.h"
#include "sum/aggregation.h"
#include "sum/reduction.h"

namespace multiverso {

class Transfer {
 public:
  // A part of an array.
  struct Part {
    char* data = nullptr;
    int64_t count = 0;  // of elements
  };

  // The arguments of a call. Workers are numbered from 0.
  struct Call {
    CollectiveKind kind;
    ReduceOp op;  // of a reduce-scatter, else a number that is equal for all workers
    DType dtype;
    int root;  // the worker whose array is broadcast
    // What this worker sends: to each worker, or one part to all. It may share memory with what the
    // worker receives. Nothing else writes to it.
    std::vector<Part> sent;
    // What it receives: from each worker, or one part that combines theirs.
    std::vector<Part> received;
  };

  // For a session of one node that does not continue without lost ranks. `state` is that of
  // aggregates, which use the same scratch memory.
  Transfer(RankContext* context, AggregationState* state, const Call& call);

  // Makes the call. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  struct Announcement;
  struct Sizes;

  bool is_reduction() const { return call_.kind == CollectiveKind::kReduceScatter; }
  bool sends_to_all() const { return call_.sent.size() == 1; }
  int64_t element_bytes() const { return SizeOf(call_.dtype); }
  // Returns the part that this worker sends to or receives from a worker, and its number of
  // elements in chunk `chunk`.
  const Part& SentTo(int worker) const;
  const Part& ReceivedFrom(int worker) const;
  int64_t CountIn(const Part& part, int64_t chunk) const;
  char* ElementOf(const Part& part, int64_t chunk) const;
  // Returns where worker `from` stages what it sends to worker `to`.
  char* Staged(int from, int to) const;
  // Returns where what that worker sends to this one is. This worker's own part stays in its array.
  const char* Source(int worker, int64_t chunk) const;
  Sizes* StagedSizes(int from) const;
  // Returns whether received elements could overwrite others before these are staged.
  bool WouldOverwrite() const;
  // Lets the sent parts refer to a copy of them.
  void CopySent();

  Announcement Announce() const;
  void StageChunk(int64_t chunk);
  // Compares the calls of all workers, and sets the number of chunks.
  Status CheckCalls();
  Status CheckSizes() const;
  void TakeChunk(int64_t chunk);
  void CombineChunk(int64_t chunk);

  RankContext* context_;
  AggregationState* state_;
  Call call_;
  Reduction reduction_;
  int me_;
  int workers_;
  int64_t in_chunk_;  // the largest number of elements that a worker sends to another in a chunk
  int64_t chunks_ = 1;
  std::vector<char> copy_;  // of the sent parts, if received elements would overwrite them
};

}  // namespace multiverso
