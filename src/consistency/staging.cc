#include "consistency/staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "shard/kernels.h"

namespace multiverso {
namespace {

constexpr int64_t kPage = 4096;

// What one worker says of its buffers, on cache lines of its own.
constexpr int64_t kAddsBytes =
    RoundUp(Staging::kBuffers * static_cast<int64_t>(sizeof(StagedAdd)), 64);

int64_t HeaderBytes(int workers) { return RoundUp(workers * kAddsBytes, kPage); }

// Row ids, then values.
int64_t BufferBytes(const StagedShape& shape) {
  return RoundUp(shape.layout.rows() * static_cast<int64_t>(sizeof(int64_t)), kPage) +
         RoundUp(shape.layout.bytes(), kPage);
}

bool Ascending(const int64_t* ids, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (ids[i - 1] >= ids[i]) return false;
  }
  return true;
}

}  // namespace

bool Staging::BytesFor(const StagedShape& shape, int workers, int64_t* bytes) {
  // The address space of a process ends at 2^47.
  constexpr int64_t kLargest = int64_t{1} << 46;
  if (shape.layout.rows() > kLargest / 16 || shape.layout.bytes() > kLargest / 16) return false;
  return CheckedMultiply(BufferBytes(shape), int64_t{workers} * kBuffers, bytes) &&
         CheckedAdd(*bytes, HeaderBytes(workers), bytes) && *bytes <= kLargest;
}

Staging::Staging(char* base, const StagedShape& shape, int workers)
    : base_(base), shape_(shape), workers_(workers), buffer_bytes_(BufferBytes(shape)) {}

StagedAdd* Staging::add_of(int worker, uint64_t round) const {
  return reinterpret_cast<StagedAdd*>(base_ + worker * kAddsBytes) +
         static_cast<int64_t>(round % kBuffers);
}

int64_t* Staging::row_ids(int worker, int buffer) const {
  return reinterpret_cast<int64_t*>(base_ + HeaderBytes(workers_) +
                                    (int64_t{worker} * kBuffers + buffer) * buffer_bytes_);
}

char* Staging::values(int worker, int buffer) const {
  return reinterpret_cast<char*>(row_ids(worker, buffer)) +
         RoundUp(shape_.layout.rows() * static_cast<int64_t>(sizeof(int64_t)), kPage);
}

int64_t Staging::StageRows(int worker, int buffer, const int64_t* ids, int64_t count,
                           const void* delta) {
  if (count == 0) return 0;  // ids and delta may be null
  int64_t* const staged_ids = row_ids(worker, buffer);
  char* const staged_values = values(worker, buffer);
  const int64_t row_bytes = shape_.layout.row_bytes();
  const auto* const rows = static_cast<const char*>(delta);
  if (Ascending(ids, count)) {
    std::memcpy(staged_ids, ids, static_cast<size_t>(count) * sizeof(int64_t));
    std::memcpy(staged_values, rows, static_cast<size_t>(count * row_bytes));
    return count;
  }
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Stable, so that duplicates are summed in the order given.
  std::stable_sort(order.begin(), order.end(),
                   [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  int64_t staged = 0;
  for (const int64_t i : order) {
    if (staged > 0 && staged_ids[staged - 1] == ids[i]) {
      WithType(shape_.dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        kernels::Add(reinterpret_cast<T*>(staged_values + (staged - 1) * row_bytes),
                     reinterpret_cast<const T*>(rows + i * row_bytes), shape_.columns);
      });
      continue;
    }
    staged_ids[staged] = ids[i];
    std::memcpy(staged_values + staged * row_bytes, rows + i * row_bytes,
                static_cast<size_t>(row_bytes));
    ++staged;
  }
  return staged;
}

}  // namespace multiverso
