// How an add visits a list of rows; only the files that implement Shard and KeyedShard include
// this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/compiler.h"
#include "base/failpoint.h"
#include "shard/prefetch.h"
#include "shard/shard.h"
#include "shard/shard_stripes.h"

namespace multiverso {

// The rows of an add, in the order in which it visits them.
struct Shard::PlacesOfRows {
  const RowOrder& order;
  const int64_t* ids;
  const StripeLayout& layout;
  int64_t first_row;

  int64_t RowAt(int64_t place) const { return order.IdAt(ids, place) - first_row; }
  int64_t StripeAt(int64_t place) const { return layout.stripe_of(RowAt(place)); }
  bool AreSame(int64_t a, int64_t b) const { return RowAt(a) == RowAt(b); }
  int64_t GuessAt(int64_t place) const { return RowAt(place); }
  void Take(const StripeLock& /*lock*/) {}
};

template <class Places>
Status Shard::AddRows(const Request& request, Places places, Progress* progress,
                      const WaitLimit& limit) const {
  const RowOrder& order = places.order;
  const bool sums =
      request.order != nullptr && updater().duplicates(*hyper()) == Updater::Duplicates::kSummed;
  const int64_t delta_bytes = columns_ * values_.value_bytes();
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t slots = storage_.state_slots();
  const bool has_step_per_row = values_.has_step_per_row();
  std::atomic<uint64_t>* const changed = storage_.changed_rows().BitPerRow();
  const int64_t count = request.num_ids;
  const auto delta_at = [&](int64_t place) MV_ALWAYS_INLINE {
    return static_cast<const char*>(request.delta) + order.PositionAt(place) * delta_bytes;
  };
  const auto prefetch = [&](int64_t place) MV_ALWAYS_INLINE {
    if (place >= count) return;
    const int64_t row = places.GuessAt(place);
    if (row < 0) return;
    MV_PREFETCH(storage_.lock(layout_.stripe_of(row)), 1);
    Prefetch<true>(storage_.parameters() + row * row_bytes, row_bytes);
    for (int64_t slot = 0; slot < slots; ++slot) {
      Prefetch<true>(storage_.state() + slot * storage_.state_stride() + row * delta_bytes,
                     delta_bytes);
    }
    if (storage_.row_state_bytes() > 0) MV_PREFETCH(storage_.row_state(row), 1);
    if (has_step_per_row) MV_PREFETCH(storage_.step_cells().CellOfRow(row), 1);
    Prefetch<false>(delta_at(place), delta_bytes);
  };
  std::vector<char> sum;
  StepRates rates;
  RowsAhead ahead(user_.disk, progress->done, count);
  const auto expect = [&](int64_t first, int64_t end) {
    for (int64_t place = first; place < end; ++place) {
      const int64_t row = places.GuessAt(place);
      if (row >= 0) user_.disk->ExpectRow(row, /*state=*/true);
    }
  };
  while (progress->done < count) {
    const int64_t until = ahead.Advance(progress->done, expect);
    while (progress->done < until) {
      const int64_t stripe = places.StripeAt(progress->done);
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      places.Take(*storage_.lock(stripe));
      const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
      const int64_t end = std::min(count, progress->done + kMaxRowsPerLock);
      do {
        int64_t place = progress->done;
        const int64_t first = place;
        const int64_t row = places.RowAt(place);
        prefetch(place + kPrefetchDistance);
        const char* delta = delta_at(place++);
        while (sums && place < count && places.AreSame(first, place)) {
          prefetch(place + kPrefetchDistance);
          if (delta != sum.data()) {
            sum.assign(delta, delta + delta_bytes);
            delta = sum.data();
          }
          updater().AddDelta(sum.data(), delta_at(place++), columns_);
        }
        progress->done = place;
        if (row < 0) continue;
        if (changed != nullptr) {
          ChangedRows::Set(changed, row);
        } else {
          storage_.changed_rows().NoteRange(row, row + 1);
        }
        values_.AddRow(row, delta, &rates);
        (void)MV_FAILPOINT("shard.write_row");
      } while (progress->done < end && places.StripeAt(progress->done) == stripe);
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
