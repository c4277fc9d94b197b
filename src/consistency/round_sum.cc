#include "consistency/round_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "shard/kernels.h"

namespace multiverso {
namespace {

// The number of elements summed at a time. Their sum stays in the first-level cache until applied.
constexpr int64_t kElementsAtATime = 2048;

}  // namespace

RoundSum::RoundSum(const StagedShape& shape, const Shard* shard) : shape_(shape), shard_(shard) {}

char* RoundSum::Scratch(int64_t count) {
  const auto bytes = static_cast<size_t>(count * shape_.element_bytes());
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void RoundSum::Add(char* sum, const char* values, int64_t count) const {
  WithType(shape_.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    kernels::Add(reinterpret_cast<T*>(sum), reinterpret_cast<const T*>(values), count);
  });
}

void RoundSum::ApplyStripe(int64_t stripe, const std::vector<Contribution>& contributions,
                           char* out) {
  const auto is_rows = [](const Contribution& term) { return term.is_rows; };
  if (std::none_of(contributions.begin(), contributions.end(), is_rows)) {
    ApplyWhole(stripe, contributions, out);
  } else {
    ApplyByRow(stripe, contributions);
  }
}

void RoundSum::ApplyWhole(int64_t stripe, const std::vector<Contribution>& contributions,
                          char* out) {
  const int64_t size = shape_.element_bytes();
  const int64_t end = shape_.layout.end_row(stripe) * shape_.columns;
  int64_t first = shape_.layout.first_row(stripe) * shape_.columns;
  sum_.resize(std::max(sum_.size(), static_cast<size_t>(kElementsAtATime * size)));
  for (; first < end; first += kElementsAtATime) {
    const int64_t count = std::min(kElementsAtATime, end - first);
    const int64_t offset = first * size;
    const char* sum = contributions[0].values + offset;
    if (contributions.size() > 1) {
      WithType(shape_.dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        kernels::Sum(reinterpret_cast<T*>(sum_.data()), reinterpret_cast<const T*>(sum),
                     reinterpret_cast<const T*>(contributions[1].values + offset), count);
      });
      for (size_t i = 2; i < contributions.size(); ++i) {
        Add(sum_.data(), contributions[i].values + offset, count);
      }
      sum = sum_.data();
    }
    shard_->Apply(first, sum, static_cast<int64_t>(contributions.size()),
                  out == nullptr ? nullptr : out + offset, count, Scratch(count));
  }
}

void RoundSum::ApplyByRow(int64_t stripe, const std::vector<Contribution>& contributions) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int64_t first = shape_.layout.first_row(stripe);
  const int64_t end = shape_.layout.end_row(stripe);
  const int64_t row_bytes = shape_.layout.row_bytes();
  bool has_whole = false;
  next_rows_.assign(contributions.size(), 0);
  for (size_t i = 0; i < contributions.size(); ++i) {
    const Contribution& term = contributions[i];
    if (term.is_rows) {
      next_rows_[i] =
          std::lower_bound(term.row_ids, term.row_ids + term.count, first) - term.row_ids;
    } else {
      has_whole = true;
    }
  }
  const auto next_row = [&](size_t i) {
    const Contribution& term = contributions[i];
    return term.is_rows && next_rows_[i] < term.count ? term.row_ids[next_rows_[i]] : kNone;
  };
  sum_.resize(std::max(sum_.size(), static_cast<size_t>(row_bytes)));
  for (int64_t row = first;; ++row) {
    if (!has_whole) {
      row = kNone;
      for (size_t i = 0; i < contributions.size(); ++i) row = std::min(row, next_row(i));
    }
    if (row >= end) return;
    // The first term is copied, because a sum that starts at 0 would turn -0 into 0.
    const char* sum = nullptr;
    int64_t terms = 0;
    for (size_t i = 0; i < contributions.size(); ++i) {
      const Contribution& term = contributions[i];
      if (term.is_rows && next_row(i) != row) continue;
      ++terms;
      const char* const values = term.values + (term.is_rows ? next_rows_[i]++ : row) * row_bytes;
      if (sum == nullptr) {
        sum = values;
        continue;
      }
      if (sum != sum_.data()) std::memcpy(sum_.data(), sum, static_cast<size_t>(row_bytes));
      sum = sum_.data();
      Add(sum_.data(), values, shape_.columns);
    }
    shard_->Apply(row * shape_.columns, sum, terms, nullptr, shape_.columns,
                  Scratch(shape_.columns));
  }
}

}  // namespace multiverso
