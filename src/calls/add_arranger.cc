#include "calls/add_arranger.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"
#include "numbers/optimizer_kernels.h"

namespace multiverso {
namespace {

// Replaces a gradient of `count` numbers whose norm is above the limit by a scaled one in `values`,
// where the gradient may be already. As in Keras, a norm that is NaN makes all numbers NaN.
template <class T>
void ClipNorm(double limit, int64_t count, Request* request, std::vector<char>* values) {
  const auto* const gradient = static_cast<const T*>(request->delta);
  const double norm = std::sqrt(kernels::SquareSum(gradient, count));
  if (norm <= limit) return;
  values->resize(static_cast<size_t>(count) * sizeof(T));
  kernels::Scale(reinterpret_cast<T*>(values->data()), gradient, static_cast<T>(limit / norm),
                 count);
  request->delta = values->data();
}

Status RepeatedId(const std::string& where, const Request& add, int64_t position,
                  const char* updater) {
  return Status(Code::kValue,
                StrCat(where, IsOfKeys(add.kind) ? ": keys[" : ": row_ids[", position,
                       "]: updater '", updater, "' expected every row once, received row ",
                       add.row_ids[position], " more than once"));
}

}  // namespace

Result<std::unique_ptr<ArrangedAdd>> AddArranger::ArrangeRows(Request* request) const {
  using Arranged = Result<std::unique_ptr<ArrangedAdd>>;
  const Updater::Duplicates duplicates = shard_->updater().duplicates(*shard_->hyper());
  // Staging a round's delta merges the rows.
  if (is_staged_ && duplicates != Updater::Duplicates::kRefused) return Arranged(nullptr);
  auto rows = std::make_unique<ArrangedAdd>();
  rows->order = IsOfKeys(request->kind)
                    ? RowOrder::OfKeys(request->row_ids, request->num_ids)
                    : RowOrder(request->row_ids, request->num_ids, spec_.num_row);
  if (rows->order.is_of_list()) return Arranged(nullptr);
  bool must_merge = false;
  if (duplicates != Updater::Duplicates::kOneByOne || !is_in_place_) {
    const int64_t position = rows->order.FirstRepeated(request->row_ids);
    if (position >= 0 && duplicates == Updater::Duplicates::kRefused) {
      return RepeatedId(where_, *request, position, NameOf(spec_.updater_kind()));
    }
    // The servers of other nodes get the rows in the order of the list.
    must_merge = position >= 0 && duplicates == Updater::Duplicates::kSummed;
    if (!is_in_place_ && !must_merge) return Arranged(nullptr);
  }
  // The shard sums the deltas of a row itself, but the norm is that of the sums.
  if (is_in_place_ && !(must_merge && clipnorm() != 0)) {
    request->order = &rows->order;
    return Arranged(std::move(rows));
  }
  MergedRows* const merged = &rows->merged;
  const auto count = static_cast<size_t>(request->num_ids);
  merged->ids.resize(count);
  merged->values.resize(count * static_cast<size_t>(spec_.num_col * SizeOf(spec_.value_type())));
  const RowDelta delta{request->row_ids, request->num_ids, request->delta};
  const int64_t num_rows = MergeRows(delta, rows->order, spec_.num_col, spec_.value_type(),
                                     merged->ids.data(), merged->values.data());
  request->row_ids = merged->ids.data();
  request->num_ids = num_rows;
  request->delta = merged->values.data();
  return Arranged(std::move(rows));
}

Result<std::unique_ptr<const ArrangedAdd>> AddArranger::Arrange(Request* request) const {
  std::unique_ptr<ArrangedAdd> rows;
  if (HasIds(request->kind)) {
    MV_ASSIGN_OR_RETURN(rows, ArrangeRows(request));
  }
  const double limit = clipnorm();
  if (limit != 0) {
    if (rows == nullptr) rows = std::make_unique<ArrangedAdd>();
    int64_t count = request->IsPart() ? request->count : spec_.count();
    if (HasIds(request->kind)) count = request->num_ids * spec_.num_col;
    const bool is_double = spec_.value_type() == DType::kFloat64;
    (is_double ? ClipNorm<double> : ClipNorm<float>)(limit, count, request, &rows->merged.values);
  }
  return std::unique_ptr<const ArrangedAdd>(std::move(rows));
}

}  // namespace multiverso
