#include "shard/changed_rows.h"

namespace multiverso {

ChangedRows::ChangedRows(const StripeLayout& layout) : layout_(layout) {
  if (layout.row_bytes() < kLeastRowBytes || layout.rows() == 0) return;
  const int64_t rows = layout.rows_per_stripe();
  while ((layout.row_bytes() << down_) < kBitBytes && (int64_t{1} << down_) < rows) ++down_;
  // A stripe begins with a word of its own.
  while ((rows >> down_ << up_) < kWordBits) ++up_;
  words_ = (rows << up_ >> down_) / kWordBits;
}

void ChangedRows::NoteRange(int64_t first, int64_t end) const {
  if (words_ == 0) return;
  const int64_t end_bit = ((end - 1) << up_ >> down_) + 1;
  for (int64_t bit = first << up_ >> down_; bit < end_bit;) {
    const int64_t next = std::min(end_bit, (bit / kWordBits + 1) * kWordBits);
    const uint64_t ones = ~uint64_t{0} >> (kWordBits - (next - bit)) << (bit % kWordBits);
    std::atomic<uint64_t>& word = now_[bit / kWordBits];
    // Most writers find that an earlier one has done it.
    if ((word.load(std::memory_order_relaxed) & ones) != ones) {
      word.fetch_or(ones, std::memory_order_relaxed);
    }
    bit = next;
  }
}

bool ChangedRows::IsOpen(int64_t stripe) const {
  const std::atomic<uint64_t>* const words = now_ + stripe * words_;
  return std::any_of(words, words + words_, [](const std::atomic<uint64_t>& word) {
    return word.load(std::memory_order_relaxed) != 0;
  });
}

uint64_t* ChangedRows::FreeSet(int64_t stripe) const {
  uint64_t* sets[kSets];
  for (int i = 0; i < kSets; ++i) {
    sets[i] = SetOf(stripe, i);
    if (sets[i][0] == 0) return sets[i];
  }
  std::sort(sets, sets + kSets, [](const uint64_t* a, const uint64_t* b) { return a[0] < b[0]; });
  // Who asks about a version between two sets gets the later one, so these should stay apart.
  const auto is_held = [&](int i) {
    return std::any_of(held_, held_ + kHeld, [&](const std::atomic<uint64_t>& held) {
      const uint64_t at = held.load(std::memory_order_relaxed);
      return at >= sets[i][0] && at < sets[i + 1][0];
    });
  };
  int oldest = 0;
  while (oldest + 2 < kSets && is_held(oldest)) ++oldest;
  if (is_held(oldest)) oldest = 0;
  // If this rank dies in between, some rows are in both sets.
  for (int64_t word = 1; word <= words_; ++word) sets[oldest + 1][word] |= sets[oldest][word];
  std::fill(sets[oldest], sets[oldest] + 1 + words_, uint64_t{0});
  return sets[oldest];
}

void ChangedRows::Close(int64_t stripe, uint64_t version) const {
  if (!IsOpen(stripe)) return;
  uint64_t* const set = FreeSet(stripe);
  set[0] = version;
  for (int64_t word = 0; word < words_; ++word) {
    std::atomic<uint64_t>& now = now_[stripe * words_ + word];
    const uint64_t bits = now.load(std::memory_order_relaxed);
    set[1 + word] |= bits;
    // If this rank dies before, some rows are in both. Bits that the word gets meanwhile remain.
    now.fetch_and(~bits, std::memory_order_release);
  }
}

}  // namespace multiverso
