#include "table/table_spec.h"

#include <cstring>

#include "base/checked.h"
#include "base/text.h"
#include "numbers/make_updater.h"

namespace multiverso {

Status TableSpec::CheckNumbers() const {
  if (!is_array() && !is_hash() && kind != static_cast<int32_t>(TableKind::kMatrix)) {
    return Status(Code::kValue, StrCat("kind: expected 0 (array), 1 (matrix) or 2 (hash table), "
                                       "received ",
                                       kind));
  }
  if (!IsTableDType(dtype)) {
    return Status(Code::kType,
                  StrCat("dtype: expected 0 (float32), 1 (float64), 2 (int32), 3 (int64), "
                         "4 (float16) or 5 (bfloat16), received ",
                         dtype));
  }
  if (numa != static_cast<int32_t>(NumaPolicy::kLocal) &&
      numa != static_cast<int32_t>(NumaPolicy::kInterleave)) {
    return Status(Code::kValue,
                  StrCat("numa: expected 0 (local) or 1 (interleave), received ", numa));
  }
  if (IsWireFormat(wire)) return Status::Ok();
  return Status(Code::kValue,
                StrCat("wire: expected 0 (float32), 1 (bfloat16) or 2 (int8), received ", wire));
}

Status TableSpec::Check() const {
  MV_RETURN_IF_NOT_OK(CheckNumbers());
  if (num_row < 1 || num_col < 1) {
    return Status(Code::kValue,
                  StrCat("size: expected at least 1 element, received ", num_row, " x ", num_col));
  }
  if (is_array() && num_col != 1) {
    return Status(Code::kValue, StrCat("num_col: expected 1 for an array, received ", num_col));
  }
  int64_t elements = 0;
  int64_t total = 0;
  if (!CheckedMultiply(num_row, num_col, &elements) ||
      !CheckedMultiply(elements, SizeOf(value_type()), &total)) {
    return Status(Code::kValue, StrCat("size: ", num_row, " x ", num_col, " ", NameOf(type()),
                                       " do not fit 64-bit arithmetic"));
  }
  if (max_bytes < 0) {
    return Status(Code::kValue, StrCat("max_bytes: expected 0 or more, received ", max_bytes));
  }
  MV_RETURN_IF_NOT_OK(initializer.Check(type()));
  MV_RETURN_IF_NOT_OK(CheckKeys());
  MV_RETURN_IF_NOT_OK(MakeUpdater(updater_kind(), DType::kFloat32).status());
  const FeatureSet used = features();
  MV_RETURN_IF_NOT_OK(CheckSupported(used));
  if (used.Has(Feature::kRowState) && num_col > kMaxRowElements) {
    return Status(Code::kValue,
                  StrCat("updater '", NameOf(updater_kind()), "': expected a matrix of at most ",
                         kMaxRowElements, " columns, received ", num_col, " columns"));
  }
  return CheckHypers(updater_kind(), hyper);
}

FeatureSet TableSpec::features() const {
  return (FeaturesOfRows() | FeaturesOfUpdater())
      .With(Feature::kInteger, !IsFloating(value_type()))
      .With(Feature::kFloat64, type() == DType::kFloat64)
      .With(Feature::kHalf, IsHalf(type()))
      .With(Feature::kWire, wire_format() != WireFormat::kFloat32);
}

FeatureSet TableSpec::FeaturesOfRows() const {
  const bool has_lazy_rows = is_lazy() && !is_hash();
  return FeatureSet()
      .With(Feature::kArray, is_array())
      .With(Feature::kMatrix, !is_array() && !is_hash())
      .With(Feature::kDense, !is_lazy() && !is_hash())
      .With(Feature::kLazy, has_lazy_rows)
      .With(Feature::kLazyRows, has_lazy_rows && !is_array())
      .With(Feature::kKeys, is_hash())
      .With(Feature::kOnDisk, is_on_disk())
      .With(Feature::kMaxBytes, max_bytes > 0)
      .With(Feature::kEvict, keys.evict != 0 || keys.admit > 1)
      .With(Feature::kRandom, initializer.is_random());
}

FeatureSet TableSpec::FeaturesOfUpdater() const {
  const auto made = MakeUpdater(updater_kind(), DType::kFloat32);
  const bool compensates =
      updater_kind() == UpdaterKind::kDcasgd || updater_kind() == UpdaterKind::kDcasgda;
  return FeatureSet()
             .With(updater_kind() == UpdaterKind::kAdd ? Feature::kAdd : Feature::kUpdater)
             .With(Feature::kCountsSteps, made.ok() && made.value()->counts_steps())
             .With(Feature::kRowState, made.ok() && made.value()->row_slots() > 0)
             .With(Feature::kDelayCompensation, compensates)
             .With(Feature::kEasgd, updater_kind() == UpdaterKind::kEasgd) |
         FeaturesOfHyper(updater_kind(), kClipNorm, hyper[kClipNorm]);
}

Status TableSpec::CheckKeys() const {
  if (!is_hash()) {
    if (keys == KeyPolicy()) return Status::Ok();
    return Status(Code::kValue,
                  "capacity, evict, admit: expected 0 unless the table is a hash table");
  }
  // The numbers of stripes fit into 32 bits, and those of rows and bytes into 64 bits.
  constexpr int64_t kMostKeys = int64_t{1} << 36;
  constexpr int64_t kMostRowBytes = int64_t{512} << 10;  // rows travel in one piece
  constexpr int32_t kMostGets = 255;
  if (!is_lazy()) return Status(Code::kValue, "initializer: a hash table needs one");
  if (keys.capacity < 1 || keys.capacity > kMostKeys) {
    return Status(Code::kValue,
                  StrCat("capacity: expected 1 to 2^36 keys, received ", keys.capacity));
  }
  if (num_col > kMostRowBytes / SizeOf(value_type())) {
    return Status(Code::kValue,
                  StrCat("num_col: expected at most ", kMostRowBytes / SizeOf(value_type()),
                         " for a hash table, received ", num_col));
  }
  if (keys.evict < 0 || keys.evict > static_cast<int32_t>(Eviction::kLeastFrequent)) {
    return Status(Code::kValue,
                  StrCat("evict: expected 0 (none), 1 (lru) or 2 (lfu), received ", keys.evict));
  }
  if (keys.evict != 0 && keys.capacity < key_stripes()) {
    return Status(Code::kValue,
                  StrCat("capacity: expected at least ", key_stripes(),
                         " with evict, one key for each server, received ", keys.capacity));
  }
  if (keys.admit < 0 || keys.admit > kMostGets) {
    return Status(Code::kValue,
                  StrCat("admit: expected 1 to ", kMostGets, " gets, received ", keys.admit));
  }
  return Status::Ok();
}

void TableSpec::SetRowsForKeys(int64_t parts) {
  num_row = KeyIndex::StripesFor(keys.capacity, parts) * KeyIndex::kRowsPerStripe;
}

int64_t TableSpec::bytes_per_id(RequestKind request) const {
  switch (request) {
    case RequestKind::kTouchRows:
    case RequestKind::kTouchKeys:
    case RequestKind::kRemoveKeys:
      return 0;
    case RequestKind::kFindKeys:
    case RequestKind::kVersionsOfRows:
      return sizeof(int64_t);
    case RequestKind::kKeysOfRows:
      return sizeof(KeyIndex::RowOfKey);
    case RequestKind::kCountsOfRows:
      return sizeof(KeyCounts);
    default:
      return num_col * SizeOf(value_type());
  }
}

bool TableSpec::operator==(const TableSpec& other) const {
  return std::memcmp(this, &other, sizeof(*this)) == 0;
}

FeatureSet FeaturesOfHyper(UpdaterKind updater, int32_t index, double value) {
  const bool clips = index == kClipNorm && value != 0 && ClipsGradients(updater);
  return FeatureSet().With(Feature::kClips, clips);
}

std::string TableSpec::Describe() const {
  std::string text = StrCat(is_array()  ? "array '"
                            : is_hash() ? "hash table '"
                                        : "matrix '",
                            name, "' of ", is_hash() ? keys.capacity : num_row);
  if (!is_array()) text += StrCat(" x ", num_col);
  text += StrCat(" ", IsTableDType(dtype) ? NameOf(type()) : "unknown", ", updater ",
                 NameOf(updater_kind()));
  const std::string hypers = DescribeHypers(updater_kind(), hyper);
  if (!hypers.empty()) text += StrCat(" (", hypers, ")");
  if (is_lazy()) text += StrCat(", initially ", initializer.Describe());
  if (keys.evict != 0) text += keys.evict == 1 ? ", evict lru" : ", evict lfu";
  if (keys.admit > 1) text += StrCat(", admit ", keys.admit);
  return text + DescribeMemory();
}

std::string TableSpec::DescribeMemory() const {
  std::string text;
  if (max_bytes > 0) text += StrCat(", max_bytes ", max_bytes);
  if (wire != 0 && IsWireFormat(wire)) text += StrCat(", wire ", NameOf(wire_format()));
  if (numa != 0) text += ", numa interleave";
  if (is_on_disk()) text += StrCat(", backing (folder ", std::hex, backing, ")");
  return text;
}

}  // namespace multiverso
