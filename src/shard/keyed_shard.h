// KeyedShard: the shard of a hash table, whose rows belong to keys.
//
// Requests name rows by keys, or by their numbers. After a call has released the lock of a stripe,
// a row there may belong to another key, so the number of a row is only a guess, unless the lock
// shows that the stripe has not changed (FoundKeys). In sync mode keys keep their rows, and
// requests that name rows by number run as they do in any shard.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "shard/found_keys.h"
#include "shard/key_index.h"
#include "shard/lazy_rows.h"
#include "shard/request.h"
#include "shard/row_order.h"
#include "shard/shard.h"

namespace multiverso {

class KeyedShard final : public Shard {
 public:
  // `values` have the same keys.
  KeyedShard(ShardValues values, const ShardUser& user, std::unique_ptr<KeyIndex> keys);

  KeyedShard* AsKeyed() override { return this; }
  const KeyIndex& keys() const { return *keys_; }

  using Shard::Run;
  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override;
  // Copies the values of a key without a row.
  void CopyInitial(int64_t key, char* out) const { values_.CopyInitial(key, out); }

  // For loads: removes the keys of some stripes.
  Status ClearKeys(int64_t first_stripe, int64_t end_stripe, const WaitLimit& limit) const;
  // For loads: gives a key a row. Returns the row's number in the table, KeyIndex::kNone if the key
  // has a row already, or kTaken if another rank has needed the new row for a key of its own.
  static constexpr int64_t kTaken = KeyIndex::kNone - 1;
  Result<int64_t> RestoreKey(const KeyIndex::SavedCell& cell, const WaitLimit& limit) const;

 protected:
  void Recover(int64_t stripe) const override;

 private:
  struct PlacesOfKeys;

  // Get the values of keys, which are initial values if a key has no row. `missing` gets the
  // positions of such keys if it is not null, and the uses of the others are counted.
  Status GetKeys(const Request& request, Progress* progress, const WaitLimit& limit,
                 std::vector<int64_t>* missing) const;
  Status FetchKeys(const Request& request, Progress* progress, const WaitLimit& limit) const;
  Status ContinueFetch(const Request& request, Progress* progress, KeyFetch* fetch,
                       const WaitLimit& limit) const;
  // Returns what the row of a key needs that has none.
  LazyRows::Rows RowOf(int64_t key) const {
    return {1, lazy()->NewBytesOf(layout_.first_row(keys_->StripeOf(key)))};
  }
  // Gives rows to the keys that have none, unless they have to be admitted first. If the table is
  // full, returns MemoryError before the first key gets a row. `rows`, unless null, gets the row of
  // each key in that order, or -1 if the key had none, with the lock's sequence before. Counts the
  // uses of the keys from *counted_uses on, so that a repeated call counts none twice.
  Status GiveRowsToKeys(const Request& request, const RowOrder& order,
                        std::vector<FoundKeys::Row>* rows, int64_t* counted_uses,
                        const WaitLimit& limit) const;
  Status InsertKeys(const std::vector<int64_t>& keys, LazyRows::Room* room, uint32_t call,
                    KeyCounts* counts, const WaitLimit& limit) const;
  // A key that needs a row.
  struct Insertion {
    Insertion() = default;
    Insertion(int64_t the_key, const KeyIndex& keys)
        : key(the_key),
          start(static_cast<int64_t>(KeyHash(the_key) & 0xFFFF)),
          place(keys.PlaceOf(key)) {}

    int64_t key = 0;
    // Different keys look for a victim at different places, so that no row is spared.
    int64_t start = 0;
    KeyIndex::Place place{};
    // The row to be evicted, if nobody changes the stripe before.
    FoundKeys::Row victim{KeyIndex::kNone, StripeLock::kBeingChanged};
  };
  // Chooses rows to evict, and prefetches what inserting the keys changes.
  void PrepareInsertions(const LazyRows::Room& room, std::vector<Insertion>* group) const;
  Status InsertKey(const Insertion& insertion, LazyRows::Room* room, int64_t* freed, uint32_t call,
                   KeyCounts* counts, const WaitLimit& limit) const;
  // Takes the row of a key away, under the stripe's lock. The caller gives the room back.
  void DropRow(int64_t stripe, int64_t row) const;
  // Does so to make room for another key. *freed counts the rows for GiveBack.
  void Evict(int64_t stripe, int64_t row, KeyCounts* counts, int64_t* freed) const;
  Status RemoveKeys(const Request& request, Progress* progress, const WaitLimit& limit) const;
  Status FindKeys(const Request& request, const WaitLimit& limit) const;
  Status FindRow(const KeyIndex::Place& place, int64_t key, int64_t* row,
                 const WaitLimit& limit) const;
  Status CopyCells(const Request& request, const WaitLimit& limit) const;
  Status CopyCounts(const Request& request) const;

  // Has what calls read of the keys key_at(first) to key_at(end - 1) read from the disk: where they
  // are first, and then their rows.
  template <class KeyAt>
  void ExpectKeys(const KeyAt& key_at, int64_t first, int64_t end, bool state) const {
    for (int64_t i = first; i < end; ++i) {
      user_.disk->Expect(keys_->BucketOf(keys_->PlaceOf(key_at(i))), KeyIndex::kBucketBytes);
    }
    for (int64_t i = first; i < end; ++i) {
      const int64_t row = keys_->Find(key_at(i));
      if (row < 0) continue;
      user_.disk->ExpectRow(row, state);
    }
  }

  std::unique_ptr<KeyIndex> keys_;
};

}  // namespace multiverso
