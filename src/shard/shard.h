// Shard: a piece of a table, and the only implementation of what can be done to it.
//
// A shard is memory that this process has mapped plus the operations on it. Whoever maps the
// memory executes the operation itself; several ranks do so at the same time. It knows nothing of
// ranks elsewhere, of sessions or of Python.
//
// Every operation takes the locks of the stripes it touches one after the other, never two at
// once, so operations of different workers interleave between stripes but no addition is lost.
// An operation that meets a stripe whose lock is held for long returns pending, with its Progress
// where to go on: calling it again with the same arguments continues it.
#ifndef MULTIVERSO_SHARD_SHARD_H_
#define MULTIVERSO_SHARD_SHARD_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/streaming_copy.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"
#include "shard/tensor_list.h"
#include "shard/updater.h"

namespace multiverso {

// How far an operation has come: stripes or rows done.
struct Progress {
  int64_t done = 0;
  int32_t phase = 0;  // of those who make an operation out of several
};

// Who operates: the mark for locks, how to find out whether another holder still lives, and the
// number of the worker, -1 if it is none.
struct ShardUser {
  int local_rank = 0;
  const OwnerProbe* probe = nullptr;
  int worker = -1;
};

class Shard {
 public:
  // `storage` is attached; it and what `user` points to outlive the shard.
  Shard(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
        std::unique_ptr<const Updater> updater, ShardUser user);

  const StripeLayout& layout() const { return layout_; }
  Hyper* hyper() const { return storage_.hyper(); }
  const Updater& updater() const { return *updater_; }
  Holders* holders() const { return storage_.holders(); }

  // The whole shard, row by row.
  Status Get(void* out, Progress* progress, const WaitLimit& limit);
  Status Add(const void* delta, Progress* progress, const WaitLimit& limit);
  // `out` may equal `delta`.
  Status AddGet(const void* delta, void* out, Progress* progress, const WaitLimit& limit);
  // Adds what `tensors` have gained over `last`, which is of the whole shard, and writes the new
  // parameters to both, stripe by stripe. Given up between two stripes, it has done those before
  // wholly and none of the others, so that it can be made anew at any time.
  Status Exchange(const TensorList& tensors, void* last, Progress* progress,
                  const WaitLimit& limit);
  // Overwrites, past the updater: for initial values.
  Status Store(const void* values, Progress* progress, const WaitLimit& limit);

  // Without locks, for callers who see to it that nobody else is at these elements: `count`
  // elements from number `first` on. `delta` is the sum of `terms` workers'. The new parameters are
  // made in `out` or, where that is null or the delta itself, in `scratch`, which has room for
  // them, and then copied: whole cache lines that other cores have read are overwritten by a copy
  // much faster than they are taken over one by one to be changed.
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  const char* parameters() const { return storage_.parameters(); }

  // Whose call it is: the user's own, if not another worker's, whom the user serves.
  static constexpr int kOwn = -2;

  // The same for `count` elements from number `first` on, where `out`, `delta` and `values` are of
  // these alone. What is asked for in pieces may change between them.
  Status GetRange(int64_t first, int64_t count, void* out, Progress* progress,
                  const WaitLimit& limit, int worker = kOwn);
  Status AddRange(int64_t first, int64_t count, const void* delta, Progress* progress,
                  const WaitLimit& limit, int worker = kOwn);
  Status AddGetRange(int64_t first, int64_t count, const void* delta, void* out, Progress* progress,
                     const WaitLimit& limit, int worker = kOwn);
  Status StoreRange(int64_t first, int64_t count, const void* values, Progress* progress,
                    const WaitLimit& limit);

  // For checkpoints: the parameters (area 0) or state slot `area` - 1 as they are, past the
  // updater. `when` is when what is copied out will be read.
  int64_t state_slots() const { return storage_.state_slots(); }
  Status CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit, ReadAgain when = ReadAgain::kSoon);
  Status CopyIn(int64_t area, int64_t first, int64_t count, const void* values, Progress* progress,
                const WaitLimit& limit);
  // How often rows have been updated, for Updater::counts_steps(): a number for each
  // `rows_per_step` of them. Where they differ it is the largest.
  Status CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step, uint32_t* steps,
                      Progress* progress, const WaitLimit& limit);
  Status CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step, const uint32_t* steps,
                     Progress* progress, const WaitLimit& limit);

  // Rows by number within the shard, in the order given, checked by the caller. A row that is named
  // twice is updated twice; what else Updater::duplicates() asks for is up to the caller.
  Status GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit, int worker = kOwn);
  Status AddRows(const int64_t* rows, int64_t count, const void* delta, Progress* progress,
                 const WaitLimit& limit, int worker = kOwn);

 private:
  // Calls body(byte offset, elements, bytes) for each stripe, under its lock or, reading, without.
  template <StripeUse kFor, class Body>
  Status ForEachStripe(Progress* progress, const WaitLimit& limit, Body body);
  // Calls body(byte offset in the shard, byte offset in the range, elements) under each lock.
  template <StripeUse kFor, class Body>
  Status ForEachStripeOf(int64_t first, int64_t count, Progress* progress, const WaitLimit& limit,
                         Body body);
  // Calls body(index into rows, address of the row) for each, under the lock of its stripe.
  template <StripeUse kFor, class Body>
  Status ForEachRow(const int64_t* rows, int64_t count, Progress* progress, const WaitLimit& limit,
                    Body body);
  // Calls body(first row, count, index of their step) for runs of the rows under each lock.
  template <StripeUse kFor, class Body>
  Status ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step, Progress* progress,
                     const WaitLimit& limit, Body body);
  Status TakeStripe(int64_t stripe, const WaitLimit& limit);
  char* AreaAt(int64_t area) const;
  // Copies the parameters out, under the lock or, if the updater need not know, without.
  void Give(int64_t byte_offset, void* out, int64_t bytes, int worker) const;
  void Note(int64_t byte_offset, const void* values, int64_t count, int worker) const;
  Update UpdateAt(int64_t byte_offset, const void* delta, void* out, int64_t count,
                  int worker) const;
  // Hands the update to the updater, with its step.
  void Do(int64_t byte_offset, const Update& update) const;
  // The same, and notes what the worker has been given.
  void DoAndNote(int64_t byte_offset, const Update& update) const;
  bool ReadsUnlocked(int64_t bytes) const;
  int WorkerOf(int worker) const { return worker == kOwn ? user_.worker : worker; }
  int64_t element_bytes() const { return layout_.row_bytes() / columns_; }

  StripeLayout layout_;
  int64_t columns_;
  ShardStorage storage_;
  std::unique_ptr<const Updater> updater_;
  bool counts_steps_;
  bool notes_gets_;
  ShardUser user_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_SHARD_H_
