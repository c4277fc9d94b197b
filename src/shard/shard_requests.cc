// The operations of a shard on ranges and rows of values.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/compiler.h"
#include "base/text.h"
#include "shard/half.h"
#include "shard/kernels.h"
#include "shard/prefetch.h"
#include "shard/shard_rows.h"
#include "shard/shard_stripes.h"
#include "shard/tensor_exchange.h"

namespace multiverso {
namespace {

// The most bytes of an unlocked read, which stays small because a reader may have to repeat it.
constexpr int64_t kMaxUnlockedBytes = int64_t{8} << 10;

}  // namespace

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
  if (lazy_ != nullptr && progress->done == 0 && MustTouch(request, worker)) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = static_cast<char*>(request.out);
  const Elements range = ElementsOf(request);
  const RowOrder order_of_list;
  const RowOrder& order = request.order == nullptr ? order_of_list : *request.order;
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
    case RequestKind::kVersionsOfRows:
      return CopyVersions(request, limit);
    default:
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

}  // namespace multiverso
