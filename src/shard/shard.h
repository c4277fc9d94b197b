// Shard: the part of a table on one node, and the only implementation of the operations on it.
//
// A shard is memory that this process has mapped plus the operations on that memory. Every rank of
// the node maps the memory and executes its operations itself, at the same time as other ranks. A
// shard knows nothing about ranks on other nodes, sessions or Python.
//
// An operation takes the locks of the stripes that it touches one after the other, never two at
// once, and skips them for short reads. So operations of different workers interleave between
// stripes, but no add is lost. An operation that waits for a lock until WaitLimit::slice_end
// returns pending and stores its position in its Progress. A call with the same arguments continues
// there. Apply, ApplySum, CopyUnlocked and Copy take no locks.
//
// A reader (ShardUser) has mapped the memory read-only. It never takes a lock, and repeats a read
// that a writer interfered with. It may only run requests that get values.
//
// The shard of a hash table is a KeyedShard, whose requests also name rows by keys.
//
// A shard with lazy rows (lazy_rows.h) touches the rows of a request before the request changes
// them. Apply and ApplySum need rows that Touch has touched before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "shard/lazy_rows.h"
#include "shard/request.h"
#include "shard/shard_values.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"
#include "shard/stripe_lock.h"

namespace multiverso {

// How far a get that gives rows to keys has come, so that a get that is continued counts no key
// twice.
struct KeyFetch {
  std::vector<int64_t> missing;  // the positions of the keys that had no row
  size_t counted = 0;            // of the missing keys, for admission
  std::vector<int64_t> admitted;
  int64_t counted_uses = 0;  // Progress::counted_uses of the admitted keys
};

// How far an operation has come: the number of stripes or row ids that are done.
struct Progress {
  int64_t done = 0;
  int64_t counted_uses = 0;  // of an add of keys: the first keys, whose uses have been counted
  std::unique_ptr<KeyFetch> fetch;  // null unless a get of keys has to be continued
};

// The process that runs operations: its mark in locks, the probe that tells whether another holder
// is alive, and its worker number, or -1 if the process is not a worker.
struct ShardUser {
  int local_rank = 0;
  const OwnerProbe* probe = nullptr;
  int worker = -1;
  bool is_reader = false;
  const DiskRows* disk = nullptr;  // of a shard that lies on a disk
};

class KeyedShard;

// What a mode of consistency passes requests to. A Shard runs requests for the rows of one node,
// and a Table passes them on to all nodes.
class RequestRunner {
 public:
  virtual ~RequestRunner() = default;

  // Runs a checked request to its end.
  virtual Status Run(const Request& request, const WaitLimit& limit) = 0;

 protected:
  RequestRunner() = default;
  RequestRunner(RequestRunner&&) = default;
};

class Shard : public RequestRunner {
 public:
  // The probe must outlive the shard. Requests count rows from the table's first row.
  Shard(ShardValues values, const ShardUser& user);
  Shard(Shard&&) = default;

  // Returns this shard if its rows have keys, and null otherwise.
  virtual KeyedShard* AsKeyed() { return nullptr; }

  const StripeLayout& layout() const { return layout_; }
  Hyper* hyper() const { return storage_.hyper(); }
  const Updater& updater() const { return values_.updater(); }
  int64_t state_slots() const { return storage_.state_slots(); }
  bool counts_steps() const { return values_.counts_steps(); }
  Holders* holders() const { return storage_.holders(); }

  Status Run(const Request& request, const WaitLimit& limit) override {
    Progress progress;
    return Run(request, &progress, limit);
  }
  // Runs a checked request, or continues it from *progress, until the end of the limit's slice.
  virtual Status Run(const Request& request, Progress* progress, const WaitLimit& limit);

  // ---- For callers that exclude other access to the elements (ShardValues)
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  bool ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const;
  void Copy(int64_t first, int64_t count, void* out) const { values_.Copy(first, count, out); }
  // Executes a get of rows or of the whole shard.
  void CopyUnlocked(const Request& request) const;

  // Returns the version that the next changes note.
  uint64_t version() const { return storage_.version()->load(std::memory_order_relaxed); }
  // Returns the parameters as they are stored. The values of untouched rows are not there.
  const char* parameters() const { return storage_.parameters(); }
  // Returns the parameters as values, or null if they are stored in another type.
  const char* values() const { return values_.is_half() ? nullptr : parameters(); }

  // Returns null if the shard has no lazy rows.
  const LazyRows* lazy() const { return values_.lazy(); }
  // Makes the stripes consistent whose locks dead ranks hold. Blocks to its end.
  Status RecoverStripes(const WaitLimit& limit) const;
  // Touches the rows that a request names, so that it can change them. Returns MemoryError, and
  // touches none, if there is not enough memory for them. A call that returns pending begins again.
  Status Touch(const Request& request, const WaitLimit& limit) const;

 protected:
  Status TakeStripe(int64_t stripe, const WaitLimit& limit) const;
  // Runs read(), which copies from a stripe, again and again until no writer interferes.
  Status ReadRepeatedly(int64_t stripe, const WaitLimit& limit,
                        const std::function<void()>& read) const;
  // Runs read(), which copies from a stripe and may be repeated: without the lock if that is
  // allowed or the process is a reader, and otherwise, or if a writer interferes, under the lock.
  template <class Read>
  Status ReadStripe(int64_t stripe, bool may_read_unlocked, const WaitLimit& limit,
                    const Read& read) const;
  // Adds the rows in their order (RowOrder). A lock is held for some rows of a stripe at a time.
  template <class Places>
  Status AddRows(const Request& request, Places places, Progress* progress,
                 const WaitLimit& limit) const;
  // Returns whether a read of `count` elements may skip the lock.
  bool MayReadUnlocked(int64_t count) const;

  // Makes a stripe consistent whose lock a dead rank held. A KeyedShard does.
  virtual void Recover(int64_t /*stripe*/) const {}

  ShardValues values_;
  StripeLayout layout_;
  int64_t columns_;
  int64_t first_row_;
  ShardStorage storage_;
  ShardUser user_;

 private:
  friend class ShardCopies;
  struct PlacesOfRows;

  // Calls body(first element in the shard, the same in the range, elements) for each stripe of a
  // request for a range, or for each of its runs of elements, under its lock. For short reads, it
  // is called without the lock, and again if a writer interferes.
  template <StripeUse kUse, class Body>
  Status ForEachStripe(const Request& range, Progress* progress, const WaitLimit& limit,
                       Body body) const;
  Status GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const;
  // Names the rows of a stripe in messages.
  std::string NameRows(int64_t stripe) const;
  // Touches the rows row_at(0) to row_at(count - 1) of the shard, for which there is room.
  template <class RowAt>
  Status TouchRows(int64_t count, const RowAt& row_at, LazyRows::Room* room,
                   const WaitLimit& limit) const;
  // Returns whether the updater notes what a get of a range returns.
  bool NotesGet(const Request& get) const;
  // Notes a change of elements without the locks of their stripes.
  void NoteChanges(int64_t first, int64_t count) const;
  Status CopyVersions(const Request& request, const WaitLimit& limit) const;
};

}  // namespace multiverso
