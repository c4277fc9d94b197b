#include "shard/shard_copies.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/copy_bytes.h"
#include "shard/key_index.h"
#include "shard/shard_stripes.h"

namespace multiverso {
namespace {

// Returns a request for a range, of which no updater takes note.
Request RangeOf(int64_t first, int64_t count) {
  Request range;
  range.is_peek = true;
  range.first = first;
  range.count = count;
  return range;
}

}  // namespace

int64_t ShardCopies::AreaBytes(int64_t area, int64_t count) const {
  const int64_t columns = shard_.columns_;
  if (area == row_state()) return count / columns * shard_.storage_.row_state_bytes();
  return count * (area == kParameters ? shard_.layout().row_bytes() / columns
                                      : shard_.values_.value_bytes());
}

char* ShardCopies::AreaAt(int64_t area, int64_t first) const {
  const ShardStorage& storage = shard_.storage_;
  char* const begin = area == kParameters   ? storage.parameters()
                      : area == row_state() ? storage.row_state(0)
                                            : storage.state() + (area - 1) * storage.state_stride();
  return begin + AreaBytes(area, first);
}

Status ShardCopies::CopyOut(int64_t area, int64_t first, int64_t count, void* out,
                            NextRead next_read, const WaitLimit& limit) const {
  const Request range = RangeOf(first, count);
  Progress progress;
  return shard_.ForEachStripe<kReading>(
      range, &progress, limit, [&](int64_t at, int64_t buffer_at, int64_t elements) {
        char* const to = static_cast<char*>(out) + AreaBytes(area, buffer_at);
        const int64_t bytes = AreaBytes(area, elements);
        if (area == kParameters && shard_.lazy() != nullptr) {
          return shard_.lazy()->Copy(AreaBytes(area, at), bytes, to);
        }
        CopyFor(next_read, to, AreaAt(area, at), bytes);
      });
}

Status ShardCopies::CopyIn(int64_t area, int64_t first, int64_t count, const void* values,
                           const WaitLimit& limit) const {
  const Request range = RangeOf(first, count);
  // The rows of keys have been touched when they were given to the keys.
  const bool must_touch = area == kParameters && shard_.values_.keys() == nullptr;
  if (must_touch) MV_RETURN_IF_NOT_OK(shard_.Touch(range, limit));
  Progress progress;
  return shard_.ForEachStripe<kWriting>(
      range, &progress, limit, [&](int64_t at, int64_t buffer_at, int64_t elements) {
        const auto bytes = static_cast<size_t>(AreaBytes(area, elements));
        if (values == nullptr) {
          std::memset(AreaAt(area, at), 0, bytes);
        } else {
          const auto* const from = static_cast<const char*>(values) + AreaBytes(area, buffer_at);
          CopyBytes(AreaAt(area, at), from, bytes);
        }
      });
}

template <StripeUse kUse, class Body>
Status ShardCopies::ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step,
                                const WaitLimit& limit, Body body) const {
  const int64_t columns = shard_.columns_;
  const Request range = RangeOf(first_row * columns, count * columns);
  Progress progress;
  return shard_.ForEachStripe<kUse>(
      range, &progress, limit, [&](int64_t at, int64_t buffer_at, int64_t elements) {
        int64_t row = at / columns;
        int64_t row_in_range = buffer_at / columns;
        const int64_t end = row + elements / columns;
        while (row < end) {
          const int64_t index = row_in_range / rows_per_step;
          const int64_t rows = std::min(end - row, (index + 1) * rows_per_step - row_in_range);
          body(row, rows, index);
          row += rows;
          row_in_range += rows;
        }
      });
}

Status ShardCopies::CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step,
                                 uint32_t* steps, const WaitLimit& limit) const {
  const StepCells& cells = shard_.storage_.step_cells();
  const int64_t columns = shard_.columns_;
  std::fill_n(steps, DivideUp(count, rows_per_step), 0U);
  // Counts only grow, so a read that is repeated may keep what it found at first.
  return ForEachStep<kReading>(
      first_row, count, rows_per_step, limit, [&](int64_t row, int64_t rows, int64_t index) {
        steps[index] = std::max(steps[index], cells.MaxSteps(row * columns, rows * columns));
      });
}

Status ShardCopies::CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step,
                                const uint32_t* steps, const WaitLimit& limit) const {
  const StepCells& cells = shard_.storage_.step_cells();
  const int64_t columns = shard_.columns_;
  return ForEachStep<kWriting>(first_row, count, rows_per_step, limit,
                               [&](int64_t row, int64_t rows, int64_t index) {
                                 cells.SetSteps(row * columns, rows * columns, steps[index]);
                               });
}

Status ShardCopies::Restart(int64_t first_row, int64_t count, const Initializer& initializer,
                            const WaitLimit& limit) const {
  const LazyRows* const lazy = shard_.lazy();
  const int64_t columns = shard_.columns_;
  const bool is_own = lazy != nullptr && lazy->spec() == initializer.spec();
  const Request range = RangeOf(first_row * columns, count * columns);
  if (!is_own) MV_RETURN_IF_NOT_OK(shard_.Touch(range, limit));
  Progress progress;
  return shard_.ForEachStripe<kWriting>(
      range, &progress, limit, [&](int64_t at, int64_t /*buffer_at*/, int64_t elements) {
        const int64_t end = (at + elements) / columns;
        for (int64_t row = at / columns; row < end; ++row) {
          if (is_own) row = lazy->NextTouched(row, end);
          if (row == end) break;
          initializer.Fill(shard_.first_row_ + row, 0, columns, AreaAt(kParameters, row * columns));
          shard_.values_.ClearState(row);
        }
      });
}

Status ShardCopies::CopyStripeTo(int64_t stripe, const ShardStorage& to,
                                 const WaitLimit& limit) const {
  constexpr int64_t kWordBits = 64;
  const StripeLayout& layout = shard_.layout();
  const ShardStorage& from = shard_.storage_;
  const LazyRows* const lazy = shard_.lazy();
  const int64_t first = layout.first_row(stripe);
  const int64_t end = layout.end_row(stripe);
  const int64_t row_bytes = layout.row_bytes();
  MV_RETURN_IF_NOT_OK(shard_.TakeStripe(stripe, limit));
  const StripeGuard<kReading> holding(from.lock(stripe), *from.version());
  for (int64_t row = lazy->NextTouched(first, end); row < end;
       row = lazy->NextTouched(row + 1, end)) {
    CopyBytes(to.parameters() + row * row_bytes, from.parameters() + row * row_bytes,
              static_cast<size_t>(row_bytes));
  }
  // The rows of two stripes may share a word.
  for (int64_t row = first; row < end;) {
    const int64_t begin = row / kWordBits * kWordBits;
    uint64_t mask = ~uint64_t{0} << (row - begin);
    if (end - begin < kWordBits) mask &= ~(~uint64_t{0} << (end - begin));
    const uint64_t bits = from.touched_bits()[row / kWordBits].load(std::memory_order_acquire);
    to.touched_bits()[row / kWordBits].fetch_and(bits | ~mask);
    to.touched_bits()[row / kWordBits].fetch_or(bits & mask);
    row = begin + kWordBits;
  }
  if (shard_.values_.keys() != nullptr) shard_.values_.keys()->CopyStripeTo(stripe, to.key_index());
  return Status::Ok();
}

}  // namespace multiverso
