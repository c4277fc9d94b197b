#include "table/table_spec.h"

#include <cstring>

#include "base/checked.h"
#include "base/text.h"
#include "shard/make_updater.h"

namespace multiverso {

Status TableSpec::Check() const {
  if (kind != static_cast<int32_t>(TableKind::kArray) &&
      kind != static_cast<int32_t>(TableKind::kMatrix)) {
    return Status(Code::kValue, StrCat("kind: expected 0 (array) or 1 (matrix), received ", kind));
  }
  if (!IsDType(dtype)) {
    return Status(Code::kType,
                  StrCat("dtype: expected 0 (float32), 1 (float64), 2 (int32), 3 (int64), "
                         "4 (float16) or 5 (bfloat16), received ",
                         dtype));
  }
  if (num_row < 1 || num_col < 1) {
    return Status(Code::kValue,
                  StrCat("size: expected at least 1 element, received ", num_row, " x ", num_col));
  }
  if (kind == static_cast<int32_t>(TableKind::kArray) && num_col != 1) {
    return Status(Code::kValue, StrCat("num_col: expected 1 for an array, received ", num_col));
  }
  int64_t elements = 0;
  int64_t total = 0;
  if (!CheckedMultiply(num_row, num_col, &elements) ||
      !CheckedMultiply(elements, SizeOf(value_type()), &total)) {
    return Status(Code::kValue, StrCat("size: ", num_row, " x ", num_col, " ", NameOf(type()),
                                       " do not fit 64-bit arithmetic"));
  }
  if (numa != static_cast<int32_t>(NumaPolicy::kLocal) &&
      numa != static_cast<int32_t>(NumaPolicy::kInterleave)) {
    return Status(Code::kValue,
                  StrCat("numa: expected 0 (local) or 1 (interleave), received ", numa));
  }
  if (max_bytes < 0) {
    return Status(Code::kValue, StrCat("max_bytes: expected 0 or more, received ", max_bytes));
  }
  if (max_bytes > 0 && !is_lazy()) {
    return Status(Code::kValue,
                  "max_bytes: expected a table with an initializer, whose rows take memory when "
                  "they are first changed, received a table without");
  }
  MV_RETURN_IF_NOT_OK(initializer.Check(type()));
  const auto made = MakeUpdater(updater_kind(), type());
  MV_RETURN_IF_NOT_OK(made.status());
  const bool is_array = kind == static_cast<int32_t>(TableKind::kArray);
  if (made.value()->row_slots() > 0 && (is_array || num_col > kMaxRowElements)) {
    return Status(Code::kValue,
                  StrCat("updater '", NameOf(updater_kind()), "': expected a matrix of at most ",
                         kMaxRowElements, " columns, received ",
                         is_array ? std::string("an array") : StrCat(num_col, " columns")));
  }
  return CheckHypers(updater_kind(), hyper);
}

bool TableSpec::operator==(const TableSpec& other) const {
  return std::memcmp(this, &other, sizeof(*this)) == 0;
}

std::string TableSpec::Describe() const {
  const bool is_array = kind == static_cast<int32_t>(TableKind::kArray);
  std::string text = StrCat(is_array ? "array '" : "matrix '", name, "' of ", num_row);
  if (!is_array) text += StrCat(" x ", num_col);
  text += StrCat(" ", IsDType(dtype) ? NameOf(type()) : "unknown", ", updater ",
                 NameOf(updater_kind()));
  const std::string hypers = DescribeHypers(updater_kind(), hyper);
  if (!hypers.empty()) text += StrCat(" (", hypers, ")");
  if (is_lazy()) text += StrCat(", initially ", initializer.Describe());
  if (max_bytes > 0) text += StrCat(", max_bytes ", max_bytes);
  if (numa != 0) text += ", numa interleave";
  return text;
}

}  // namespace multiverso
