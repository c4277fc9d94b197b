#include "shard/shard.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/compiler.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr StripeUse kReading = StripeUse::kReading;
constexpr StripeUse kWriting = StripeUse::kWriting;

// How many rows ahead to prefetch. Random rows miss the cache, and this hides most of the latency.
constexpr int64_t kPrefetchDistance = 8;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kMaxPrefetchedBytes = 512;  // bytes of a row; the hardware prefetches the rest
// The most rows handled per lock acquisition, so that a long list of rows of one stripe lets other
// workers take the lock.
constexpr int64_t kMaxRowsPerLock = 256;
// The most bytes of an unlocked read, which stays small because a reader may have to repeat it.
constexpr int64_t kMaxUnlockedBytes = int64_t{8} << 10;
// The interval at which a wait for a lock checks its WaitLimit.
constexpr auto kCheckInterval = std::chrono::milliseconds(50);

// Always inlined, since the compiler drops a call of a function without visible effects.
template <bool kForWriting>
inline MV_ALWAYS_INLINE void Prefetch(const char* row, int64_t bytes) {
  const int64_t end = bytes < kMaxPrefetchedBytes ? bytes : kMaxPrefetchedBytes;
  for (int64_t at = 0; at < end; at += kCacheLine) MV_PREFETCH(row + at, kForWriting ? 1 : 0);
}

// Counts a touched row. Lets other calls run, and the caller interrupt this one, now and then.
Status CheckAfterRow(int64_t* since_check, const WaitLimit& limit) {
  constexpr int64_t kRowsBetweenChecks = 4096;
  if (++*since_check < kRowsBetweenChecks) return Status::Ok();
  *since_check = 0;
  return limit.Check(Clock::now());
}

}  // namespace

Shard::Shard(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
             std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row,
             std::unique_ptr<const LazyRows> lazy)
    : layout_(layout),
      columns_(columns),
      element_bytes_(layout.row_bytes() / columns),
      first_row_(first_row),
      storage_(storage),
      updater_(std::move(updater)),
      counts_steps_(updater_->counts_steps()),
      notes_gets_(updater_->notes_gets()),
      user_(user),
      lazy_(std::move(lazy)) {}

Status Shard::TakeStripe(int64_t stripe, const WaitLimit& limit) const {
  StripeLock* const lock = storage_.lock(stripe);
  if (lock->TryTake(user_.local_rank)) return Status::Ok();
  const auto rows = [&] {
    return StrCat("rows ", first_row_ + layout_.first_row(stripe), " to ",
                  first_row_ + layout_.end_row(stripe) - 1);
  };
  for (;;) {
    const Instant until = std::min(limit.earliest(), Clock::now() + kCheckInterval);
    switch (lock->Take(user_.local_rank, *user_.probe, until)) {
      case RobustLock::Outcome::kTaken:
        return Status::Ok();
      case RobustLock::Outcome::kRecovered:
        LogWarning(StrCat(rows(),
                          " of a table: a rank died in the middle of an operation; an add "
                          "it was making there, which was never acknowledged, may be there "
                          "in part"));
        return Status::Ok();
      case RobustLock::Outcome::kTimedOut:
        break;
    }
    const Instant now = Clock::now();
    if (now >= limit.deadline) break;
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return Status(Code::kTimeout, StrCat("the lock of ", rows(), " is held by local rank ",
                                       lock->Holder(), ", which is alive but makes no progress"));
}

template <StripeUse kUse, class Body>
Status Shard::ForEachStripe(const Elements& range, Progress* progress, const WaitLimit& limit,
                            Body body) {
  const bool is_whole = range.count == Request::kWholeShard;
  const int64_t begin = is_whole ? 0 : range.first - first_row_ * columns_;
  const int64_t end = is_whole ? layout_.rows() * columns_ : begin + range.count;
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
    const auto work = [&] {
      body(first * element_bytes_, (first - begin) * element_bytes_, count);
    };
    if (kUse == kReading && range.may_read_unlocked && MayReadUnlocked(count * element_bytes_) &&
        storage_.lock(stripe)->ReadUnlocked(work)) {
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kUse> holding(storage_.lock(stripe));
    if (kUse == kWriting) (void)MV_FAILPOINT("shard.write");
    work();
  }
  return Status::Ok();
}

inline void Shard::CopyRow(int64_t row, char* out) const {
  if (lazy_ != nullptr && !lazy_->IsTouched(row)) return lazy_->Fill(row, out);
  const int64_t row_bytes = layout_.row_bytes();
  std::memcpy(out, storage_.parameters() + row * row_bytes, static_cast<size_t>(row_bytes));
}

Status Shard::GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t count = request.num_ids;
  const bool may_read_unlocked = MayReadUnlocked(row_bytes);
  auto* const out = static_cast<char*>(request.out);
  const auto row_at = [&](int64_t i) MV_ALWAYS_INLINE { return request.row_ids[i] - first_row_; };
  const auto prefetch = [&](int64_t i) MV_ALWAYS_INLINE {
    if (i >= count) return;
    if (lazy_ != nullptr) lazy_->Prefetch(row_at(i));
    MV_PREFETCH(storage_.lock(layout_.stripe_of(row_at(i))), 0);
    Prefetch<false>(storage_.parameters() + row_at(i) * row_bytes, row_bytes);
  };
  const auto copy = [&](int64_t i) MV_ALWAYS_INLINE {
    CopyRow(row_at(i), out + i * row_bytes);
    NoteGet(row_at(i) * row_bytes, out + i * row_bytes, columns_, worker);
  };
  while (progress->done < count) {
    if (lazy_ != nullptr && !lazy_->IsTouched(row_at(progress->done))) {
      // The row's values are not in memory, so a reader needs neither the lock nor its page.
      const int64_t i = progress->done++;
      prefetch(i + kPrefetchDistance);
      lazy_->Fill(row_at(i), out + i * row_bytes);
      continue;
    }
    const int64_t stripe = layout_.stripe_of(row_at(progress->done));
    StripeLock* const lock = storage_.lock(stripe);
    if (may_read_unlocked) {
      const int64_t i = progress->done;
      prefetch(i + kPrefetchDistance);
      if (lock->ReadUnlocked([&] { copy(i); })) {
        ++progress->done;
        continue;
      }
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kReading> holding(lock);
    // Consecutive list entries that are adjacent in the table share one lock acquisition.
    const int64_t end = std::min(count, progress->done + kMaxRowsPerLock);
    do {
      const int64_t i = progress->done;
      prefetch(i + kPrefetchDistance);
      copy(i);
      ++progress->done;
    } while (progress->done < end && layout_.stripe_of(row_at(progress->done)) == stripe);
  }
  return Status::Ok();
}

Status Shard::AddRows(const Request& request, Progress* progress, const WaitLimit& limit) const {
  const RowOrder order_of_list;
  const RowOrder& order = request.order == nullptr ? order_of_list : *request.order;
  const bool sums =
      request.order != nullptr && updater_->duplicates() == Updater::Duplicates::kSummed;
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t count = request.num_ids;
  const int64_t slots = storage_.state_slots();
  const bool has_step_per_row = !counts_steps_ || storage_.step_cells().HasCellPerRow();
  const auto row_at = [&](int64_t place) MV_ALWAYS_INLINE {
    return order.IdAt(request.row_ids, place) - first_row_;
  };
  const auto delta_at = [&](int64_t place) MV_ALWAYS_INLINE {
    return static_cast<const char*>(request.delta) + order.PositionAt(place) * row_bytes;
  };
  const auto prefetch = [&](int64_t place) MV_ALWAYS_INLINE {
    if (place >= count) return;
    const int64_t at = row_at(place) * row_bytes;
    MV_PREFETCH(storage_.lock(layout_.stripe_of(row_at(place))), 1);
    Prefetch<true>(storage_.parameters() + at, row_bytes);
    for (int64_t slot = 0; slot < slots; ++slot) {
      Prefetch<true>(storage_.state() + slot * storage_.state_stride() + at, row_bytes);
    }
    if (storage_.row_state_bytes() > 0) MV_PREFETCH(storage_.row_state(row_at(place)), 1);
    Prefetch<false>(delta_at(place), row_bytes);
  };
  std::vector<char> sum;
  StepRates rates;
  while (progress->done < count) {
    const int64_t stripe = layout_.stripe_of(row_at(progress->done));
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe));
    const int64_t end = std::min(count, progress->done + kMaxRowsPerLock);
    do {
      int64_t place = progress->done;
      const int64_t row = row_at(place);
      prefetch(place + kPrefetchDistance);
      const char* delta = delta_at(place++);
      while (sums && place < count && row_at(place) == row) {
        prefetch(place + kPrefetchDistance);
        if (delta != sum.data()) {
          sum.assign(delta, delta + row_bytes);
          delta = sum.data();
        }
        updater_->AddDelta(sum.data(), delta_at(place++), columns_);
      }
      Update update = UpdateAt(row * row_bytes, delta, nullptr, columns_, worker);
      update.rates = &rates;
      if (has_step_per_row) {
        ApplyRow(row, &update);
      } else {
        ApplyUpdate(row * row_bytes, update);
      }
      progress->done = place;
    } while (progress->done < end && layout_.stripe_of(row_at(progress->done)) == stripe);
  }
  return Status::Ok();
}

bool Shard::MayReadUnlocked(int64_t bytes) const {
  return bytes <= kMaxUnlockedBytes && !notes_gets_;
}

Update Shard::UpdateAt(int64_t byte_offset, const void* delta, void* out, int64_t count,
                       int worker) const {
  Update update;
  update.weights = storage_.parameters() + byte_offset;
  update.state = storage_.state() + byte_offset;
  update.state_stride = storage_.state_stride();
  update.delta = delta;
  update.out = out;
  update.count = count;
  update.worker = worker;
  return update;
}

void Shard::ApplyRow(int64_t row, Update* update) const {
  if (counts_steps_) update->step = storage_.step_cells().CountRow(row);
  update->row_state = storage_.row_state(row);
  updater_->Apply(*hyper(), *update);
}

void Shard::ApplyUpdate(int64_t byte_offset, const Update& update) const {
  if (storage_.row_state_bytes() > 0) {
    int64_t row = byte_offset / layout_.row_bytes();
    for (int64_t i = 0; i < update.count; i += columns_) {
      Update part = update.Part(i, columns_, element_bytes_);
      ApplyRow(row++, &part);
    }
    return;
  }
  if (!counts_steps_) return updater_->Apply(*hyper(), update);
  const int64_t first = byte_offset / element_bytes_;
  storage_.step_cells().Count(first, update.count, [&](int64_t begin, int64_t count, int64_t step) {
    Update run = update.Part(begin - first, count, element_bytes_);
    run.step = step;
    updater_->Apply(*hyper(), run);
  });
}

void Shard::NoteGet(int64_t byte_offset, const void* values, int64_t count, int worker) const {
  if (!notes_gets_ || worker < 0) return;
  updater_->NoteGet(UpdateAt(byte_offset, nullptr, nullptr, count, worker), values);
}

void Shard::ApplyAndNote(int64_t byte_offset, const Update& update) const {
  ApplyUpdate(byte_offset, update);
  if (update.out != nullptr) NoteGet(byte_offset, update.out, update.count, update.worker);
}

void Shard::CopyToWorker(int64_t byte_offset, void* out, int64_t bytes, int worker) const {
  Copy(byte_offset, bytes, out);
  NoteGet(byte_offset, out, bytes / element_bytes_, worker);
}

void Shard::Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
                  char* scratch) const {
  const int64_t byte_offset = first * element_bytes_;
  const auto bytes = static_cast<size_t>(count * element_bytes_);
  Update update = UpdateAt(byte_offset, delta, nullptr, count, /*worker=*/-1);
  update.terms = terms;
  void* const weights = update.weights;
  update.weights = out == nullptr || out == delta ? scratch : out;
  std::memcpy(update.weights, weights, bytes);
  ApplyUpdate(byte_offset, update);
  std::memcpy(weights, update.weights, bytes);
  if (out != nullptr && out != update.weights) std::memcpy(out, update.weights, bytes);
}

bool Shard::ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const {
  return updater_->ApplySum(UpdateAt(first * element_bytes_, a, out, count, /*worker=*/-1), b);
}

Status Shard::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  // A request that has begun has touched its rows.
  if (lazy_ != nullptr && progress->done == 0 && MustTouch(request, worker)) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = static_cast<char*>(request.out);
  const Elements range{request.first, request.count, /*may_read_unlocked=*/true};
  // `at` is a byte offset in the shard, and `buffer_at` one in the request's buffers.
  switch (request.kind) {
    case RequestKind::kGet:
      return ForEachStripe<kReading>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            CopyToWorker(at, out + buffer_at, count * element_bytes_, worker);
          });
    case RequestKind::kAdd:
      return ForEachStripe<kWriting>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            ApplyUpdate(at, UpdateAt(at, delta + buffer_at, nullptr, count, worker));
          });
    case RequestKind::kAddGet:
      return ForEachStripe<kWriting>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            ApplyAndNote(at, UpdateAt(at, delta + buffer_at, out + buffer_at, count, worker));
          });
    case RequestKind::kStore:
      return ForEachStripe<kWriting>(range, progress, limit,
                                     [&](int64_t at, int64_t buffer_at, int64_t count) {
                                       std::memcpy(storage_.parameters() + at, delta + buffer_at,
                                                   static_cast<size_t>(count * element_bytes_));
                                     });
    case RequestKind::kGetRows:
      return GetRows(request, progress, limit);
    case RequestKind::kAddRows:
      return AddRows(request, progress, limit);
    case RequestKind::kExchange:
      return ForEachStripe<kWriting>(range, progress, limit,
                                     [&](int64_t at, int64_t buffer_at, int64_t count) {
                                       ExchangeStripe(*request.tensors, out, at, buffer_at, count);
                                     });
    case RequestKind::kSetHyper:
      hyper()->values[request.hyper].store(request.value, std::memory_order_relaxed);
      return Status::Ok();
    case RequestKind::kTouch:
    case RequestKind::kTouchRows:
      return Status::Ok();
    case RequestKind::kReleased:
    case RequestKind::kEnd:
      break;
  }
  return Status(Code::kInternal, StrCat("a shard cannot run '", NameOf(request.kind), "'"));
}

void Shard::Copy(int64_t byte_offset, int64_t bytes, void* out) const {
  if (lazy_ != nullptr) return lazy_->Copy(byte_offset, bytes, out);
  std::memcpy(out, storage_.parameters() + byte_offset, static_cast<size_t>(bytes));
}

void Shard::CopyUnlocked(const Request& request) const {
  auto* const out = static_cast<char*>(request.out);
  if (!IsOfRows(request.kind)) return Copy(0, layout_.bytes(), out);
  const int64_t row_bytes = layout_.row_bytes();
  for (int64_t i = 0; i < request.num_ids; ++i) {
    CopyRow(request.row_ids[i] - first_row_, out + i * row_bytes);
  }
}

bool Shard::MustTouch(const Request& request, int worker) const {
  if (request.kind == RequestKind::kSetHyper) return false;
  return !ReturnsData(request.kind) || IsAdd(request.kind) || (notes_gets_ && worker >= 0);
}

Status Shard::Touch(const Request& request, const WaitLimit& limit) const {
  if (lazy_ == nullptr || lazy_->AllTouched()) return Status::Ok();
  LazyRows::Room room;
  if (IsOfRows(request.kind)) {
    MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForIds(request.row_ids, request.num_ids, limit, &room));
    return room.rows() == 0 ? Status::Ok() : TouchIds(request, &room, limit);
  }
  const bool is_whole = request.count == Request::kWholeShard;
  const int64_t first = is_whole ? 0 : request.first / columns_ - first_row_;
  const int64_t end =
      is_whole ? layout_.rows() : DivideUp(request.first + request.count, columns_) - first_row_;
  MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForRange(first, end, limit, &room));
  return room.rows() == 0 ? Status::Ok() : TouchRange(first, end, &room, limit);
}

Status Shard::TouchIds(const Request& request, LazyRows::Room* room, const WaitLimit& limit) const {
  int64_t since_check = 0;
  for (int64_t i = 0; i < request.num_ids;) {
    if (lazy_->IsTouched(request.row_ids[i] - first_row_)) {
      ++i;
      continue;
    }
    MV_RETURN_IF_NOT_OK(CheckAfterRow(&since_check, limit));
    const int64_t stripe = layout_.stripe_of(request.row_ids[i] - first_row_);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    // Readers see no change, so they need not read again.
    const StripeGuard<kReading> holding(storage_.lock(stripe));
    const int64_t end = std::min(request.num_ids, i + kMaxRowsPerLock);
    int64_t touched = 0;
    for (; i < end; ++i) {
      const int64_t row = request.row_ids[i] - first_row_;
      if (layout_.stripe_of(row) != stripe) break;
      touched += lazy_->Touch(row) ? 1 : 0;
    }
    room->Count(touched);
  }
  return Status::Ok();
}

Status Shard::TouchRange(int64_t first, int64_t end, LazyRows::Room* room,
                         const WaitLimit& limit) const {
  int64_t since_check = 0;
  for (int64_t row = lazy_->NextUntouched(first, end); row < end;) {
    MV_RETURN_IF_NOT_OK(CheckAfterRow(&since_check, limit));
    const int64_t stripe = layout_.stripe_of(row);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kReading> holding(storage_.lock(stripe));
    const int64_t stripe_end = std::min(end, layout_.end_row(stripe));
    int64_t touched = 0;
    for (; row < stripe_end; row = lazy_->NextUntouched(row, stripe_end)) {
      touched += lazy_->Touch(row) ? 1 : 0;
    }
    room->Count(touched);
    since_check += touched;
    row = lazy_->NextUntouched(stripe_end, end);
  }
  return Status::Ok();
}

void Shard::ExchangeStripe(const TensorList& tensors, char* last, int64_t byte_offset,
                           int64_t buffer_offset, int64_t count) const {
  const int64_t first_element = buffer_offset / element_bytes_;
  tensors.ForEachPart(first_element, count, [&](void* part, int64_t first, int64_t elements) {
    const int64_t offset = first * element_bytes_;
    char* const part_last = last + buffer_offset + offset;
    const Update update =
        UpdateAt(byte_offset + offset, part_last, part_last, elements, user_.worker);
    if (updater_->Exchange(*hyper(), update, part)) return;
    updater_->TakeDelta(part, part_last, elements);
    ApplyAndNote(byte_offset + offset, update);
    updater_->Settle(*hyper(), part_last, part, elements);
  });
}

char* Shard::AreaBegin(int64_t area) const {
  if (area == 0) return storage_.parameters();
  return storage_.state() + (area - 1) * storage_.state_stride();
}

Status Shard::CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                      const WaitLimit& limit, NextRead next_read) {
  return ForEachStripe<kReading>(Elements{first, count}, progress, limit,
                                 [&](int64_t at, int64_t buffer_at, int64_t elements) {
                                   char* const to = static_cast<char*>(out) + buffer_at;
                                   const int64_t bytes = elements * element_bytes_;
                                   if (area == 0 && lazy_ != nullptr) {
                                     return lazy_->Copy(at, bytes, to);
                                   }
                                   CopyFor(next_read, to, AreaBegin(area) + at, bytes);
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
  return ForEachStripe<kWriting>(Elements{first, count}, progress, limit,
                                 [&](int64_t at, int64_t buffer_at, int64_t elements) {
                                   std::memcpy(AreaBegin(area) + at,
                                               static_cast<const char*>(values) + buffer_at,
                                               static_cast<size_t>(elements * element_bytes_));
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
        const int64_t row_bytes = layout_.row_bytes();
        const int64_t end = (at + elements * element_bytes_) / row_bytes;
        for (int64_t row = at / row_bytes; row < end; ++row) {
          if (is_own) row = lazy_->NextTouched(row, end);
          if (row == end) break;
          initializer.Fill(first_row_ + row, 0, columns_, storage_.parameters() + row * row_bytes);
          for (int64_t area = 1; area <= state_slots(); ++area) {
            std::memset(AreaBegin(area) + row * row_bytes, 0, static_cast<size_t>(row_bytes));
          }
          std::memset(storage_.row_state(row), 0, static_cast<size_t>(storage_.row_state_bytes()));
          if (counts_steps_) storage_.step_cells().SetSteps(row * columns_, columns_, 0);
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

template <StripeUse kUse, class Body>
Status Shard::ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step,
                          Progress* progress, const WaitLimit& limit, Body body) {
  return ForEachStripe<kUse>(Elements{first_row * columns_, count * columns_}, progress, limit,
                             [&](int64_t at, int64_t buffer_at, int64_t elements) {
                               int64_t row = at / layout_.row_bytes();
                               int64_t row_in_range = buffer_at / layout_.row_bytes();
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

}  // namespace multiverso
