#include "calls/param_sync.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The option may have changed since the table was created.
Status CheckDoesNotClip(const Table& table) {
  if (table.clipnorm() == 0) return Status::Ok();
  return CheckSupported({Feature::kParamSync, Feature::kClips});
}

}  // namespace

Result<std::unique_ptr<ParamSync>> ParamSync::Make(const Table& table, const int64_t* counts,
                                                   int64_t tensors, const void* values) {
  const TableSpec& spec = table.spec();
  if (tensors < 1 || counts == nullptr) {
    return Status(Code::kValue, StrCat("expected 1 tensor or more, received ", tensors));
  }
  if (values == nullptr) return Status(Code::kValue, "expected values, received null");
  // Programs may have changed the norm since the creation.
  const FeatureSet used = spec.features().Without(Feature::kClips).With(Feature::kParamSync);
  MV_RETURN_IF_NOT_OK(CheckSupported(used));
  MV_RETURN_IF_NOT_OK(CheckDoesNotClip(table));
  int64_t sum = 0;
  for (int64_t i = 0; i < tensors; ++i) {
    if (counts[i] < 0 || !CheckedAdd(sum, counts[i], &sum)) {
      return Status(Code::kValue, StrCat("counts[", i,
                                         "]: expected the elements of a tensor, "
                                         "received ",
                                         counts[i]));
    }
  }
  if (sum != spec.count()) {
    return Status(Code::kValue, StrCat("table '", spec.name, "' has ", spec.count(),
                                       " elements, the tensors have ", sum));
  }
  MV_ASSIGN_OR_RETURN(Segment last, Segment::CreatePrivate(spec.bytes()));
  std::memcpy(last.data(), values, static_cast<size_t>(spec.bytes()));
  return std::unique_ptr<ParamSync>(
      new ParamSync(TensorList(spec.value_type(), counts, tensors), std::move(last)));
}

ParamSync::ParamSync(TensorList tensors, Segment last)
    : tensors_(std::move(tensors)), last_(std::move(last)) {}

Status ParamSync::SetScale(const Table& table, double scale) {
  if (!(scale > 0) || std::isinf(scale)) {
    return Status(Code::kValue, StrCat("scale: expected a positive number, received ", scale));
  }
  MV_RETURN_IF_NOT_OK(CheckSupported(table.spec().features().With(Feature::kWeight)));
  scale_ = scale;
  return Status::Ok();
}

Status ParamSync::Begin(const Table& table, void* const* data, int64_t tensors) {
  MV_RETURN_IF_NOT_OK(table.Check(Request::Exchange(tensors_, last_.data()), tensors_.count()));
  MV_RETURN_IF_NOT_OK(CheckDoesNotClip(table).In(table.Where("sync")));
  if (tensors != tensors_.tensors() || data == nullptr) {
    return Status(Code::kValue, StrCat(table.Where("sync"), ": expected ", tensors_.tensors(),
                                       " tensors, received ", data == nullptr ? 0 : tensors));
  }
  for (int64_t i = 0; i < tensors; ++i) {
    if (data[i] == nullptr && tensors_.count_of(i) > 0) {
      return Status(Code::kValue, StrCat(table.Where("sync"), ": tensors[", i,
                                         "]: expected a buffer, received null"));
    }
  }
  if (is_in_flight_) {
    return Status(Code::kState, StrCat(table.Where("sync"),
                                       ": an earlier sync failed, so its delta "
                                       "cannot be separated from later changes"));
  }
  tensors_.SetAddresses(data);
  return Status::Ok();
}

Status ParamSync::Run(Table* table, const WaitLimit& limit) {
  is_in_flight_ = table->calls_servers() || table->EveryGetIsCollective();
  Request exchange = Request::Exchange(tensors_, last_.data());
  exchange.scale = scale_;
  MV_RETURN_IF_NOT_OK(table->Run(exchange, limit));
  is_in_flight_ = false;
  return Status::Ok();
}

}  // namespace multiverso
