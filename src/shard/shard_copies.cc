// The operations of a shard for checkpoints and readers, which copy what is stored.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "shard/shard_stripes.h"

namespace multiverso {

Status Shard::CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                      const WaitLimit& limit, NextRead next_read) {
  return ForEachStripe<kReading>(Elements{first, count}, progress, limit,
                                 [&](int64_t at, int64_t buffer_at, int64_t elements) {
                                   char* const to =
                                       static_cast<char*>(out) + AreaBytes(area, buffer_at);
                                   const int64_t bytes = AreaBytes(area, elements);
                                   if (area == 0 && lazy_ != nullptr)
                                     return lazy_->Copy(AreaBytes(0, at), bytes, to);
                                   CopyFor(next_read, to, AreaAt(area, at), bytes);
                                 });
}

Status Shard::CopyIn(int64_t area, int64_t first, int64_t count, const void* values,
                     Progress* progress, const WaitLimit& limit) {
  if (area == 0 && progress->done == 0) {
    Request touch;
    touch.kind = RequestKind::kTouch;
    touch.first = first;
    touch.count = count;
    MV_RETURN_IF_NOT_OK(Touch(touch, limit));
  }
  return ForEachStripe<kWriting>(
      Elements{first, count}, progress, limit,
      [&](int64_t at, int64_t buffer_at, int64_t elements) {
        std::memcpy(AreaAt(area, at), static_cast<const char*>(values) + AreaBytes(area, buffer_at),
                    static_cast<size_t>(AreaBytes(area, elements)));
      });
}

template <StripeUse kUse, class Body>
Status Shard::ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step,
                          Progress* progress, const WaitLimit& limit, Body body) {
  return ForEachStripe<kUse>(Elements{first_row * columns_, count * columns_}, progress, limit,
                             [&](int64_t at, int64_t buffer_at, int64_t elements) {
                               int64_t row = at / columns_;
                               int64_t row_in_range = buffer_at / columns_;
                               const int64_t end = row + elements / columns_;
                               while (row < end) {
                                 const int64_t index = row_in_range / rows_per_step;
                                 const int64_t rows = std::min(
                                     end - row, (index + 1) * rows_per_step - row_in_range);
                                 body(row, rows, index);
                                 row += rows;
                                 row_in_range += rows;
                               }
                             });
}

Status Shard::CopyRowStateOut(int64_t first_row, int64_t count, void* out, Progress* progress,
                              const WaitLimit& limit) {
  const int64_t row_bytes = storage_.row_state_bytes();
  return ForEachStep<kReading>(first_row, count, /*rows_per_step=*/1, progress, limit,
                               [&](int64_t row, int64_t rows, int64_t index) {
                                 std::memcpy(static_cast<char*>(out) + index * row_bytes,
                                             storage_.row_state(row),
                                             static_cast<size_t>(rows * row_bytes));
                               });
}

Status Shard::CopyRowStateIn(int64_t first_row, int64_t count, const void* values,
                             Progress* progress, const WaitLimit& limit) {
  const int64_t row_bytes = storage_.row_state_bytes();
  return ForEachStep<kWriting>(first_row, count, /*rows_per_step=*/1, progress, limit,
                               [&](int64_t row, int64_t rows, int64_t index) {
                                 std::memcpy(storage_.row_state(row),
                                             static_cast<const char*>(values) + index * row_bytes,
                                             static_cast<size_t>(rows * row_bytes));
                               });
}

Status Shard::CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step, uint32_t* steps,
                           Progress* progress, const WaitLimit& limit) {
  if (progress->done == 0) std::fill_n(steps, DivideUp(count, rows_per_step), 0U);
  return ForEachStep<kReading>(
      first_row, count, rows_per_step, progress, limit,
      [&](int64_t row, int64_t rows, int64_t index) {
        steps[index] =
            std::max(steps[index], storage_.step_cells().MaxSteps(row * columns_, rows * columns_));
      });
}

Status Shard::CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step,
                          const uint32_t* steps, Progress* progress, const WaitLimit& limit) {
  return ForEachStep<kWriting>(first_row, count, rows_per_step, progress, limit,
                               [&](int64_t row, int64_t rows, int64_t index) {
                                 storage_.step_cells().SetSteps(row * columns_, rows * columns_,
                                                                steps[index]);
                               });
}

Status Shard::Restart(int64_t first_row, int64_t count, const Initializer& initializer,
                      Progress* progress, const WaitLimit& limit) {
  const bool is_own = lazy_ != nullptr && lazy_->spec() == initializer.spec();
  const Elements range{first_row * columns_, count * columns_};
  if (!is_own && progress->done == 0) {
    Request touch;
    touch.kind = RequestKind::kTouch;
    touch.first = range.first;
    touch.count = range.count;
    MV_RETURN_IF_NOT_OK(Touch(touch, limit));
  }
  return ForEachStripe<kWriting>(
      range, progress, limit, [&](int64_t at, int64_t /*buffer_at*/, int64_t elements) {
        const int64_t end = (at + elements) / columns_;
        for (int64_t row = at / columns_; row < end; ++row) {
          if (is_own) row = lazy_->NextTouched(row, end);
          if (row == end) break;
          initializer.Fill(first_row_ + row, 0, columns_, AreaAt(0, row * columns_));
          ClearState(row);
        }
      });
}

void Shard::ClearState(int64_t row) const {
  for (int64_t area = 1; area <= state_slots(); ++area) {
    std::memset(AreaAt(area, row * columns_), 0, static_cast<size_t>(AreaBytes(area, columns_)));
  }
  std::memset(storage_.row_state(row), 0, static_cast<size_t>(storage_.row_state_bytes()));
  if (counts_steps_) storage_.step_cells().SetSteps(row * columns_, columns_, 0);
}

Status Shard::CopyStripeTo(int64_t stripe, const ShardStorage& to, const WaitLimit& limit) const {
  constexpr int64_t kWordBits = 64;
  const int64_t first = layout_.first_row(stripe);
  const int64_t end = layout_.end_row(stripe);
  const int64_t row_bytes = layout_.row_bytes();
  MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
  const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
  for (int64_t row = lazy_->NextTouched(first, end); row < end;
       row = lazy_->NextTouched(row + 1, end)) {
    std::memcpy(to.parameters() + row * row_bytes, storage_.parameters() + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  // The rows of two stripes may share a word.
  for (int64_t row = first; row < end;) {
    const int64_t begin = row / kWordBits * kWordBits;
    uint64_t mask = ~uint64_t{0} << (row - begin);
    if (end - begin < kWordBits) mask &= ~(~uint64_t{0} << (end - begin));
    const uint64_t bits = storage_.touched_bits()[row / kWordBits].load(std::memory_order_acquire);
    to.touched_bits()[row / kWordBits].fetch_and(bits | ~mask);
    to.touched_bits()[row / kWordBits].fetch_or(bits & mask);
    row = begin + kWordBits;
  }
  CopyIndexTo(stripe, to);
  return Status::Ok();
}

}  // namespace multiverso
