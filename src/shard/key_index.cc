#include "shard/key_index.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/clock.h"

namespace multiverso {
namespace {

uint32_t MachineTicks() {
  // All processes of a node read the same clock.
  using Ticks =
      std::chrono::duration<int64_t, std::ratio<1, static_cast<int>(KeyIndex::kTicksPerSecond)>>;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint32_t>(std::chrono::duration_cast<Ticks>(now).count());
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

RowArea CellsOfKeys(int64_t stripes) {
  return RowArea{KeyIndex::kHeaderBytes + stripes * KeyIndex::kEntriesPerStripe *
                                              static_cast<int64_t>(sizeof(KeyIndex::Entry)),
                 KeyIndex::kRowsPerStripe * static_cast<int64_t>(sizeof(KeyIndex::Cell))};
}

int64_t BytesOfKeys(int64_t stripes, const KeyPolicy& policy) {
  const RowArea cells = CellsOfKeys(stripes);
  const int64_t counters =
      policy.admit > 1
          ? stripes * (KeyIndex::kCountersPerStripe + static_cast<int64_t>(sizeof(uint32_t)))
          : 0;
  return cells.offset + stripes * cells.bytes_each + counters;
}

KeyIndex::KeyIndex(char* memory, int64_t stripes, int64_t first_stripe, int64_t table_stripes,
                   const KeyPolicy& policy, const LazyRows* rows)
    : stripes_(stripes),
      first_stripe_(first_stripe),
      table_stripes_(table_stripes),
      policy_(policy),
      ttl_ticks_(static_cast<int32_t>(std::min(policy.ttl * kTicksPerSecond, 2147483647.0))),
      rows_(rows),
      header_(reinterpret_cast<Header*>(memory)),
      entries_(reinterpret_cast<Entry*>(memory + kHeaderBytes)),
      cells_(reinterpret_cast<Cell*>(entries_ + stripes * kEntriesPerStripe)),
      counters_(reinterpret_cast<uint8_t*>(cells_ + stripes * kRowsPerStripe)),
      counted_gets_(reinterpret_cast<uint32_t*>(counters_ + stripes * kCountersPerStripe)) {}

void KeyIndex::CopyStripeTo(int64_t stripe, char* memory) const {
  const KeyIndex to(memory, stripes_, first_stripe_, table_stripes_, policy_, nullptr);
  std::memcpy(static_cast<void*>(to.EntriesOf(stripe)), EntriesOf(stripe),
              kEntriesPerStripe * sizeof(Entry));
  std::memcpy(static_cast<void*>(to.cells_ + FirstRow(stripe)), cells_ + FirstRow(stripe),
              kRowsPerStripe * sizeof(Cell));
}

uint32_t KeyIndex::TicksNow() const {
  return (MachineTicks() + header_->ticks_ahead.load(std::memory_order_relaxed)) | 1U;
}

void KeyIndex::ContinueFrom(uint32_t ticks) { header_->ticks_ahead.store(ticks - MachineTicks()); }

int64_t KeyIndex::TakeRow(int64_t stripe, int64_t key, bool* is_reused) {
  const int64_t end = FirstRow(stripe) + kRowsPerStripe;
  const int64_t row = rows_->NextUntouched(FirstRow(stripe), end);
  if (row == end) return kNone;
  Cell& cell = cells_[row];
  *is_reused = cell.time.load(std::memory_order_relaxed) != 0;
  cell.key.store(key, std::memory_order_relaxed);
  cell.uses.store(0, std::memory_order_relaxed);
  cell.time.store(policy_.ttl > 0 ? TicksNow() : 1, std::memory_order_relaxed);
  return row;
}

void KeyIndex::Link(int64_t stripe, int64_t row) {
  const Place place = PlaceOf(KeyOf(row));
  Entry* const entries = EntriesOf(stripe);
  int at = place.home;
  while (entries[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & kEntryMask;
  entries[at].store(static_cast<uint16_t>(place.tag | (row - FirstRow(stripe))),
                    std::memory_order_relaxed);
}

void KeyIndex::Unlink(int64_t stripe, int64_t row) {
  Entry* const entries = EntriesOf(stripe);
  const auto row_of = [&](uint16_t entry) {
    return FirstRow(stripe) + (entry & (kRowsPerStripe - 1));
  };
  int hole = PlaceOf(KeyOf(row)).home;
  for (;; hole = (hole + 1) & kEntryMask) {
    const uint16_t entry = entries[hole].load(std::memory_order_relaxed);
    if (entry == 0) return;
    if (row_of(entry) == row) break;
  }
  // Entries after the hole move into it if they would not be found behind it.
  for (int at = (hole + 1) & kEntryMask;; at = (at + 1) & kEntryMask) {
    const uint16_t entry = entries[at].load(std::memory_order_relaxed);
    if (entry == 0) break;
    const int home = PlaceOf(KeyOf(row_of(entry))).home;
    const int from_home = (at - home) & kEntryMask;
    const int from_hole = (at - hole) & kEntryMask;
    if (from_home < from_hole) continue;
    entries[hole].store(entry, std::memory_order_relaxed);
    hole = at;
  }
  entries[hole].store(0, std::memory_order_relaxed);
}

int64_t KeyIndex::VictimOf(int64_t stripe, int64_t start) const {
  constexpr int kMostCandidates = 64;
  const int64_t first = FirstRow(stripe);
  const int64_t end = first + kRowsPerStripe;
  const uint32_t calls = header_->calls.load(std::memory_order_relaxed);
  const auto value_of = [&](int64_t row) -> int64_t {
    const uint32_t uses = cells_[row].uses.load(std::memory_order_relaxed);
    // The number of calls may wrap around, but not the difference.
    if (policy_.evict == static_cast<int32_t>(Eviction::kLeastRecent)) {
      return -static_cast<int64_t>(calls - uses);
    }
    return uses;
  };
  // Old uses count less and less, or else keys that were popular once would stay for ever.
  const bool ages =
      policy_.evict == static_cast<int32_t>(Eviction::kLeastFrequent) && start % 16 == 0;
  int64_t victim = kNone;
  int64_t least = 0;
  int candidates = 0;
  const auto look = [&](int64_t from, int64_t to) {
    for (int64_t row = rows_->NextTouched(from, to); row < to && candidates < kMostCandidates;
         row = rows_->NextTouched(row + 1, to)) {
      if (ages) cells_[row].uses.store(cells_[row].uses.load(std::memory_order_relaxed) / 2);
      const bool is_expired = IsExpired(row);
      if (!is_expired && policy_.evict == 0) continue;
      ++candidates;
      const int64_t value = is_expired ? std::numeric_limits<int64_t>::min() : value_of(row);
      if (victim != kNone && value >= least) continue;
      victim = row;
      least = value;
    }
  };
  // Rows are taken from the first one on, so those behind the used ones must not be starting
  // points: all of these would lead to the first rows.
  const int64_t used = rows_->NextUntouched(first, end) - first;
  const int64_t middle = first + start % (used > 0 ? used : kRowsPerStripe);
  look(middle, end);
  look(first, middle);
  return victim;
}

void KeyIndex::Rebuild(int64_t stripe) {
  Entry* const entries = EntriesOf(stripe);
  for (int i = 0; i < kEntriesPerStripe; ++i) entries[i].store(0, std::memory_order_relaxed);
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
  if (!policy_.may_remove()) return 0;
  return header_->calls.fetch_add(1, std::memory_order_relaxed) + 1;
}

void KeyIndex::CountUse(int64_t row, uint32_t call) const {
  if (!policy_.may_remove()) return;
  Cell& cell = cells_[row];
  if (policy_.evict == static_cast<int32_t>(Eviction::kLeastFrequent)) {
    const uint32_t uses = cell.uses.load(std::memory_order_relaxed);
    if (uses != UINT32_MAX) cell.uses.store(uses + 1, std::memory_order_relaxed);
  } else {
    cell.uses.store(call, std::memory_order_relaxed);
  }
  if (policy_.ttl > 0) cell.time.store(TicksNow(), std::memory_order_relaxed);
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
  return RowOfKey{KeyOf(row), cells_[row].changes.load(std::memory_order_relaxed), 1};
}

KeyIndex::SavedCell KeyIndex::Save(int64_t row) const {
  SavedCell saved;
  saved.key = KeyOf(row);
  saved.uses = cells_[row].uses.load(std::memory_order_relaxed);
  const uint32_t time = cells_[row].time.load(std::memory_order_relaxed);
  saved.age = policy_.ttl > 0 ? TicksNow() - time : 0;
  return saved;
}

void KeyIndex::Restore(int64_t row, const SavedCell& saved) {
  cells_[row].uses.store(saved.uses, std::memory_order_relaxed);
  cells_[row].time.store((TicksNow() - saved.age) | 1U, std::memory_order_relaxed);
  if (policy_.evict != static_cast<int32_t>(Eviction::kLeastRecent)) return;
  // Later calls are more recent than the calls of the job that saved.
  uint32_t calls = header_->calls.load(std::memory_order_relaxed);
  while (calls < saved.uses && !header_->calls.compare_exchange_weak(calls, saved.uses)) {
  }
}

}  // namespace multiverso
