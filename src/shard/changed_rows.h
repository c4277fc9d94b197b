// ChangedRows: which rows of a shard have changed since a version, for saves and publications.
//
// Each stripe has a bit for each row that has changed since somebody last asked, which a writer
// sets before it changes the row. Whoever asks moves these bits to one of a few sets, with the
// version of the stripe's last change (StripeLock). So a question about an earlier version is
// answered by the sets that are newer. If there are too many sets, the oldest one is added to the
// next, unless a save has asked in between, so that an answer may have rows that changed earlier,
// but never lacks one. Narrow rows share a bit. The elements of an array, and rows hardly larger,
// have none: all of their stripe counts as changed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "shard/stripe_layout.h"

namespace multiverso {

class ChangedRows {
 public:
  ChangedRows() = default;
  explicit ChangedRows(const StripeLayout& layout);

  // The memory is valid when zero-filled. Writers use that of the bits only.
  int64_t bit_bytes() const { return layout_.stripes() * words_ * kWordBytes; }
  int64_t set_bytes() const {
    return words_ == 0 ? 0 : layout_.stripes() * kSets * (1 + words_) * kWordBytes;
  }
  // `held` are kHeld versions about which somebody will ask: those of the last saves.
  static constexpr int kHeld = 7;
  void Attach(char* bits, char* sets, const std::atomic<uint64_t>* held) {
    held_ = held;
    now_ = reinterpret_cast<std::atomic<uint64_t>*>(bits);
    sets_ = reinterpret_cast<uint64_t*>(sets);
  }

  // Where a writer of single rows sets bit `row`, with Set, under the lock of the row's stripe, if
  // nobody calls NoteRange without it. Null if it must call NoteRange.
  std::atomic<uint64_t>* BitPerRow() const {
    return up_ + down_ == 0 && words_ > 0 ? now_ : nullptr;
  }
  static MV_ALWAYS_INLINE void Set(std::atomic<uint64_t>* bits, int64_t row) {
    std::atomic<uint64_t>& word = bits[static_cast<uint64_t>(row) / kWordBits];
    word.store(word.load(std::memory_order_relaxed) |
                   uint64_t{1} << (static_cast<uint64_t>(row) % kWordBits),
               std::memory_order_relaxed);
  }
  // Notes that rows `first` to `end` - 1, of one stripe, will change; with or without its lock.
  void NoteRange(int64_t first, int64_t end) const;

  // Returns whether rows of the stripe have changed since Close.
  bool IsOpen(int64_t stripe) const;
  // ---- Under the stripe's lock
  // Moves the bits of the changes until now, the last of which noted `version`, to a set, so that
  // later changes are told apart from them.
  void Close(int64_t stripe, uint64_t version) const;
  // Calls body(first, end) for each run of rows that may have changed since a version, where the
  // stripe's last change is later.
  template <class Body>
  void List(int64_t stripe, uint64_t since, const Body& body) const;

 private:
  static constexpr int64_t kWordBits = 64;
  static constexpr int64_t kWordBytes = 8;
  // Saves ask about one earlier version, and publications about up to three.
  static constexpr int kSets = 4;
  // The bytes of rows that share a bit.
  static constexpr int64_t kBitBytes = 64;
  static constexpr int64_t kLeastRowBytes = 16;

  // A set is a version, which is 0 if the set is unused, and the bits of a stripe.
  uint64_t* SetOf(int64_t stripe, int index) const {
    return sets_ + (stripe * kSets + index) * (1 + words_);
  }
  // Returns an unused set. If all are in use, it first adds the bits of one to those of a later
  // one.
  uint64_t* FreeSet(int64_t stripe) const;

  StripeLayout layout_;
  int64_t words_ = 0;  // of a stripe
  int up_ = 0;         // the bit of a row is row << up_ >> down_
  int down_ = 0;
  std::atomic<uint64_t>* now_ = nullptr;
  uint64_t* sets_ = nullptr;
  const std::atomic<uint64_t>* held_ = nullptr;
};

template <class Body>
void ChangedRows::List(int64_t stripe, uint64_t since, const Body& body) const {
  const int64_t first = layout_.first_row(stripe);
  const int64_t end = layout_.end_row(stripe);
  if (words_ == 0) return body(first, end);
  for (int64_t word = 0; word < words_; ++word) {
    uint64_t bits = now_[stripe * words_ + word].load(std::memory_order_relaxed);
    for (int i = 0; i < kSets; ++i) {
      const uint64_t* const set = SetOf(stripe, i);
      if (set[0] > since) bits |= set[1 + word];
    }
    while (bits != 0) {
      const int bit = LowestBit(bits);
      // The bits of a run, moved to the lowest place, and one more make a power of two.
      const uint64_t beyond = ~(bits >> bit);
      const int run = beyond == 0 ? kWordBits : LowestBit(beyond);
      const auto row_of = [&](int64_t at) {
        return first + ((word * kWordBits + at) << down_ >> up_);
      };
      body(row_of(bit), std::min(row_of(bit + run - 1) + (int64_t{1} << down_), end));
      bits = bit + run == kWordBits ? 0 : bits & (~uint64_t{0} << (bit + run));
    }
  }
}

}  // namespace multiverso
