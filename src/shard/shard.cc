#include "shard/shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// Random rows miss the cache; asking for them a few rows ahead hides most of that.
constexpr int64_t kRowsAhead = 8;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kMostPrefetched = 512;  // bytes of a row; the hardware follows from there
// Rows done under one taking of a lock: a long list of the same row lets others in between.
constexpr int64_t kRowsPerTaking = 256;
// What is read without the lock may have to be read again, so it should not be much.
constexpr int64_t kMostReadUnlocked = int64_t{8} << 10;

// Always inlined: as a call of its own, it has no effect that the compiler knows of, and goes.
template <bool kForWriting>
inline __attribute__((always_inline)) void PrefetchRow(const StripeLock* lock, const char* row,
                                                       int64_t bytes) {
  constexpr int kWrite = kForWriting ? 1 : 0;
  __builtin_prefetch(lock, kWrite);
  const int64_t end = bytes < kMostPrefetched ? bytes : kMostPrefetched;
  for (int64_t at = 0; at < end; at += kCacheLine) {
    __builtin_prefetch(row + at, kWrite);
  }
}

}  // namespace

Shard::Shard(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
             std::unique_ptr<const Updater> updater, ShardUser user)
    : layout_(layout),
      columns_(columns),
      storage_(storage),
      updater_(std::move(updater)),
      user_(user) {}

Status Shard::TakeStripe(int64_t stripe, const WaitLimit& limit) {
  StripeLock* const lock = storage_.lock(stripe);
  if (lock->TryTake(user_.local_rank)) return Status::Ok();
  switch (lock->Take(user_.local_rank, *user_.probe, limit.first())) {
    case RobustLock::Outcome::kTaken:
      return Status::Ok();
    case RobustLock::Outcome::kRecovered:
      LogWarning(StrCat("rows ", layout_.first_row(stripe), " to ", layout_.end_row(stripe) - 1,
                        " of a table: a rank died in the middle of an operation; an add it was "
                        "making there, which was never acknowledged, may be there in part"));
      return Status::Ok();
    case RobustLock::Outcome::kTimedOut:
      break;
  }
  if (Clock::now() < limit.deadline) return Status::Pending();
  return Status(Code::kTimeout, StrCat("the lock of rows ", layout_.first_row(stripe), " to ",
                                       layout_.end_row(stripe) - 1, " is held by local rank ",
                                       lock->Holder(), ", which is alive but does not go on"));
}

template <StripeUse kFor, class Body>
Status Shard::ForEachStripe(Progress* progress, const WaitLimit& limit, Body body) {
  const int64_t stripes = layout_.stripes();
  // Workers start at different places, so that they follow each other through the stripes instead
  // of queueing for the first.
  const int64_t start = user_.local_rank * stripes / 8 % stripes;
  for (; progress->done < stripes; ++progress->done) {
    int64_t stripe = start + progress->done;
    if (stripe >= stripes) stripe -= stripes;
    const int64_t first = layout_.first_row(stripe);
    const int64_t rows = layout_.end_row(stripe) - first;
    const auto work = [&] {
      body(first * layout_.row_bytes(), rows * columns_, rows * layout_.row_bytes());
    };
    if (kFor == StripeUse::kReading && rows * layout_.row_bytes() <= kMostReadUnlocked &&
        storage_.lock(stripe)->ReadUnlocked(work)) {
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeHold<kFor> holding(storage_.lock(stripe));
    work();
  }
  return Status::Ok();
}

template <StripeUse kFor, class Body>
Status Shard::ForEachRow(const int64_t* rows, int64_t count, Progress* progress,
                         const WaitLimit& limit, Body body) {
  const int64_t row_bytes = layout_.row_bytes();
  const auto prefetch = [&](int64_t i) __attribute__((always_inline)) {
    if (i >= count) return;
    PrefetchRow<kFor == StripeUse::kWriting>(storage_.lock(layout_.stripe_of(rows[i])),
                                             storage_.parameters() + rows[i] * row_bytes,
                                             row_bytes);
  };
  while (progress->done < count) {
    const int64_t stripe = layout_.stripe_of(rows[progress->done]);
    StripeLock* const lock = storage_.lock(stripe);
    if (kFor == StripeUse::kReading && row_bytes <= kMostReadUnlocked) {
      const int64_t i = progress->done;
      prefetch(i + kRowsAhead);
      if (lock->ReadUnlocked([&] { body(i, rows[i] * row_bytes); })) {
        ++progress->done;
        continue;
      }
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeHold<kFor> holding(lock);
    // Neighbours in the list that are neighbours in the table share one taking of the lock.
    const int64_t end = std::min(count, progress->done + kRowsPerTaking);
    do {
      const int64_t i = progress->done;
      prefetch(i + kRowsAhead);
      body(i, rows[i] * row_bytes);
      ++progress->done;
    } while (progress->done < end && layout_.stripe_of(rows[progress->done]) == stripe);
  }
  return Status::Ok();
}

Update Shard::UpdateAt(int64_t byte_offset, const void* delta, void* out, int64_t count) const {
  return Update{storage_.parameters() + byte_offset,
                storage_.state() + byte_offset,
                storage_.state_stride(),
                delta,
                out,
                count};
}

void Shard::Apply(int64_t first, const void* delta, void* out, int64_t count, char* scratch) const {
  const int64_t element_bytes = layout_.row_bytes() / columns_;
  const auto bytes = static_cast<size_t>(count * element_bytes);
  Update update = UpdateAt(first * element_bytes, delta, nullptr, count);
  void* const weights = update.weights;
  std::memcpy(scratch, weights, bytes);
  update.weights = scratch;
  updater_->Apply(*hyper(), update);
  std::memcpy(weights, scratch, bytes);
  if (out != nullptr) std::memcpy(out, scratch, bytes);
}

Status Shard::Get(void* out, Progress* progress, const WaitLimit& limit) {
  return ForEachStripe<StripeUse::kReading>(
      progress, limit, [&](int64_t at, int64_t /*count*/, int64_t bytes) {
        std::memcpy(static_cast<char*>(out) + at, storage_.parameters() + at,
                    static_cast<size_t>(bytes));
      });
}

Status Shard::Add(const void* delta, Progress* progress, const WaitLimit& limit) {
  return ForEachStripe<StripeUse::kWriting>(
      progress, limit, [&](int64_t at, int64_t count, int64_t /*bytes*/) {
        updater_->Apply(*hyper(),
                        UpdateAt(at, static_cast<const char*>(delta) + at, nullptr, count));
      });
}

Status Shard::AddGet(const void* delta, void* out, Progress* progress, const WaitLimit& limit) {
  return ForEachStripe<StripeUse::kWriting>(
      progress, limit, [&](int64_t at, int64_t count, int64_t /*bytes*/) {
        updater_->Apply(*hyper(), UpdateAt(at, static_cast<const char*>(delta) + at,
                                           static_cast<char*>(out) + at, count));
      });
}

Status Shard::Store(const void* values, Progress* progress, const WaitLimit& limit) {
  return ForEachStripe<StripeUse::kWriting>(
      progress, limit, [&](int64_t at, int64_t /*count*/, int64_t bytes) {
        std::memcpy(storage_.parameters() + at, static_cast<const char*>(values) + at,
                    static_cast<size_t>(bytes));
      });
}

template <StripeUse kFor, class Body>
Status Shard::ForEachStripeOf(int64_t first, int64_t count, Progress* progress,
                              const WaitLimit& limit, Body body) {
  const int64_t element_bytes = layout_.row_bytes() / columns_;
  while (progress->done < count) {
    const int64_t at = first + progress->done;
    const int64_t stripe = layout_.stripe_of(at / columns_);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeHold<kFor> holding(storage_.lock(stripe));
    const int64_t elements =
        std::min(layout_.end_row(stripe) * columns_ - at, count - progress->done);
    body(at * element_bytes, progress->done * element_bytes, elements);
    progress->done += elements;
  }
  return Status::Ok();
}

Status Shard::GetRange(int64_t first, int64_t count, void* out, Progress* progress,
                       const WaitLimit& limit) {
  const int64_t element_bytes = layout_.row_bytes() / columns_;
  return ForEachStripeOf<StripeUse::kReading>(
      first, count, progress, limit, [&](int64_t at, int64_t in_range, int64_t elements) {
        std::memcpy(static_cast<char*>(out) + in_range, storage_.parameters() + at,
                    static_cast<size_t>(elements * element_bytes));
      });
}

Status Shard::AddRange(int64_t first, int64_t count, const void* delta, Progress* progress,
                       const WaitLimit& limit) {
  return ForEachStripeOf<StripeUse::kWriting>(
      first, count, progress, limit, [&](int64_t at, int64_t in_range, int64_t elements) {
        updater_->Apply(
            *hyper(), UpdateAt(at, static_cast<const char*>(delta) + in_range, nullptr, elements));
      });
}

Status Shard::AddGetRange(int64_t first, int64_t count, const void* delta, void* out,
                          Progress* progress, const WaitLimit& limit) {
  return ForEachStripeOf<StripeUse::kWriting>(
      first, count, progress, limit, [&](int64_t at, int64_t in_range, int64_t elements) {
        updater_->Apply(*hyper(), UpdateAt(at, static_cast<const char*>(delta) + in_range,
                                           static_cast<char*>(out) + in_range, elements));
      });
}

Status Shard::StoreRange(int64_t first, int64_t count, const void* values, Progress* progress,
                         const WaitLimit& limit) {
  const int64_t element_bytes = layout_.row_bytes() / columns_;
  return ForEachStripeOf<StripeUse::kWriting>(
      first, count, progress, limit, [&](int64_t at, int64_t in_range, int64_t elements) {
        std::memcpy(storage_.parameters() + at, static_cast<const char*>(values) + in_range,
                    static_cast<size_t>(elements * element_bytes));
      });
}

Status Shard::GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                      const WaitLimit& limit) {
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes());
  return ForEachRow<StripeUse::kReading>(rows, count, progress, limit, [&](int64_t i, int64_t at) {
    std::memcpy(static_cast<char*>(out) + static_cast<size_t>(i) * row_bytes,
                storage_.parameters() + at, row_bytes);
  });
}

Status Shard::AddRows(const int64_t* rows, int64_t count, const void* delta, Progress* progress,
                      const WaitLimit& limit) {
  const int64_t row_bytes = layout_.row_bytes();
  return ForEachRow<StripeUse::kWriting>(rows, count, progress, limit, [&](int64_t i, int64_t at) {
    updater_->Apply(
        *hyper(), UpdateAt(at, static_cast<const char*>(delta) + i * row_bytes, nullptr, columns_));
  });
}

}  // namespace multiverso
