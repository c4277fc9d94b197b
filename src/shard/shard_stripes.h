// How the operations of a Shard visit stripes; only the files that implement Shard include this.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "base/failpoint.h"
#include "shard/shard.h"
#include "shard/stripe_lock.h"

namespace multiverso {

// The most rows handled per lock acquisition, so that a long list of rows of one stripe lets other
// workers take the lock.
constexpr int64_t kMaxRowsPerLock = 256;

// How many stripes a call for a range has read ahead, if they lie on a disk.
constexpr int64_t kStripesAhead = 8;

template <class Read>
inline Status Shard::ReadStripe(int64_t stripe, bool may_read_unlocked, const WaitLimit& limit,
                                const Read& read) const {
  StripeLock* const lock = storage_.lock(stripe);
  if (may_read_unlocked && lock->ReadUnlocked(read)) return Status::Ok();
  if (user_.is_reader) return ReadRepeatedly(stripe, limit, read);
  MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
  const StripeGuard<kReading> holding(lock, *storage_.version());
  read();
  return Status::Ok();
}

template <StripeUse kUse, class Body>
Status Shard::ForEachStripe(const Request& range, Progress* progress, const WaitLimit& limit,
                            Body body) const {
  const bool is_whole = range.count == Request::kWholeShard;
  const int64_t begin = is_whole ? 0 : range.first - first_row_ * columns_;
  const int64_t width = range.width;
  const int64_t end = is_whole ? layout_.rows() * columns_ : begin + range.Span(columns_);
  if (begin >= end) return Status::Ok();
  const int64_t first_stripe = is_whole ? 0 : layout_.stripe_of(begin / columns_);
  const int64_t end_stripe =
      is_whole ? layout_.stripes() : layout_.stripe_of((end - 1) / columns_) + 1;
  const int64_t stripes = end_stripe - first_stripe;
  // Local rank r starts r eighths into the stripes, so the workers follow each other instead of
  // queueing for the first stripe.
  const int64_t start =
      stripes == 1 ? first_stripe : first_stripe + user_.local_rank * stripes / 8 % stripes;
  for (; progress->done < stripes; ++progress->done) {
    int64_t stripe = start + progress->done;
    if (stripe >= end_stripe) stripe -= stripes;
    const int64_t first = std::max(begin, layout_.first_row(stripe) * columns_);
    const int64_t count = std::min(end, layout_.end_row(stripe) * columns_) - first;
    // A few stripes ahead, of which most have been read before.
    if (user_.disk != nullptr) {
      user_.disk->ExpectRows(layout_.first_row(stripe), kStripesAhead * layout_.rows_per_stripe(),
                             kUse == kWriting);
    }
    const auto work = [&] {
      int64_t at = first;
      int64_t buffer_at = first - begin;
      int64_t length = count;
      int64_t runs = 1;
      if (width != 0) {
        // The runs begin in column begin % columns_ of each row.
        const int64_t first_run = DivideUp(first - begin, columns_);
        runs = DivideUp(first + count - begin, columns_) - first_run;
        at = begin + first_run * columns_;
        buffer_at = first_run * width;
        length = width;
      }
      for (; runs > 0; --runs) {
        body(at, buffer_at, length);
        at += columns_;
        buffer_at += length;
      }
    };
    if (kUse == kReading) {
      const int64_t read = width == 0 ? count : DivideUp(count, columns_) * width;
      const bool may_read_unlocked = MayReadUnlocked(read) && !NotesGet(range);
      MV_RETURN_IF_NOT_OK(ReadStripe(stripe, may_read_unlocked, limit, work));
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
    NoteElements(stripe, first, count);
    (void)MV_FAILPOINT("shard.write");
    work();
  }
  return Status::Ok();
}

}  // namespace multiverso
