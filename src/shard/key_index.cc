#include "shard/key_index.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"

namespace multiverso {
namespace {

constexpr auto kCounter = static_cast<int64_t>(sizeof(uint32_t));

// Changes a counter that only the holder of a lock changes.
void Change(std::atomic<uint16_t>* counter, int by) {
  const int count = counter->load(std::memory_order_relaxed) + by;
  counter->store(static_cast<uint16_t>(count), std::memory_order_relaxed);
}

}  // namespace

KeyCounts& KeyCounts::operator+=(const KeyCounts& other) {
  auto* const sums = reinterpret_cast<int64_t*>(this);
  const auto* const values = reinterpret_cast<const int64_t*>(&other);
  for (int i = 0; i < kFields; ++i) sums[i] += values[i];
  return *this;
}

int64_t KeyIndex::StripesFor(int64_t capacity, int64_t parts) {
  // The number of keys in a stripe is nearly Poisson-distributed. Of this mean, 512 is more than
  // ten standard deviations away.
  constexpr int64_t kMeanKeys = 320;
  const int64_t stripes = capacity <= kRowsPerStripe ? 1 : (capacity - 1) / kMeanKeys + 1;
  return RoundUp(stripes, parts);
}

std::vector<RowArea> ArraysOfKeys(int64_t stripes) {
  constexpr int64_t kRows = KeyIndex::kRowsPerStripe;
  std::vector<RowArea> areas;
  int64_t offset = KeyIndex::kHeaderBytes;
  for (const int64_t bytes : {KeyIndex::kBucketsPerStripe * KeyIndex::kBucketBytes,
                              kRows * static_cast<int64_t>(sizeof(int64_t)), kRows * kCounter}) {
    areas.push_back({offset, bytes});
    offset += stripes * bytes;
  }
  return areas;
}

int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy) {
  const RowArea last = ArraysOfKeys(stripes).back();
  const int64_t counters = policy.admit > 1 ? KeyIndex::kCountersPerStripe + kCounter : 0;
  return last.offset + stripes * (last.bytes_each + kCounter + counters);
}

KeyIndex::KeyIndex(char* memory, int64_t stripes, int64_t first_stripe, int64_t table_stripes,
                   const KeyPolicy& policy, const LazyRows* rows)
    : stripes_(stripes),
      first_stripe_(first_stripe),
      table_stripes_(table_stripes),
      policy_(policy),
      rows_(rows),
      header_(reinterpret_cast<Header*>(memory)),
      buckets_(reinterpret_cast<Bucket*>(memory + kHeaderBytes)),
      keys_(reinterpret_cast<std::atomic<int64_t>*>(buckets_ + stripes * kBucketsPerStripe)),
      uses_(reinterpret_cast<std::atomic<uint32_t>*>(keys_ + stripes * kRowsPerStripe)),
      taken_(reinterpret_cast<uint32_t*>(uses_ + stripes * kRowsPerStripe)),
      counters_(reinterpret_cast<uint8_t*>(taken_ + stripes)),
      counted_gets_(reinterpret_cast<uint32_t*>(counters_ + stripes * kCountersPerStripe)) {}

void KeyIndex::CopyStripeTo(int64_t stripe, char* memory) const {
  constexpr size_t kCopied = 2;  // the buckets and the keys
  const char* const from = reinterpret_cast<const char*>(header_);
  std::vector<RowArea> arrays = ArraysOfKeys(stripes_);
  arrays.resize(kCopied);
  for (const RowArea& array : arrays) {
    const int64_t offset = array.offset + stripe * array.bytes_each;
    std::memcpy(memory + offset, from + offset, static_cast<size_t>(array.bytes_each));
  }
}

int64_t KeyIndex::TakeRow(int64_t stripe, int64_t key, bool* is_reused) {
  const int64_t end = FirstRow(stripe) + kRowsPerStripe;
  const int64_t row = rows_->NextUntouched(FirstRow(stripe), end);
  if (row == end) return kNone;
  // The first free row is taken, so those that have been in use are the first of the stripe.
  const auto taken = static_cast<uint32_t>(row - FirstRow(stripe) + 1);
  *is_reused = taken <= taken_[stripe];
  if (!*is_reused) taken_[stripe] = taken;
  keys_[row].store(key, std::memory_order_relaxed);
  // Without evictions, uses are not counted, and take no memory.
  if (policy_.evict != 0) uses_[row].store(0, std::memory_order_relaxed);
  return row;
}

void KeyIndex::Link(int64_t stripe, int64_t row) {
  constexpr unsigned kAllSlots = (1U << Bucket::kSlots) - 1;
  Bucket* const buckets = BucketsOf(stripe);
  int64_t at = PlaceOf(KeyOf(row)).home;
  for (; buckets[at].used.load(std::memory_order_relaxed) == kAllSlots; at = Next(at)) {
    Change(&buckets[at].passed, +1);
  }
  Bucket& bucket = buckets[at];
  const unsigned used = bucket.used.load(std::memory_order_relaxed);
  const int slot = LowestBit(~used);
  bucket.keys[slot].store(KeyOf(row), std::memory_order_relaxed);
  bucket.rows[slot].store(static_cast<uint16_t>(row - FirstRow(stripe)), std::memory_order_relaxed);
  bucket.used.store(static_cast<uint16_t>(used | 1U << slot), std::memory_order_relaxed);
}

void KeyIndex::Unlink(int64_t stripe, int64_t row) {
  Bucket* const buckets = BucketsOf(stripe);
  const int64_t key = KeyOf(row);
  const int64_t home = PlaceOf(key).home;
  int64_t at = home;
  int slot = -1;
  for (int64_t i = 0; i < kBucketsPerStripe && slot < 0; ++i) {
    if (i > 0) at = Next(at);
    slot = buckets[at].SlotOf(key);
  }
  if (slot < 0 || buckets[at].RowAt(slot) != row - FirstRow(stripe)) return;
  for (int64_t passed = home; passed != at; passed = Next(passed)) {
    Change(&buckets[passed].passed, -1);
  }
  const unsigned used = buckets[at].used.load(std::memory_order_relaxed);
  buckets[at].used.store(static_cast<uint16_t>(used & ~(1U << slot)), std::memory_order_relaxed);
}

int64_t KeyIndex::FirstVictim(int64_t stripe, int64_t start) const {
  // Rows are taken from the first one on, so those behind the used ones must not be starting
  // points: all of these would lead to the first rows.
  const int64_t first = FirstRow(stripe);
  const int64_t used = rows_->NextUntouched(first, first + kRowsPerStripe) - first;
  return first + start % (used > 0 ? used : kRowsPerStripe);
}

int64_t KeyIndex::VictimOf(int64_t stripe, int64_t start) const {
  const int64_t first = FirstRow(stripe);
  const int64_t end = first + kRowsPerStripe;
  const bool is_least_recent = policy_.evict == static_cast<int32_t>(Eviction::kLeastRecent);
  const uint32_t calls = header_->calls.load(std::memory_order_relaxed);
  const auto value_of = [&](uint32_t uses) -> int64_t {
    // The number of calls may wrap around, and another rank may have begun further ones.
    return is_least_recent ? static_cast<int32_t>(uses - calls) : int64_t{uses};
  };
  // Old uses count less and less, or else keys that were popular once would stay for ever.
  const bool ages =
      policy_.evict == static_cast<int32_t>(Eviction::kLeastFrequent) && start % 16 == 0;
  int64_t victim = kNone;
  int64_t least = std::numeric_limits<int64_t>::max();
  int candidates = 0;
  const auto consider = [&](int64_t row) MV_ALWAYS_INLINE {
    std::atomic<uint32_t>& uses = uses_[row];
    if (ages) uses.store(uses.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    ++candidates;
    const int64_t value = value_of(uses.load(std::memory_order_relaxed));
    if (value >= least) return;
    victim = row;
    least = value;
  };
  const auto look = [&](int64_t from, int64_t to) MV_ALWAYS_INLINE {
    while (candidates < kMostCandidates) {
      const int64_t row = rows_->NextTouched(from, to);
      if (row == to) return;
      from = rows_->NextUntouched(row, std::min(to, row + kMostCandidates - candidates));
      for (int64_t touched = row; touched < from; ++touched) consider(touched);
    }
  };
  const int64_t middle = FirstVictim(stripe, start);
  look(middle, end);
  look(first, middle);
  return victim;
}

void KeyIndex::Rebuild(int64_t stripe) {
  for (int64_t i = 0; i < kBucketsPerStripe; ++i) {
    BucketsOf(stripe)[i].used.store(0, std::memory_order_relaxed);
    BucketsOf(stripe)[i].passed.store(0, std::memory_order_relaxed);
  }
  const int64_t end = FirstRow(stripe) + kRowsPerStripe;
  for (int64_t row = rows_->NextTouched(FirstRow(stripe), end); row < end;
       row = rows_->NextTouched(row + 1, end)) {
    Link(stripe, row);
  }
}

bool KeyIndex::Admit(int64_t stripe, int64_t key) {
  if (policy_.admit <= 1) return true;
  // A count-min sketch with two counters per key (Cormode and Muthukrishnan, "An Improved Data
  // Stream Summary", Journal of Algorithms 55, 2005), of which only the smaller ones grow.
  // Old gets count less and less, or else the counters of rare keys, which many keys share, would
  // grow without end. Within so many gets, few counters get near the number that admits.
  const auto most_gets = static_cast<uint32_t>(kCountersPerStripe / 16 * policy_.admit);
  uint8_t* const counters = counters_ + stripe * kCountersPerStripe;
  const uint64_t hash = KeyHash(key);
  uint8_t& a = counters[hash % kCountersPerStripe];
  uint8_t& b = counters[(hash >> 16) % kCountersPerStripe];
  if (++counted_gets_[stripe] >= most_gets) {
    counted_gets_[stripe] = 0;
    for (int64_t i = 0; i < kCountersPerStripe; ++i) counters[i] /= 2;
  }
  const uint8_t count = std::min(a, b);
  if (count + 1 >= policy_.admit) return true;
  if (a == count) a = static_cast<uint8_t>(count + 1);
  if (b == count) b = static_cast<uint8_t>(count + 1);
  return false;
}

uint32_t KeyIndex::BeginCall() const {
  if (policy_.evict == 0) return 0;
  return header_->calls.fetch_add(1, std::memory_order_relaxed) + 1;
}

void KeyIndex::Count(const KeyCounts& changes) const {
  const auto* const values = reinterpret_cast<const int64_t*>(&changes);
  for (int i = 0; i < KeyCounts::kFields; ++i) {
    if (values[i] != 0) header_->counts[i].fetch_add(values[i], std::memory_order_relaxed);
  }
  if (published_ == nullptr) return;
  const KeyCounts counts = Counts();
  const auto* const published = reinterpret_cast<const int64_t*>(&counts);
  for (int i = 0; i < KeyCounts::kFields; ++i) {
    published_[i].store(published[i], std::memory_order_relaxed);
  }
}

KeyCounts KeyIndex::Counts() const {
  KeyCounts counts;
  auto* const values = reinterpret_cast<int64_t*>(&counts);
  for (int i = 0; i < KeyCounts::kFields; ++i) {
    values[i] = header_->counts[i].load(std::memory_order_relaxed);
  }
  counts.keys = rows_->touched();
  return counts;
}

KeyIndex::RowOfKey KeyIndex::Describe(int64_t row) const {
  if (!rows_->IsTouched(row)) return RowOfKey();
  return RowOfKey{KeyOf(row), 1};
}

KeyIndex::SavedCell KeyIndex::Save(int64_t row) const {
  SavedCell saved;
  saved.key = KeyOf(row);
  // Without `evict`, reading a counter would give it memory.
  if (policy_.evict != 0) saved.uses = uses_[row].load(std::memory_order_relaxed);
  return saved;
}

void KeyIndex::Restore(int64_t row, const SavedCell& saved) {
  if (policy_.evict == 0) return;
  uses_[row].store(saved.uses, std::memory_order_relaxed);
  if (policy_.evict != static_cast<int32_t>(Eviction::kLeastRecent)) return;
  // Later calls are more recent than the calls of the job that saved.
  uint32_t calls = header_->calls.load(std::memory_order_relaxed);
  while (calls < saved.uses && !header_->calls.compare_exchange_weak(calls, saved.uses)) {
  }
}

}  // namespace multiverso
