// FoundKeys: the rows of some consecutive keys of a list, found without the locks of their stripes.
//
// Looking for a random key misses the cache and the processor's list of page addresses, once in the
// index and once in the row. Processors wait for several pages at the same time only if few
// instructions lie between the first uses of these. So each step is taken for all keys of a group
// before the next step.
#pragma once

#include <cstdint>

#include "base/compiler.h"
#include "shard/key_index.h"
#include "shard/storage.h"
#include "shard/stripe_lock.h"

namespace multiverso {

class FoundKeys {
 public:
  static constexpr int64_t kMost = 64;
  struct Row {
    int64_t row;     // KeyIndex::kNone if the key has none
    uint32_t begun;  // StripeLock::BeginRead of its stripe, before the key was looked for
  };

  FoundKeys(const KeyIndex* keys, const ShardStorage* storage) : keys_(keys), storage_(storage) {}

  // Finds the keys key_at(first) to key_at(end - 1), of which there are at most kMost, and calls
  // prefetch(row) with the rows of those that have one.
  template <class KeyAt, class Prefetch>
  void Find(int64_t first, int64_t end, const KeyAt& key_at, const Prefetch& prefetch) {
    first_ = first;
    for (int64_t i = first; i < end; ++i) {
      KeyIndex::Place& place = places_[i - first];
      place = keys_->PlaceOf(key_at(i));
      MV_PREFETCH(keys_->BucketOf(place), 0);
      MV_PREFETCH(storage_->lock(place.stripe), 0);
    }
    for (int64_t i = first; i < end; ++i) {
      const KeyIndex::Place& place = places_[i - first];
      Row& row = rows_[i - first];
      row.begun = storage_->lock(place.stripe)->BeginRead();
      row.row = keys_->Find(place, key_at(i));
      if (row.row >= 0) prefetch(row.row);
    }
  }

  const KeyIndex::Place& PlaceOf(int64_t i) const { return places_[i - first_]; }
  const Row& At(int64_t i) const { return rows_[i - first_]; }
  // Returns whether the row is right, and so is what the caller has read of it since Find.
  bool IsUnchanged(int64_t i) const {
    return storage_->lock(PlaceOf(i).stripe)->EndRead(At(i).begun);
  }

 private:
  const KeyIndex* keys_;
  const ShardStorage* storage_;
  int64_t first_ = 0;
  KeyIndex::Place places_[kMost];
  Row rows_[kMost];
};

}  // namespace multiverso
