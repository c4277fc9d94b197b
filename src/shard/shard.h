// Shard: a piece of a table, and the only implementation of the operations on it.
//
// A shard is memory that this process has mapped plus the operations on that memory. The rank that
// maps the memory executes the operation itself, and several ranks do so at the same time. A shard
// knows nothing about ranks on other nodes, sessions or Python.
//
// Every operation takes the locks of the stripes that it touches one after the other, never two at
// once. So operations of different workers interleave between stripes, but no addition is lost. An
// operation that waits for a lock until its time slice ends returns pending and stores its position
// in its Progress. A call with the same arguments continues from this position.
#ifndef MULTIVERSO_SHARD_SHARD_H_
#define MULTIVERSO_SHARD_SHARD_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/streaming_copy.h"
#include "shard/request.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"
#include "shard/tensor_list.h"
#include "shard/updater.h"

namespace multiverso {

// How far an operation has come, in stripes or rows.
struct Progress {
  int64_t done = 0;
  int32_t phase = 0;  // for callers that build one operation from several
};

// The process that runs operations: its mark in locks, the probe that tells whether another holder
// is alive, and its worker number, or -1 if the process is not a worker.
struct ShardUser {
  int local_rank = 0;
  const OwnerProbe* probe = nullptr;
  int worker = -1;
};

class Shard {
 public:
  // `storage` is attached to a segment. The segment and the probe must outlive the shard.
  // `first_row` is the table's row at which the shard begins. Requests count from the table's first
  // row.
  Shard(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
        std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row = 0);

  const StripeLayout& layout() const { return layout_; }
  Hyper* hyper() const { return storage_.hyper(); }
  const Updater& updater() const { return *updater_; }
  Holders* holders() const { return storage_.holders(); }

  // Executes a request. The shard may change between requests that fetch a range in pieces.
  Status Run(const Request& request, Progress* progress, const WaitLimit& limit);

  // Applies a delta without locks, to `count` elements from element `first` on, for callers that
  // exclude other access to the elements. `delta` is the sum of `terms` workers' deltas. The new
  // parameters are computed in `out` or, if that is null or equals the delta, in `scratch`, which
  // has room for them, and then copied. Overwriting whole cache lines that other cores have read is
  // much faster than modifying each in place.
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  // Copies the parameters of a get without locks, for callers that exclude writers.
  void CopyUnlocked(const Request& request) const;
  const char* parameters() const { return storage_.parameters(); }

  // For checkpoints: copies the parameters (area 0) or state slot `area` - 1 verbatim, without the
  // updater. `when` says when the copied data will be read.
  int64_t state_slots() const { return storage_.state_slots(); }
  Status CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit, ReadAgain when = ReadAgain::kSoon);
  Status CopyIn(int64_t area, int64_t first, int64_t count, const void* values, Progress* progress,
                const WaitLimit& limit);
  // For Updater::counts_steps(): copy how often rows have been updated, one number for each
  // `rows_per_step` rows, which is the largest if the rows differ.
  Status CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step, uint32_t* steps,
                      Progress* progress, const WaitLimit& limit);
  Status CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step, const uint32_t* steps,
                     Progress* progress, const WaitLimit& limit);

 private:
  struct Elements {
    int64_t first;
    int64_t count;
    bool may_read_unlocked = false;  // the body may first run once on torn values
  };

  // Calls body(byte offset in the shard, byte offset in the range, elements) for each stripe, under
  // its lock or, for short reads, without the lock.
  template <StripeUse kFor, class Body>
  Status ForEachStripe(const Elements& range, Progress* progress, const WaitLimit& limit,
                       Body body);
  // Calls body(byte offset in the shard, byte offset in the list of rows) for each row, under the
  // stripe's lock or, for short reads, without the lock.
  template <StripeUse kFor, class Body>
  Status ForEachRow(const Request& request, Progress* progress, const WaitLimit& limit, Body body);
  // Calls body(first row in the shard, count, index of their step) for runs of the rows under each
  // lock.
  template <StripeUse kFor, class Body>
  Status ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step, Progress* progress,
                     const WaitLimit& limit, Body body);
  Status TakeStripe(int64_t stripe, const WaitLimit& limit);
  char* AreaAt(int64_t area) const;
  // Copies parameters to `out` and records that `worker` has received them.
  void Give(int64_t byte_offset, void* out, int64_t bytes, int worker) const;
  void Note(int64_t byte_offset, const void* values, int64_t count, int worker) const;
  Update UpdateAt(int64_t byte_offset, const void* delta, void* out, int64_t count,
                  int worker) const;
  // Passes the update with its step to the updater.
  void Do(int64_t byte_offset, const Update& update) const;
  // Passes the update to the updater and records the parameters that the worker received.
  void DoAndNote(int64_t byte_offset, const Update& update) const;
  void ExchangeStripe(const TensorList& tensors, char* last, int64_t at, int64_t in,
                      int64_t count) const;
  bool ReadsUnlocked(int64_t bytes) const;

  StripeLayout layout_;
  int64_t columns_;
  int64_t element_bytes_;
  int64_t first_row_;
  ShardStorage storage_;
  std::unique_ptr<const Updater> updater_;
  bool counts_steps_;
  bool notes_gets_;
  ShardUser user_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_SHARD_H_
