// Clipping the gradient of a call to a norm. The caller does it, because only the caller has the
// whole gradient: over several nodes it travels in parts.
#include <cmath>
#include <utility>

#include "shard/optimizer_kernels.h"
#include "table/table.h"

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

}  // namespace

Result<std::shared_ptr<const ArrangedRows>> Table::Arrange(Request* request) const {
  std::shared_ptr<ArrangedRows> rows;
  if (IsOfRows(request->kind)) {
    MV_ASSIGN_OR_RETURN(rows, ArrangeRows(request));
  }
  const double limit = clipnorm();
  if (limit != 0) {
    if (rows == nullptr) rows = std::make_shared<ArrangedRows>();
    int64_t count = request->IsPart() ? request->count : spec().count();
    if (IsOfRows(request->kind)) count = request->num_ids * spec().num_col;
    const bool is_double = spec().value_type() == DType::kFloat64;
    (is_double ? ClipNorm<double> : ClipNorm<float>)(limit, count, request, &rows->merged.values);
  }
  return std::shared_ptr<const ArrangedRows>(std::move(rows));
}

}  // namespace multiverso
