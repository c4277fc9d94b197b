#include "shard/shard_values.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "numbers/kernels.h"
#include "shard/key_index.h"
#include "shard/tensor_exchange.h"

namespace multiverso {

ShardValues::ShardValues(const StripeLayout& layout, int64_t columns, DType dtype,
                         const ShardStorage& storage, std::unique_ptr<const Updater> updater,
                         int64_t first_row, std::unique_ptr<const LazyRows> lazy,
                         const KeyIndex* keys)
    : layout_(layout),
      columns_(columns),
      dtype_(dtype),
      is_half_(IsHalf(dtype)),
      value_bytes_(SizeOf(ValueType(dtype))),
      first_row_(first_row),
      storage_(storage),
      updater_(std::move(updater)),
      counts_steps_(is_half_ || updater_->counts_steps()),
      has_step_per_row_(counts_steps_ && storage.step_cells().HasCellPerRow()),
      notes_gets_(updater_->notes_gets()),
      lazy_(std::move(lazy)),
      keys_(keys) {}

int64_t ShardValues::NumberOf(int64_t first) const {
  if (keys_ == nullptr) return first_row_ * columns_ + first;
  // A key may get another row in another run, where its values must be rounded in the same way.
  const auto key = static_cast<uint64_t>(keys_->KeyOf(first / columns_));
  const uint64_t number = key * static_cast<uint64_t>(columns_) + first % columns_;
  return static_cast<int64_t>(number & INT64_MAX);
}

void ShardValues::NoteGet(int64_t first, const void* values, int64_t count, int worker) const {
  Update update = UpdateAt(first, nullptr, nullptr, count);
  update.worker = worker;
  updater_->NoteGet(update, values);
}

void ShardValues::ApplyHalfStep(int64_t first, const Update& update) const {
  float weights[kMaxRowElements];
  for (int64_t done = 0; done < update.count;) {
    const int64_t count = std::min(update.count - done, kMaxRowElements);
    uint16_t* const stored = HalfAt(first + done);
    Update part = update.Part(done, count, value_bytes_);
    part.weights = weights;
    part.out = nullptr;
    half::ToFloat(dtype_, stored, count, weights);
    updater_->Apply(*storage_.hyper(), part);
    half::RoundStochastically(dtype_, weights, count, NumberOf(first) + done, update.step, stored);
    if (update.out != nullptr) {
      half::ToFloat(dtype_, stored, count, static_cast<float*>(update.out) + done);
    }
    done += count;
  }
}

void ShardValues::ApplyParts(int64_t first, const Update& update) const {
  if (storage_.row_state_bytes() > 0) {
    int64_t row = first / columns_;
    for (int64_t i = 0; i < update.count; i += columns_) {
      Update part = update.Part(i, columns_, value_bytes_);
      ApplyRow(row++, &part);
    }
    return;
  }
  storage_.step_cells().Count(first, update.count, [&](int64_t begin, int64_t count, int64_t step) {
    Update run = update.Part(begin - first, count, value_bytes_);
    run.step = step;
    ApplyStep(begin, run);
  });
}

void ShardValues::Store(int64_t first, const void* values, int64_t count) const {
  if (is_half_) {
    return half::RoundToNearest(dtype_, static_cast<const float*>(values), count, HalfAt(first));
  }
  CopyBytes(storage_.parameters() + first * value_bytes_, values,
            static_cast<size_t>(count * value_bytes_));
}

void ShardValues::Exchange(const Request& exchange, int64_t first, int64_t count,
                           int worker) const {
  const Hyper& hyper = *storage_.hyper();
  const bool is_scaled = exchange.scale != 1;
  const int64_t element = first_row_ * columns_ + first;
  char* const last = static_cast<char*>(exchange.out) + element * value_bytes_;
  exchange.tensors->ForEachPart(element, count, [&](void* part, int64_t done, int64_t elements) {
    char* const part_last = last + done * value_bytes_;
    const Update update = UpdateAt(first + done, part_last, part_last, elements);
    if (!is_half_ && !is_scaled && updater_->Exchange(hyper, update, part)) return;
    updater_->TakeDelta(part, part_last, part_last, elements);
    if (is_scaled) Scale(ValueType(dtype_), part_last, elements, exchange.scale);
    Add(first + done, part_last, part_last, elements, worker);
    updater_->Settle(hyper, part_last, part, elements);
  });
}

void ShardValues::ExchangeElement(const Request& request, int64_t at) const {
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

void ShardValues::CopyConverted(int64_t first, int64_t count, void* out) const {
  const int64_t stored_bytes = SizeOf(dtype_);
  if (!is_half_) return lazy_->Copy(first * stored_bytes, count * stored_bytes, out);
  auto* const values = static_cast<float*>(out);
  if (lazy_ == nullptr) return half::ToFloat(dtype_, HalfAt(first), count, values);
  uint16_t stored[kMaxRowElements];
  for (int64_t done = 0; done < count; done += kMaxRowElements) {
    const int64_t part = std::min(count - done, kMaxRowElements);
    lazy_->Copy((first + done) * stored_bytes, part * stored_bytes, stored);
    half::ToFloat(dtype_, stored, part, values + done);
  }
}

void ShardValues::Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
                        char* scratch) const {
  Update update = UpdateAt(first, delta, nullptr, count);
  update.terms = terms;
  if (is_half_) {
    update.out = out;
    return ApplyUpdate(first, update);
  }
  const auto bytes = static_cast<size_t>(count * value_bytes_);
  void* const weights = update.weights;
  update.weights = out == nullptr || out == delta ? scratch : out;
  CopyBytes(update.weights, weights, bytes);
  ApplyUpdate(first, update);
  CopyBytes(weights, update.weights, bytes);
  if (out != nullptr && out != update.weights) CopyBytes(out, update.weights, bytes);
}

bool ShardValues::ApplySum(int64_t first, const void* a, const void* b, void* out,
                           int64_t count) const {
  return !is_half_ && updater_->ApplySum(UpdateAt(first, a, out, count), b);
}

void ShardValues::CopyInitial(int64_t id, char* out) const {
  if (!is_half_) return lazy_->Fill(id, 0, columns_, out);
  uint16_t stored[kMaxRowElements];
  for (int64_t done = 0; done < columns_; done += kMaxRowElements) {
    const int64_t part = std::min(columns_ - done, kMaxRowElements);
    lazy_->Fill(id, done, part, stored);
    half::ToFloat(dtype_, stored, part, reinterpret_cast<float*>(out) + done);
  }
}

void ShardValues::ClearState(int64_t row) const {
  const auto bytes = static_cast<size_t>(columns_ * value_bytes_);
  for (int64_t slot = 0; slot < storage_.state_slots(); ++slot) {
    char* const state = storage_.state() + slot * storage_.state_stride();
    std::memset(state + row * columns_ * value_bytes_, 0, bytes);
  }
  std::memset(storage_.row_state(row), 0, static_cast<size_t>(storage_.row_state_bytes()));
  if (counts_steps_) storage_.step_cells().SetSteps(row * columns_, columns_, 0);
}

}  // namespace multiverso
