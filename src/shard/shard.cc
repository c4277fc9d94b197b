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
#include "memory/futex.h"
#include "shard/half.h"
#include "shard/kernels.h"
#include "shard/prefetch.h"
#include "shard/tensor_exchange.h"

namespace multiverso {
namespace {

// The most rows handled per lock acquisition, so that a long list of rows of one stripe lets other
// workers take the lock.
constexpr int64_t kMaxRowsPerLock = 256;
// The most bytes of an unlocked read, which stays small because a reader may have to repeat it.
constexpr int64_t kMaxUnlockedBytes = int64_t{8} << 10;
// The interval at which a wait for a lock checks its WaitLimit.
constexpr auto kCheckInterval = std::chrono::milliseconds(50);

// Counts a touched row. Lets other calls run, and the caller interrupt this one, now and then.
Status CheckAfterRow(int64_t* since_check, const WaitLimit& limit) {
  constexpr int64_t kRowsBetweenChecks = 4096;
  if (++*since_check < kRowsBetweenChecks) return Status::Ok();
  *since_check = 0;
  return limit.Check(Clock::now());
}

}  // namespace

Shard::Shard(const StripeLayout& layout, int64_t columns, DType dtype, const ShardStorage& storage,
             std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row,
             std::unique_ptr<const LazyRows> lazy, std::unique_ptr<KeyIndex> keys)
    : layout_(layout),
      columns_(columns),
      dtype_(dtype),
      is_half_(IsHalf(dtype)),
      value_bytes_(SizeOf(ValueType(dtype))),
      first_row_(first_row),
      storage_(storage),
      updater_(std::move(updater)),
      counts_steps_(is_half_ || updater_->counts_steps()),
      notes_gets_(updater_->notes_gets()),
      user_(user),
      lazy_(std::move(lazy)),
      keys_(std::move(keys)) {}

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
        if (keys_ != nullptr) {
          const StripeWrite writing(lock, *storage_.version());
          keys_->Rebuild(stripe);
        }
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

Status Shard::ReadRepeatedly(int64_t stripe, const WaitLimit& limit,
                             const std::function<void()>& read) const {
  const StripeLock& lock = *storage_.lock(stripe);
  for (Instant next_check = Clock::now() + kCheckInterval;;) {
    if (lock.ReadUnlocked(read)) return Status::Ok();
    YieldCore();
    const Instant now = Clock::now();
    if (now < next_check) continue;
    next_check = now + kCheckInterval;
    // A writer that died left the stripe marked as being written.
    const uint32_t sequence = lock.sequence.load(std::memory_order_acquire);
    const int holder = lock.Holder();
    if ((sequence & 1U) != 0 && (holder < 0 || !user_.probe->IsAlive(holder))) {
      read();
      std::atomic_thread_fence(std::memory_order_acquire);
      if (lock.sequence.load(std::memory_order_relaxed) == sequence) return Status::Ok();
    }
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    StrCat("local rank ", holder, " has been changing rows ",
                           first_row_ + layout_.first_row(stripe), " to ",
                           first_row_ + layout_.end_row(stripe) - 1, " all the time"));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

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
  void CountChange(int64_t /*row*/) const {}
};

// The same for keys, some of which may have no row (-1). RowAt requires the stripe's lock. `rows`
// are those that the keys had before, or empty.
struct Shard::PlacesOfKeys {
  const RowOrder& order;
  const int64_t* ids;
  const KeyIndex& keys;
  const std::vector<int64_t>& rows;

  int64_t KeyAt(int64_t place) const { return ids[order.PositionAt(place)]; }
  int64_t StripeAt(int64_t place) const {
    const int64_t row = GuessAt(place);
    return row >= 0 ? row / KeyIndex::kRowsPerStripe : keys.StripeOf(KeyAt(place));
  }
  int64_t RowAt(int64_t place) const {
    const int64_t key = KeyAt(place);
    const int64_t row = GuessAt(place);
    return row >= 0 && keys.IsRowOf(row, key) ? row : keys.Find(key);
  }
  bool AreSame(int64_t a, int64_t b) const { return KeyAt(a) == KeyAt(b); }
  int64_t GuessAt(int64_t place) const {
    return rows.empty() ? KeyIndex::kNone : rows[static_cast<size_t>(place)];
  }
  void CountChange(int64_t row) const { keys.CountChange(row); }
};

template <StripeUse kUse, class Body>
Status Shard::ForEachStripe(const Elements& range, Progress* progress, const WaitLimit& limit,
                            Body body) {
  const bool is_whole = range.count == Request::kWholeShard;
  const int64_t begin = is_whole ? 0 : range.first - first_row_ * columns_;
  const int64_t width = range.width;
  const int64_t end = is_whole     ? layout_.rows() * columns_
                      : width == 0 ? begin + range.count
                                   : begin + (range.count / width - 1) * columns_ + width;
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
    if (kUse == kReading && user_.is_reader) {
      MV_RETURN_IF_NOT_OK(ReadRepeatedly(stripe, limit, work));
      continue;
    }
    const int64_t read = width == 0 ? count : DivideUp(count, columns_) * width;
    if (kUse == kReading && range.may_read_unlocked && MayReadUnlocked(read) &&
        storage_.lock(stripe)->ReadUnlocked(work)) {
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kUse> holding(storage_.lock(stripe), *storage_.version());
    if (kUse == kWriting) (void)MV_FAILPOINT("shard.write");
    work();
  }
  return Status::Ok();
}

inline void Shard::CopyRow(int64_t row, char* out) const {
  if (lazy_ != nullptr && !lazy_->IsTouched(row)) return CopyUntouched(row, out);
  CopyStored(row, out);
}

void Shard::CopyStored(int64_t row, char* out) const {
  if (is_half_) {
    return half::ToFloat(dtype_, HalfAt(row * columns_), columns_, reinterpret_cast<float*>(out));
  }
  const int64_t row_bytes = layout_.row_bytes();
  std::memcpy(out, storage_.parameters() + row * row_bytes, static_cast<size_t>(row_bytes));
}

void Shard::CopyUntouched(int64_t row, char* out) const {
  if (is_half_) return Copy(row * columns_, columns_, out);
  lazy_->Fill(row, out);
}

Status Shard::GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t out_bytes = columns_ * value_bytes_;
  const int64_t count = request.num_ids;
  const bool may_read_unlocked = MayReadUnlocked(columns_);
  auto* const out = static_cast<char*>(request.out);
  // Local copies, since the compiler must assume that writing to `out` changes the members.
  const int64_t* const row_ids = request.row_ids;
  const char* const parameters = storage_.parameters();
  const LazyRows* const lazy = lazy_.get();
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
  const auto copy = [&](int64_t i) MV_ALWAYS_INLINE {
    CopyRow(row_at(i), out + i * out_bytes);
    NoteGet(row_at(i) * columns_, out + i * out_bytes, columns_, worker);
  };
  while (progress->done < count) {
    if (lazy != nullptr && !lazy->IsTouched(row_at(progress->done))) {
      // The row's values are not in memory, so a reader needs neither the lock nor its page.
      const int64_t i = progress->done++;
      prefetch(i + kPrefetchDistance);
      CopyUntouched(row_at(i), out + i * out_bytes);
      continue;
    }
    const int64_t stripe = layout.stripe_of(row_at(progress->done));
    StripeLock* const lock = storage_.lock(stripe);
    if (may_read_unlocked) {
      const int64_t i = progress->done;
      prefetch(i + kPrefetchDistance);
      if (lock->ReadUnlocked([&] { copy(i); })) {
        ++progress->done;
        continue;
      }
    }
    if (user_.is_reader) {
      MV_RETURN_IF_NOT_OK(ReadRepeatedly(stripe, limit, [&] { copy(progress->done); }));
      ++progress->done;
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kReading> holding(lock, *storage_.version());
    // Consecutive list entries that are adjacent in the table share one lock acquisition.
    const int64_t end = std::min(count, progress->done + kMaxRowsPerLock);
    do {
      const int64_t i = progress->done;
      prefetch(i + kPrefetchDistance);
      copy(i);
      ++progress->done;
    } while (progress->done < end && layout.stripe_of(row_at(progress->done)) == stripe);
  }
  return Status::Ok();
}

template <class Places>
Status Shard::AddRows(const Request& request, const Places& places, Progress* progress,
                      const WaitLimit& limit) const {
  const RowOrder& order = places.order;
  const bool sums =
      request.order != nullptr && updater_->duplicates() == Updater::Duplicates::kSummed;
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t delta_bytes = columns_ * value_bytes_;
  const int64_t count = request.num_ids;
  const int64_t slots = storage_.state_slots();
  const bool has_cell_per_row = counts_steps_ && storage_.step_cells().HasCellPerRow();
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
    if (has_cell_per_row) MV_PREFETCH(storage_.step_cells().CellOfRow(row), 1);
    Prefetch<false>(delta_at(place), delta_bytes);
  };
  std::vector<char> sum;
  StepRates rates;
  while (progress->done < count) {
    const int64_t stripe = places.StripeAt(progress->done);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
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
        updater_->AddDelta(sum.data(), delta_at(place++), columns_);
      }
      progress->done = place;
      if (row < 0) continue;
      places.CountChange(row);
      Update update = UpdateAt(row * columns_, delta, nullptr, columns_, worker);
      update.rates = &rates;
      if (has_cell_per_row || !counts_steps_) {
        ApplyRow(row, &update);
      } else {
        ApplyUpdate(row * columns_, update);
      }
    } while (progress->done < end && places.StripeAt(progress->done) == stripe);
  }
  return Status::Ok();
}

bool Shard::MayReadUnlocked(int64_t count) const {
  return count * value_bytes_ <= kMaxUnlockedBytes && !notes_gets_;
}

uint16_t* Shard::HalfAt(int64_t first) const {
  return reinterpret_cast<uint16_t*>(storage_.parameters()) + first;
}

Update Shard::UpdateAt(int64_t first, const void* delta, void* out, int64_t count,
                       int worker) const {
  Update update;
  if (!is_half_) update.weights = storage_.parameters() + first * value_bytes_;
  update.state = storage_.state() + first * value_bytes_;
  update.state_stride = storage_.state_stride();
  update.delta = delta;
  update.out = out;
  update.count = count;
  update.worker = worker;
  return update;
}

void Shard::NoteChanges(int64_t first, int64_t count) const {
  const int64_t last_stripe = layout_.stripe_of((first + count - 1) / columns_);
  for (int64_t stripe = layout_.stripe_of(first / columns_); stripe <= last_stripe; ++stripe) {
    storage_.lock(stripe)->NoteChange(*storage_.version());
  }
  if (keys_ == nullptr) return;
  const int64_t end = DivideUp(first + count, columns_);
  for (int64_t row = first / columns_; row < end; ++row) keys_->CountChange(row);
}

int64_t Shard::NumberOf(int64_t first) const {
  if (keys_ == nullptr) return first_row_ * columns_ + first;
  const auto key = static_cast<uint64_t>(keys_->KeyOf(first / columns_));
  const uint64_t number = key * static_cast<uint64_t>(columns_) + first % columns_;
  return static_cast<int64_t>(number & INT64_MAX);
}

void Shard::ApplyStep(int64_t first, const Update& update) const {
  if (!is_half_) return updater_->Apply(*hyper(), update);
  float weights[kMaxRowElements];
  for (int64_t done = 0; done < update.count;) {
    const int64_t count = std::min(update.count - done, kMaxRowElements);
    uint16_t* const stored = HalfAt(first + done);
    Update part = update.Part(done, count, value_bytes_);
    part.weights = weights;
    part.out = nullptr;
    half::ToFloat(dtype_, stored, count, weights);
    updater_->Apply(*hyper(), part);
    half::RoundStochastically(dtype_, weights, count, NumberOf(first) + done, update.step, stored);
    if (update.out != nullptr) {
      half::ToFloat(dtype_, stored, count, static_cast<float*>(update.out) + done);
    }
    done += count;
  }
}

void Shard::ApplyRow(int64_t row, Update* update) const {
  if (counts_steps_) update->step = storage_.step_cells().CountRow(row);
  update->row_state = storage_.row_state(row);
  ApplyStep(row * columns_, *update);
}

void Shard::ApplyUpdate(int64_t first, const Update& update) const {
  if (storage_.row_state_bytes() > 0) {
    int64_t row = first / columns_;
    for (int64_t i = 0; i < update.count; i += columns_) {
      Update part = update.Part(i, columns_, value_bytes_);
      ApplyRow(row++, &part);
    }
    return;
  }
  if (!counts_steps_) return ApplyStep(first, update);
  storage_.step_cells().Count(first, update.count, [&](int64_t begin, int64_t count, int64_t step) {
    Update run = update.Part(begin - first, count, value_bytes_);
    run.step = step;
    ApplyStep(begin, run);
  });
}

void Shard::NoteGet(int64_t first, const void* values, int64_t count, int worker) const {
  if (!notes_gets_ || worker < 0) return;
  updater_->NoteGet(UpdateAt(first, nullptr, nullptr, count, worker), values);
}

void Shard::ApplyAndNote(int64_t first, const Update& update) const {
  ApplyUpdate(first, update);
  if (update.out != nullptr) NoteGet(first, update.out, update.count, update.worker);
}

void Shard::CopyToWorker(int64_t first, void* out, int64_t count, int worker) const {
  Copy(first, count, out);
  NoteGet(first, out, count, worker);
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
    if (!lock->IsAtRest()) {
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      lock->Leave();
    }
    versions[i] = lock->changed_at.load(std::memory_order_relaxed);
  }
  return Status::Ok();
}

void Shard::Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
                  char* scratch) const {
  NoteChanges(first, count);
  Update update = UpdateAt(first, delta, nullptr, count, /*worker=*/-1);
  update.terms = terms;
  if (is_half_) {
    update.out = out;
    return ApplyUpdate(first, update);
  }
  const auto bytes = static_cast<size_t>(count * value_bytes_);
  void* const weights = update.weights;
  update.weights = out == nullptr || out == delta ? scratch : out;
  std::memcpy(update.weights, weights, bytes);
  ApplyUpdate(first, update);
  std::memcpy(weights, update.weights, bytes);
  if (out != nullptr && out != update.weights) std::memcpy(out, update.weights, bytes);
}

bool Shard::ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const {
  NoteChanges(first, count);
  return !is_half_ && updater_->ApplySum(UpdateAt(first, a, out, count, /*worker=*/-1), b);
}

Status Shard::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  // A request that has begun has touched its rows.
  if (lazy_ != nullptr && progress->done == 0 && !IsOfKeys(request.kind) &&
      MustTouch(request, worker)) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = static_cast<char*>(request.out);
  const Elements range{request.first, request.count, /*may_read_unlocked=*/true, request.width};
  const RowOrder order_of_list;
  const RowOrder& order = request.order == nullptr ? order_of_list : *request.order;
  std::vector<int64_t> rows_of_keys;
  // `at` is an element of the shard, and `buffer_at` one of the request's buffers.
  switch (request.kind) {
    case RequestKind::kGet:
      return ForEachStripe<kReading>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            CopyToWorker(at, out + buffer_at * value_bytes_, count, worker);
          });
    case RequestKind::kAdd:
      return ForEachStripe<kWriting>(range, progress, limit,
                                     [&](int64_t at, int64_t buffer_at, int64_t count) {
                                       const char* const part = delta + buffer_at * value_bytes_;
                                       ApplyUpdate(at, UpdateAt(at, part, nullptr, count, worker));
                                     });
    case RequestKind::kAddGet:
      return ForEachStripe<kWriting>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            const int64_t offset = buffer_at * value_bytes_;
            ApplyAndNote(at, UpdateAt(at, delta + offset, out + offset, count, worker));
          });
    case RequestKind::kStore:
      return ForEachStripe<kWriting>(
          range, progress, limit, [&](int64_t at, int64_t buffer_at, int64_t count) {
            const char* const values = delta + buffer_at * value_bytes_;
            if (is_half_) {
              const auto* const floats = reinterpret_cast<const float*>(values);
              return half::RoundToNearest(dtype_, floats, count, HalfAt(at));
            }
            std::memcpy(AreaAt(0, at), values, static_cast<size_t>(count * value_bytes_));
          });
    case RequestKind::kFetchAdd:
    case RequestKind::kCompareSwap:
      return ForEachStripe<kWriting>(range, progress, limit,
                                     [&](int64_t at, int64_t /*buffer_at*/, int64_t /*count*/) {
                                       ExchangeElement(request, at);
                                     });
    case RequestKind::kGetRows:
      return GetRows(request, progress, limit);
    case RequestKind::kAddRows:
      return AddRows(request, PlacesOfRows{order, request.row_ids, layout_, first_row_}, progress,
                     limit);
    case RequestKind::kExchange:
      return ForEachStripe<kWriting>(range, progress, limit,
                                     [&](int64_t at, int64_t /*buffer_at*/, int64_t count) {
                                       ExchangeStripe(request, at, count);
                                     });
    case RequestKind::kSetHyper:
      hyper()->values[request.hyper].store(request.value, std::memory_order_relaxed);
      return Status::Ok();
    case RequestKind::kTouch:
    case RequestKind::kTouchRows:
      return Status::Ok();
    case RequestKind::kGetKeys:
      return GetKeys(request, progress, limit, nullptr);
    case RequestKind::kFetchKeys:
      return FetchKeys(request, progress, limit);
    case RequestKind::kAddKeys:
      // A request that has begun has given rows to its keys.
      if (progress->done == 0) MV_RETURN_IF_NOT_OK(TouchKeys(request, order, &rows_of_keys, limit));
      return AddRows(request, PlacesOfKeys{order, request.row_ids, *keys_, rows_of_keys}, progress,
                     limit);
    case RequestKind::kTouchKeys:
      return TouchKeys(request, order, nullptr, limit);
    case RequestKind::kLocateKeys:
      MV_RETURN_IF_NOT_OK(TouchKeys(request, order, nullptr, limit));
      [[fallthrough]];
    case RequestKind::kFindKeys:
      return FindKeys(request, limit);
    case RequestKind::kRemoveKeys:
      return RemoveKeys(request, progress, limit);
    case RequestKind::kCellsOfRows:
      return CopyCells(request, limit);
    case RequestKind::kCountsOfRows:
      return CopyCounts(request);
    case RequestKind::kVersionsOfRows:
      return CopyVersions(request, limit);
    case RequestKind::kReleased:
    case RequestKind::kEnd:
      break;
  }
  return Status(Code::kInternal, StrCat("a shard cannot run '", NameOf(request.kind), "'"));
}

void Shard::Copy(int64_t first, int64_t count, void* out) const {
  const int64_t offset = AreaBytes(0, first);
  const int64_t bytes = AreaBytes(0, count);
  if (!is_half_) {
    if (lazy_ != nullptr) return lazy_->Copy(offset, bytes, out);
    std::memcpy(out, storage_.parameters() + offset, static_cast<size_t>(bytes));
    return;
  }
  auto* const values = static_cast<float*>(out);
  if (lazy_ == nullptr) return half::ToFloat(dtype_, HalfAt(first), count, values);
  uint16_t stored[kMaxRowElements];
  for (int64_t done = 0; done < count; done += kMaxRowElements) {
    const int64_t part = std::min(count - done, kMaxRowElements);
    lazy_->Copy(offset + AreaBytes(0, done), AreaBytes(0, part), stored);
    half::ToFloat(dtype_, stored, part, values + done);
  }
}

void Shard::CopyUnlocked(const Request& request) const {
  auto* const out = static_cast<char*>(request.out);
  if (!IsOfRows(request.kind)) return Copy(0, layout_.rows() * columns_, out);
  for (int64_t i = 0; i < request.num_ids; ++i) {
    CopyRow(request.row_ids[i] - first_row_, out + i * columns_ * value_bytes_);
  }
}

int64_t Shard::PieceOf(int64_t count) const {
  const bool is_whole = counts_steps_ || storage_.row_state_bytes() > 0;
  return is_whole ? count : std::min(count, kWirePiece);
}

Status Shard::RunEncoded(const Request& request, WireFormat delta_format, WireFormat out_format,
                         Progress* progress, const WaitLimit& limit, bool* fits) {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  if (progress->done == 0 && MustTouch(request, worker)) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = static_cast<char*>(request.out);
  const bool returns = ReturnsData(request.kind);
  float piece_values[kWirePiece];
  std::vector<float> run_values;  // of longer pieces
  const auto body = [&](int64_t at, int64_t buffer_at, int64_t count) {
    const int64_t piece = PieceOf(count);
    if (piece > kWirePiece) run_values.resize(static_cast<size_t>(piece));
    float* const values = piece > kWirePiece ? run_values.data() : piece_values;
    for (const int64_t end = at + count; at < end; at += piece, buffer_at += piece) {
      const int64_t elements = std::min(piece, end - at);
      if (IsAdd(request.kind)) {
        DecodePart(delta_format, delta, buffer_at, elements, values);
        ApplyAndNote(at, UpdateAt(at, values, returns ? values : nullptr, elements, worker));
      } else {
        CopyToWorker(at, values, elements, worker);
      }
      if (!returns) continue;
      char* const to = out + WireBytes(out_format, buffer_at);
      *fits = EncodeNearest(out_format, values, elements, to) && *fits;
    }
  };
  const Elements range{request.first, request.count, /*may_read_unlocked=*/true, request.width};
  return IsAdd(request.kind) ? ForEachStripe<kWriting>(range, progress, limit, body)
                             : ForEachStripe<kReading>(range, progress, limit, body);
}

bool Shard::MustTouch(const Request& request, int worker) const {
  if (request.kind == RequestKind::kSetHyper) return false;
  return !ReturnsData(request.kind) || IsChange(request.kind) ||
         (notes_gets_ && worker >= 0 && ReturnsParameters(request.kind));
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
  const int64_t end = is_whole
                          ? layout_.rows()
                          : DivideUp(request.first + request.Span(columns_), columns_) - first_row_;
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
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
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
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
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

void Shard::ExchangeStripe(const Request& request, int64_t first, int64_t count) const {
  auto* const last = static_cast<char*>(request.out);
  const int64_t element = first_row_ * columns_ + first;
  request.tensors->ForEachPart(element, count, [&](void* part, int64_t done, int64_t elements) {
    char* const part_last = last + (element + done) * value_bytes_;
    const Update update = UpdateAt(first + done, part_last, part_last, elements, user_.worker);
    const bool is_scaled = request.scale != 1;
    if (!is_half_ && !is_scaled && updater_->Exchange(*hyper(), update, part)) return;
    updater_->TakeDelta(part, part_last, elements);
    if (is_scaled) Scale(ValueType(dtype_), part_last, elements, request.scale);
    ApplyAndNote(first + done, update);
    updater_->Settle(*hyper(), part_last, part, elements);
  });
}

void Shard::ExchangeElement(const Request& request, int64_t at) const {
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    T* const element = reinterpret_cast<T*>(storage_.parameters()) + at;
    const T before = *element;
    T operand;
    std::memcpy(&operand, request.delta, sizeof(T));
    if (request.kind == RequestKind::kFetchAdd) {
      kernels::Add(element, &operand, 1);
    } else {
      T expected;
      std::memcpy(&expected, &request.expected, sizeof(T));
      if (before == expected) *element = operand;
    }
    std::memcpy(request.out, &before, sizeof(T));
  });
}

int64_t Shard::AreaBytes(int64_t area, int64_t count) const {
  return count * (area == 0 ? SizeOf(dtype_) : value_bytes_);
}

char* Shard::AreaAt(int64_t area, int64_t first) const {
  char* const begin =
      area == 0 ? storage_.parameters() : storage_.state() + (area - 1) * storage_.state_stride();
  return begin + AreaBytes(area, first);
}

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
  if (keys_ != nullptr) keys_->CopyStripeTo(stripe, to.key_index());
  return Status::Ok();
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
