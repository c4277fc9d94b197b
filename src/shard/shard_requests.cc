// The operations of a shard on ranges and rows of values, which may have another format.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/compiler.h"
#include "base/text.h"
#include "shard/prefetch.h"
#include "shard/shard_rows.h"
#include "shard/shard_stripes.h"

namespace multiverso {
namespace {

// The most bytes of an unlocked read, which stays small because a reader may have to repeat it.
constexpr int64_t kMaxUnlockedBytes = int64_t{8} << 10;

}  // namespace

Status Shard::Touch(const Request& request, const WaitLimit& limit) const {
  const LazyRows* const rows = lazy();
  if (rows == nullptr || rows->AllTouched()) return Status::Ok();
  LazyRows::Room room;
  if (HasIds(request.kind)) {
    MV_RETURN_IF_NOT_OK(rows->MakeRoomForIds(request.row_ids, request.num_ids, limit, &room));
    const auto row_at = [&](int64_t i) { return request.row_ids[i] - first_row_; };
    return TouchRows(request.num_ids, row_at, &room, limit);
  }
  const bool is_whole = request.count == Request::kWholeShard;
  const int64_t first = is_whole ? 0 : request.first / columns_ - first_row_;
  const int64_t end = is_whole
                          ? layout_.rows()
                          : DivideUp(request.first + request.Span(columns_), columns_) - first_row_;
  MV_RETURN_IF_NOT_OK(rows->MakeRoomForRange(first, end, limit, &room));
  return TouchRows(end - first, [&](int64_t i) { return first + i; }, &room, limit);
}

template <class RowAt>
Status Shard::TouchRows(int64_t count, const RowAt& row_at, LazyRows::Room* room,
                        const WaitLimit& limit) const {
  constexpr int64_t kRowsBetweenChecks = 4096;
  int64_t unchecked = 0;
  for (int64_t i = 0; i < count && room->rows() > 0;) {
    if (lazy()->IsTouched(row_at(i))) {
      ++i;
      continue;
    }
    // Other calls run, and the caller may interrupt this one, now and then.
    if (++unchecked >= kRowsBetweenChecks) {
      MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
      unchecked = 0;
    }
    const int64_t stripe = layout_.stripe_of(row_at(i));
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    // Readers see no change, so they need not read again.
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
    const int64_t end = std::min(count, i + kMaxRowsPerLock);
    int64_t touched = 0;
    for (; i < end && layout_.stripe_of(row_at(i)) == stripe; ++i) {
      touched += lazy()->Touch(row_at(i)) ? 1 : 0;
    }
    room->Use(touched);
    unchecked += touched;
  }
  return Status::Ok();
}

Status Shard::GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const {
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t out_bytes = columns_ * values_.value_bytes();
  const int64_t count = request.num_ids;
  const bool may_read_unlocked = MayReadUnlocked(columns_);
  auto* const out = static_cast<char*>(request.out);
  // Local copies, since the compiler must assume that writing to `out` changes the members.
  const int64_t* const row_ids = request.row_ids;
  const char* const parameters = storage_.parameters();
  const LazyRows* const lazy = values_.lazy();
  const StripeLayout layout = layout_;
  const int64_t first_row = first_row_;
  const auto row_at = [&](int64_t i) MV_ALWAYS_INLINE { return row_ids[i] - first_row; };
  const auto prefetch = [&](int64_t i) MV_ALWAYS_INLINE {
    if (i >= count) return;
    const int64_t row = row_at(i);
    if (lazy != nullptr) lazy->Prefetch(row);
    MV_PREFETCH(storage_.lock(layout.stripe_of(row)), 0);
    Prefetch<false>(parameters + row * row_bytes, row_bytes);
  };
  RowsAhead ahead(user_.disk, progress->done, count);
  const auto expect = [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      const bool is_there = lazy == nullptr || lazy->IsTouched(row_at(i));
      if (is_there) user_.disk->ExpectRow(row_at(i), /*state=*/false);
    }
  };
  while (progress->done < count) {
    const int64_t until = ahead.Advance(progress->done, expect);
    while (progress->done < until) {
      if (lazy != nullptr && !lazy->IsTouched(row_at(progress->done))) {
        // The row's values are not in memory, so a reader needs neither the lock nor its page.
        const int64_t i = progress->done++;
        prefetch(i + kPrefetchDistance);
        values_.CopyInitial(row_ids[i], out + i * out_bytes);
        continue;
      }
      const int64_t stripe = layout.stripe_of(row_at(progress->done));
      if (may_read_unlocked || user_.is_reader) {
        const int64_t i = progress->done;
        prefetch(i + kPrefetchDistance);
        MV_RETURN_IF_NOT_OK(ReadStripe(stripe, may_read_unlocked, limit, [&] {
          values_.GetTouchedRow(row_at(i), out + i * out_bytes);
        }));
        ++progress->done;
        continue;
      }
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
      // Consecutive list entries that are adjacent in the table share one lock acquisition.
      const int64_t end = std::min(count, progress->done + kMaxRowsPerLock);
      do {
        const int64_t i = progress->done;
        prefetch(i + kPrefetchDistance);
        values_.GetRow(row_at(i), out + i * out_bytes);
        ++progress->done;
      } while (progress->done < end && layout.stripe_of(row_at(progress->done)) == stripe);
    }
  }
  return Status::Ok();
}

bool Shard::MayReadUnlocked(int64_t count) const {
  return count * values_.value_bytes() <= kMaxUnlockedBytes;
}

bool Shard::NotesGet(const Request& request) const {
  return values_.notes_gets() && !request.is_peek && user_.worker >= 0;
}

void Shard::NoteChanges(int64_t first, int64_t count) const {
  const int64_t last_stripe = layout_.stripe_of((first + count - 1) / columns_);
  for (int64_t stripe = layout_.stripe_of(first / columns_); stripe <= last_stripe; ++stripe) {
    storage_.lock(stripe)->NoteChange(*storage_.version());
    NoteElements(stripe, first, count);
  }
}

Status Shard::CopyVersions(const Request& request, const WaitLimit& limit) const {
  std::atomic<uint64_t>* const version = storage_.version();
  uint64_t before = version->load();
  while (before < request.version && !version->compare_exchange_weak(before, request.version)) {
  }
  auto* const versions = static_cast<uint64_t*>(request.out);
  for (int64_t i = 0; i < request.num_ids; ++i) {
    const int64_t stripe = layout_.stripe_of(request.row_ids[i] - first_row_);
    StripeLock* const lock = storage_.lock(stripe);
    if (!lock->IsAtRest() || storage_.changed_rows().IsOpen(stripe)) {
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      storage_.changed_rows().Close(stripe, lock->changed_at.load(std::memory_order_relaxed));
      lock->Release();
    }
    versions[i] = lock->changed_at.load(std::memory_order_relaxed);
  }
  return Status::Ok();
}

Status Shard::ListChangedRows(int64_t first_row, uint64_t since, std::vector<RowRange>* rows,
                              const WaitLimit& limit) const {
  const int64_t stripe = layout_.stripe_of(first_row - first_row_);
  MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
  storage_.changed_rows().List(stripe, since, [&](int64_t first, int64_t end) {
    rows->push_back(RowRange{first_row_ + first, first_row_ + end});
  });
  storage_.lock(stripe)->Release();
  return Status::Ok();
}

void Shard::Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
                  char* scratch) const {
  NoteChanges(first, count);
  values_.Apply(first, delta, terms, out, count, scratch);
}

bool Shard::ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const {
  NoteChanges(first, count);
  return values_.ApplySum(first, a, b, out, count);
}

void Shard::CopyUnlocked(const Request& request) const {
  auto* const out = static_cast<char*>(request.out);
  if (!HasIds(request.kind)) return Copy(0, layout_.rows() * columns_, out);
  const int64_t out_bytes = columns_ * values_.value_bytes();
  for (int64_t i = 0; i < request.num_ids; ++i) {
    values_.GetRow(request.row_ids[i] - first_row_, out + i * out_bytes);
  }
}

Status Shard::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  const bool changes_rows = CarriesData(request.kind) || IsTouch(request.kind);
  // A request that has begun has touched its rows.
  if (lazy() != nullptr && progress->done == 0 && changes_rows) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const int64_t value_bytes = values_.value_bytes();
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = ReturnsData(request.kind) ? static_cast<char*>(request.out) : nullptr;
  const RowOrder order_of_list;
  const RowOrder& order = request.order == nullptr ? order_of_list : *request.order;
  // `at` is an element of the shard, and `buffer_at` one of the request's buffers.
  switch (request.kind) {
    case RequestKind::kGet: {
      const bool notes_get = NotesGet(request);
      return ForEachStripe<kReading>(request, progress, limit,
                                     [&](int64_t at, int64_t buffer_at, int64_t count) {
                                       char* const values = out + buffer_at * value_bytes;
                                       values_.Copy(at, count, values);
                                       if (notes_get)
                                         values_.NoteGet(at, values, count, user_.worker);
                                     });
    }
    case RequestKind::kAdd:
    case RequestKind::kAddGet:
      return ForEachStripe<kWriting>(
          request, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            const int64_t offset = buffer_at * value_bytes;
            values_.Add(at, delta + offset, out == nullptr ? nullptr : out + offset, count,
                        user_.worker);
          });
    case RequestKind::kStore:
      return ForEachStripe<kWriting>(request, progress, limit,
                                     [&](int64_t at, int64_t buffer_at, int64_t count) {
                                       values_.Store(at, delta + buffer_at * value_bytes, count);
                                     });
    case RequestKind::kFetchAdd:
    case RequestKind::kCompareSwap:
      return ForEachStripe<kWriting>(request, progress, limit,
                                     [&](int64_t at, int64_t /*buffer_at*/, int64_t /*count*/) {
                                       values_.ExchangeElement(request, at);
                                     });
    case RequestKind::kGetRows:
      return GetRows(request, progress, limit);
    case RequestKind::kAddRows:
      return AddRows(request, PlacesOfRows{order, request.row_ids, layout_, first_row_}, progress,
                     limit);
    case RequestKind::kExchange:
      return ForEachStripe<kWriting>(request, progress, limit,
                                     [&](int64_t at, int64_t /*buffer_at*/, int64_t count) {
                                       values_.Exchange(request, at, count, user_.worker);
                                     });
    case RequestKind::kSetHyper:
      hyper()->values[request.first].store(request.value, std::memory_order_relaxed);
      return Status::Ok();
    case RequestKind::kTouch:
    case RequestKind::kTouchRows:
      return Status::Ok();
    case RequestKind::kVersionsOfRows:
      return CopyVersions(request, limit);
    default:
      break;
  }
  return Status(Code::kInternal, StrCat("a shard cannot run '", NameOf(request.kind), "'"));
}

}  // namespace multiverso
