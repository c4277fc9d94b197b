// KeyIndex: finds the rows of keys in a shard of a hash table.
//
// The keys are divided among the stripes of the table by their hashes. A stripe has more rows than
// keys are expected in it, and a row is in use if it has been touched (LazyRows). So the memory for
// all rows is reserved, and grows with the keys; nothing is moved when a table grows.
//
// Each stripe has an array of buckets. A bucket is a cache line with some keys and the numbers of
// their rows, so most lookups miss the cache once. A key that its bucket has no place for is in one
// of the next, and the full buckets before it count how many keys have passed them: a lookup goes
// on only from a bucket that some key has passed (Bronson and Shi, "Open-sourcing F14 for faster,
// more memory-efficient hash tables", 2019). What else belongs to a row, and its key again, is in
// arrays, since a call needs one of them for many rows.
//
// A stripe's lock protects its buckets, keys and rows. Find may run without the lock, as part of a
// read that is repeated if the stripe has changed meanwhile (StripeLock::ReadUnlocked), or to guess
// what to prefetch.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/compiler.h"
#include "multiverso/constants.h"
#include "numbers/key_hash.h"
#include "shard/lazy_rows.h"
#include "shard/storage.h"

namespace multiverso {

// Which key loses its row if another one needs it.
enum class Eviction : int32_t {
  kNone = MV_EVICT_NONE,
  kLeastRecent = MV_EVICT_LRU,
  kLeastFrequent = MV_EVICT_LFU
};

// Ranks send it as a part of a TableSpec, so every field is plain.
struct KeyPolicy {
  int64_t capacity = 0;  // keys in the whole table
  int32_t evict = 0;     // an Eviction
  int32_t admit = 0;     // the number of gets after which a key gets a row; 0 and 1: the first

  bool operator==(const KeyPolicy& other) const {
    return capacity == other.capacity && evict == other.evict && admit == other.admit;
  }
};

// What has happened to the keys of a node. The order is that of the C API.
struct KeyCounts {
  static constexpr int kFields = MV_KEY_COUNTS;

  int64_t keys = 0;
  int64_t hits = 0;        // keys of gets that had a row
  int64_t misses = 0;      // keys of gets that had none
  int64_t admissions = 0;  // keys that got a row
  int64_t rejections = 0;  // keys of gets that were left without a row
  int64_t evictions = 0;
  int64_t removals = 0;

  KeyCounts& operator+=(const KeyCounts& other);
};
static_assert(sizeof(KeyCounts) == KeyCounts::kFields * sizeof(int64_t));

class KeyIndex {
 public:
  static constexpr int64_t kRowsPerStripe = 512;
  static constexpr int64_t kNone = -1;

  // A key and its use, as they are saved.
  struct SavedCell {
    int64_t key = 0;
    uint32_t uses = 0;  // kLeastRecent: when it was last used, in calls; kLeastFrequent: how often
    uint32_t age = 0;   // 0, except in files of versions whose keys could expire
  };
  // What programs see of a row.
  struct RowOfKey {
    int64_t key = 0;
    int64_t is_used = 0;  // 0 if no key has the row
  };

  // Returns the stripes that a table of so many keys has, a multiple of `parts`.
  static int64_t StripesFor(int64_t capacity, int64_t parts);
  friend std::vector<RowArea> ArraysOfKeys(int64_t stripes);
  friend int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy);

  // `memory`, of BytesOfKeys bytes, is valid when zero-filled. The shard's stripes are the stripes
  // `first_stripe` to `first_stripe` + `stripes` - 1 of the table's `table_stripes`.
  KeyIndex(char* memory, int64_t stripes, int64_t first_stripe, int64_t table_stripes,
           const KeyPolicy& policy, const LazyRows* rows);

  const KeyPolicy& policy() const { return policy_; }
  // Also writes the counts there, for observers.
  void PublishTo(std::atomic<int64_t>* counts) { published_ = counts; }
  // What the hash of a key says about its place: its stripe in the shard, which is not one of them
  // if the key belongs to another node, and the bucket in which Find looks first.
  struct Place {
    int64_t stripe;
    int64_t home;
  };
  Place PlaceOf(int64_t key) const {
    const uint64_t hash = KeyHash(key);
    const auto stripe =
        static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(table_stripes_) >> 32);
    // The low bits of the hash, of which StripeOfKey uses the high ones.
    return Place{stripe - first_stripe_,
                 static_cast<int64_t>((hash & 0xFFFFFFFFU) * kBucketsPerStripe >> 32)};
  }
  int64_t StripeOf(int64_t key) const { return StripeOfKey(key, table_stripes_) - first_stripe_; }
  // Returns what Find reads first.
  const void* BucketOf(const Place& place) const { return BucketsOf(place.stripe) + place.home; }
  static constexpr int64_t kBucketBytes = 64;
  // Prefetches what VictimOf reads after the bits of the rows in use.
  MV_ALWAYS_INLINE void PrefetchVictims(int64_t stripe, int64_t start) const {
    const std::atomic<uint32_t>* const uses = uses_ + FirstVictim(stripe, start);
    for (int i = 0; i < kMostCandidates; i += 16) MV_PREFETCH(uses + i, 1);
  }
  // Prefetches what changes if the row is given to another key.
  MV_ALWAYS_INLINE void PrefetchRow(int64_t row) const { MV_PREFETCH(keys_ + row, 1); }
  // Prefetches what CountUse changes.
  MV_ALWAYS_INLINE void PrefetchUse(int64_t row) const {
    if (policy_.evict != 0) MV_PREFETCH(uses_ + row, 1);
  }
  // Returns the row of a key in the shard, or kNone.
  int64_t Find(const Place& place, int64_t key) const {
    const Bucket* const buckets = BucketsOf(place.stripe);
    int64_t at = place.home;
    // Without the lock, the buckets may change, and all of them may seem to have been passed.
    for (int64_t i = 0; i < kBucketsPerStripe; ++i) {
      const int slot = buckets[at].SlotOf(key);
      if (slot >= 0) return FirstRow(place.stripe) + buckets[at].RowAt(slot);
      if (buckets[at].passed.load(std::memory_order_relaxed) == 0) break;
      at = Next(at);
    }
    return kNone;
  }
  int64_t Find(int64_t key) const { return Find(PlaceOf(key), key); }
  // Returns the key of a row that has been in use.
  int64_t KeyOf(int64_t row) const { return keys_[row].load(std::memory_order_relaxed); }

  // ---- Under the stripe's lock
  // Gives a key a row that is not in use, and returns the row, or kNone if all are. The caller
  // touches the row, with Link after it. Sets *is_reused if the row has been in use before.
  int64_t TakeRow(int64_t stripe, int64_t key, bool* is_reused);
  RowOfKey Describe(int64_t row) const;
  // Makes Find return the row, which has been touched.
  void Link(int64_t stripe, int64_t row);
  // Makes Find not return the row, which is still touched.
  void Unlink(int64_t stripe, int64_t row);
  // Returns the row to evict among some that are in use, from the row number `start` of the stripe
  // on, or kNone if none is in use. Without the lock, the row is a guess; among rows that are used
  // rarely, looking for one also ages their uses, under the lock only.
  int64_t VictimOf(int64_t stripe, int64_t start) const;
  // Makes the buckets agree with the keys of the rows in use, after a rank has died that
  // held the lock.
  void Rebuild(int64_t stripe);
  // Counts a get of a key without a row, and returns whether the key may have a row now.
  bool Admit(int64_t stripe, int64_t key);

  // Copies what Find and Describe read to the memory of another index with as many stripes.
  void CopyStripeTo(int64_t stripe, char* memory) const;

  // ---- At any time
  // Begins a call, whose uses are more recent than those of earlier calls.
  uint32_t BeginCall() const;
  void CountUse(int64_t row, uint32_t call) const {
    if (policy_.evict == 0) return;
    std::atomic<uint32_t>& uses = uses_[row];
    if (policy_.evict == static_cast<int32_t>(Eviction::kLeastFrequent)) {
      const uint32_t count = uses.load(std::memory_order_relaxed);
      if (count != UINT32_MAX) uses.store(count + 1, std::memory_order_relaxed);
    } else {
      uses.store(call, std::memory_order_relaxed);
    }
  }
  void Count(const KeyCounts& changes) const;
  KeyCounts Counts() const;
  SavedCell Save(int64_t row) const;
  void Restore(int64_t row, const SavedCell& saved);

 private:
  struct alignas(kBucketBytes) Bucket {
    static constexpr int kSlots = 6;

    // Returns the slot with the key, or -1.
    int SlotOf(int64_t key) const {
      const auto bit = [&](int slot) MV_ALWAYS_INLINE {
        return static_cast<unsigned>(keys[slot].load(std::memory_order_relaxed) == key) << slot;
      };
      // Without a loop, which would be mispredicted where it ends early.
      const unsigned slots = (bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5)) &
                             used.load(std::memory_order_relaxed);
      return slots == 0 ? -1 : LowestBit(slots);
    }
    int64_t RowAt(int slot) const {
      return rows[slot].load(std::memory_order_relaxed) & (kRowsPerStripe - 1);
    }

    std::atomic<int64_t> keys[kSlots];
    std::atomic<uint16_t> rows[kSlots];  // counted from the stripe's first row
    std::atomic<uint16_t> used;          // a bit for each slot that has a key
    std::atomic<uint16_t> passed;        // the number of keys that are behind this bucket
  };
  static constexpr int64_t kBucketsPerStripe = 96;
  struct Header {
    std::atomic<int64_t> counts[KeyCounts::kFields];
    std::atomic<uint32_t> calls;
  };
  static_assert(sizeof(Bucket) == kBucketBytes);

  static constexpr int kMostCandidates = 64;  // the most rows that VictimOf compares
  static constexpr int64_t kCountersPerStripe = 8 * kRowsPerStripe;
  static constexpr int64_t kHeaderBytes = 256;
  static_assert(sizeof(Header) <= kHeaderBytes);

  static int64_t Next(int64_t bucket) { return bucket + 1 == kBucketsPerStripe ? 0 : bucket + 1; }
  Bucket* BucketsOf(int64_t stripe) const { return buckets_ + stripe * kBucketsPerStripe; }
  // Returns the first row that VictimOf looks at.
  int64_t FirstVictim(int64_t stripe, int64_t start) const;
  static int64_t FirstRow(int64_t stripe) { return stripe * kRowsPerStripe; }

  int64_t stripes_;
  int64_t first_stripe_;
  int64_t table_stripes_;
  KeyPolicy policy_;
  const LazyRows* rows_;  // a row is in use if it has been touched
  Header* header_;
  std::atomic<int64_t>* published_ = nullptr;
  Bucket* buckets_;
  std::atomic<int64_t>* keys_;  // for each row, as the following
  std::atomic<uint32_t>* uses_;
  uint32_t* taken_;         // for each stripe, how many of its rows have ever been in use
  uint8_t* counters_;       // of gets of keys without rows, kCountersPerStripe for each stripe
  uint32_t* counted_gets_;  // for each stripe
};

// Returns where the arrays are in the memory of an index, each with the bytes for a stripe: the
// buckets, which lookups of keys without a row read too, and those that are read or written for a
// row only.
std::vector<RowArea> ArraysOfKeys(int64_t stripes);
// Returns the bytes of the memory of an index.
int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy);

}  // namespace multiverso
