// KeyIndex: finds the rows of keys in a shard of a hash table.
//
// The keys are divided among the stripes of the table by their hashes. A stripe has more rows than
// keys are expected in it, and a row is in use if it has been touched (LazyRows). So the memory for
// all rows is reserved, and grows with the keys; nothing is moved when a table grows.
//
// Each stripe has a small open-addressed array of entries, with linear probing: the row in the
// stripe and seven bits of the hash. Cells, an array with one for each row, contain the keys. A
// lookup reads one or two cache lines of entries and one cell.
//
// A stripe's lock protects its entries, cells and rows. Find may run without the lock, as part of a
// read that is repeated if the stripe has changed meanwhile (StripeLock::ReadUnlocked), or to guess
// what to prefetch.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "multiverso/constants.h"
#include "shard/key_hash.h"
#include "shard/lazy_rows.h"
#include "shard/prefetch.h"
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
  double ttl = 0;        // seconds after its last use after which a key loses its row; 0: never

  bool may_remove() const { return evict != 0 || ttl > 0; }
  bool operator==(const KeyPolicy& other) const {
    return capacity == other.capacity && evict == other.evict && admit == other.admit &&
           ttl == other.ttl;
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
  int64_t expirations = 0;
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
    uint32_t age = 0;   // since its last use, in ticks
  };
  // What programs see of a row.
  struct RowOfKey {
    int64_t key = 0;
    uint32_t changes = 0;  // another number after each change of the row
    uint32_t is_used = 0;  // 0 if no key has the row
  };
  static constexpr double kTicksPerSecond = 16;
  // Returns the time that uses of keys note. The clock of a table on a disk stands still between
  // sessions: the next one calls ContinueFrom with the last time of the session before.
  uint32_t TicksNow() const;
  void ContinueFrom(uint32_t ticks);

  // Returns the stripes that a table of so many keys has, a multiple of `parts`.
  static int64_t StripesFor(int64_t capacity, int64_t parts);
  friend RowArea CellsOfKeys(int64_t stripes);
  friend int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy);

  // `memory`, of BytesOfKeys bytes, is valid when zero-filled. The shard's stripes are the stripes
  // `first_stripe` to `first_stripe` + `stripes` - 1 of the table's `table_stripes`.
  KeyIndex(char* memory, int64_t stripes, int64_t first_stripe, int64_t table_stripes,
           const KeyPolicy& policy, const LazyRows* rows);

  const KeyPolicy& policy() const { return policy_; }
  // Also writes the counts there, for observers.
  void PublishTo(std::atomic<int64_t>* counts) { published_ = counts; }
  // What the hash of a key says about its place: its stripe in the shard, which is not one of them
  // if the key belongs to another node, and the parts of the hash that its entry depends on.
  struct Place {
    int64_t stripe;
    uint16_t home;
    uint16_t tag;
  };
  Place PlaceOf(int64_t key) const {
    const uint64_t hash = KeyHash(key);
    const auto stripe =
        static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(table_stripes_) >> 32);
    // The low bits of the hash, of which StripeOfKey uses the high ones.
    const auto tag = static_cast<uint16_t>((1 + (hash >> 10) % 127) << kRowBits);
    return Place{stripe - first_stripe_, static_cast<uint16_t>(hash & kEntryMask), tag};
  }
  int64_t StripeOf(int64_t key) const { return StripeOfKey(key, table_stripes_) - first_stripe_; }
  // Returns where Find reads first, or where it reads about a row that is not kNone.
  const void* AddressOf(const Place& place, int64_t row) const {
    return row == kNone ? static_cast<const void*>(EntriesOf(place.stripe) + place.home)
                        : cells_ + row;
  }
  static constexpr int64_t kCellBytes = 24;
  // Prefetches what Find reads first.
  void Prefetch(const Place& place) const { MV_PREFETCH(EntriesOf(place.stripe) + place.home, 0); }
  // Returns a row that is probably the key's, or kNone, and prefetches its cell.
  int64_t Guess(const Place& place) const {
    const int64_t guess = FirstRowOf(place, [](int64_t /*row*/) { return true; });
    if (guess != kNone) MV_PREFETCH(cells_ + guess, 1);
    return guess;
  }
  // Returns the row of a key in the shard, or kNone.
  int64_t Find(const Place& place, int64_t key) const {
    return FirstRowOf(place, [&](int64_t row) { return KeyOf(row) == key; });
  }
  int64_t Find(int64_t key) const { return Find(PlaceOf(key), key); }
  // Returns whether a row, which the key had before, is still the key's, under the stripe's lock.
  bool IsRowOf(int64_t row, int64_t key) const {
    return KeyOf(row) == key && rows_->IsTouched(row);
  }
  // Returns the key of a row that has been in use.
  int64_t KeyOf(int64_t row) const { return cells_[row].key.load(std::memory_order_relaxed); }
  // Returns whether the key of the row has not been used for longer than the policy allows.
  bool IsExpired(int64_t row) const {
    if (policy_.ttl <= 0) return false;
    // Signed, since another rank may have used the row after this rank has read the clock.
    const uint32_t now = TicksNow();
    return static_cast<int32_t>(now - cells_[row].time.load(std::memory_order_relaxed)) >
           ttl_ticks_;
  }

  // ---- Under the stripe's lock
  // Gives a key a row that is not in use, and returns the row, or kNone if all are. The caller
  // touches the row, with Link after it. Sets *is_reused if the row has been in use before.
  int64_t TakeRow(int64_t stripe, int64_t key, bool* is_reused);
  void CountChange(int64_t row) const {
    std::atomic<uint32_t>& changes = cells_[row].changes;
    changes.store(changes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  RowOfKey Describe(int64_t row) const;
  // Makes Find return the row, which has been touched.
  void Link(int64_t stripe, int64_t row);
  // Makes Find not return the row, which is still touched.
  void Unlink(int64_t stripe, int64_t row);
  // Returns the row to evict among some that are in use, from the row number `start` of the stripe
  // on, or kNone if none is in use.
  int64_t VictimOf(int64_t stripe, int64_t start) const;
  // Makes the entries agree with the cells and with the rows in use, after a rank has died that
  // held the lock.
  void Rebuild(int64_t stripe);
  // Counts a get of a key without a row, and returns whether the key may have a row now.
  bool Admit(int64_t stripe, int64_t key);

  // Copies what Find and IsExpired read to the memory of another index with as many stripes.
  void CopyStripeTo(int64_t stripe, char* memory) const;

  // ---- At any time
  // Begins a call, whose uses are more recent than those of earlier calls.
  uint32_t BeginCall() const;
  void CountUse(int64_t row, uint32_t call) const;
  void Count(const KeyCounts& changes) const;
  KeyCounts Counts() const;
  SavedCell Save(int64_t row) const;
  void Restore(int64_t row, const SavedCell& saved);

 private:
  struct Cell {
    std::atomic<int64_t> key;
    std::atomic<uint32_t> changes;
    std::atomic<uint32_t> uses;
    std::atomic<uint32_t> time;  // of the last use, in ticks; odd ones only, 0 before the first use
    uint32_t unused;
  };
  struct Header {
    std::atomic<int64_t> counts[KeyCounts::kFields];
    std::atomic<uint32_t> calls;
    std::atomic<uint32_t> ticks_ahead;  // of the clock of this machine
  };
  static_assert(sizeof(Cell) == kCellBytes);
  using Entry = std::atomic<uint16_t>;  // 0 if it is free

  static constexpr int kEntriesPerStripe = 2 * kRowsPerStripe;
  static constexpr int kEntryMask = kEntriesPerStripe - 1;
  static constexpr int kRowBits = 9;
  static constexpr int64_t kCountersPerStripe = 8 * kRowsPerStripe;
  static constexpr int64_t kHeaderBytes = 256;
  static_assert(sizeof(Header) <= kHeaderBytes);
  static_assert(kRowsPerStripe == int64_t{1} << kRowBits);

  // Returns the first row that an entry for the place names and is_it(row) accepts, or kNone.
  template <class IsIt>
  int64_t FirstRowOf(const Place& place, const IsIt& is_it) const {
    const Entry* const entries = EntriesOf(place.stripe);
    // Without the lock, the entries may change, and none of them may be free for a moment.
    for (int i = 0; i < kEntriesPerStripe; ++i) {
      const uint16_t entry = entries[(place.home + i) & kEntryMask].load(std::memory_order_relaxed);
      if (entry == 0) break;
      if (((entry ^ place.tag) >> kRowBits) != 0) continue;
      const int64_t row = FirstRow(place.stripe) + (entry & (kRowsPerStripe - 1));
      if (is_it(row)) return row;
    }
    return kNone;
  }
  Entry* EntriesOf(int64_t stripe) const { return entries_ + stripe * kEntriesPerStripe; }
  static int64_t FirstRow(int64_t stripe) { return stripe * kRowsPerStripe; }

  int64_t stripes_;
  int64_t first_stripe_;
  int64_t table_stripes_;
  KeyPolicy policy_;
  int32_t ttl_ticks_;
  const LazyRows* rows_;  // a row is in use if it has been touched
  Header* header_;
  std::atomic<int64_t>* published_ = nullptr;
  Entry* entries_;
  Cell* cells_;
  uint8_t* counters_;       // of gets of keys without rows, kCountersPerStripe for each stripe
  uint32_t* counted_gets_;  // for each stripe
};

// Returns where in the memory of an index the cells are, with the bytes for each stripe. Nothing
// else of it is read or written for a row only.
RowArea CellsOfKeys(int64_t stripes);
// Returns the bytes of the memory of an index.
int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy);

// The places of the next keys of a list, each computed once, some keys before it is needed.
class UpcomingPlaces {
 public:
  explicit UpcomingPlaces(const KeyIndex* keys) : keys_(keys) {}

  // Computes the place of the key number i, and prefetches what finding it reads.
  void Begin(int64_t i, int64_t key) {
    KeyIndex::Place& place = places_[i % kSize];
    place = keys_->PlaceOf(key);
    keys_->Prefetch(place);
  }
  const KeyIndex::Place& At(int64_t i) const { return places_[i % kSize]; }

 private:
  static constexpr int64_t kSize = 4 * kPrefetchDistance;
  const KeyIndex* keys_;
  KeyIndex::Place places_[kSize];
};

}  // namespace multiverso
