#include "sum/aggregation.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace multiverso {
namespace {

// The payload with which a worker announces an aggregate.
struct Call {
  int64_t count;
  int32_t dtype;
  int32_t op;
  uint64_t ranks_digest;  // of the ranks whose arrays the sender sums

  static Call Of(const Group& workers, int rank) { return workers.payload(rank).Read<Call>(); }
  bool IsLike(const Call& other) const {
    return count == other.count && dtype == other.dtype && op == other.op;
  }
  std::string Describe() const {
    const bool is_sum = op == static_cast<int32_t>(ReduceOp::kSum);
    return StrCat(count, " ", NameOf(static_cast<DType>(dtype)), is_sum ? "" : ", op ",
                  is_sum ? "" : NameOf(static_cast<ReduceOp>(op)));
  }
};

Status CheckSameCall(const Group& workers) {
  const std::vector<int> ranks = workers.participants();
  const Call first = Call::Of(workers, ranks.front());
  for (const int rank : ranks) {
    const Call call = Call::Of(workers, rank);
    if (call.IsLike(first)) continue;
    return workers.Mismatch(StrCat("the ranks did not make the same call: rank ", ranks.front(),
                                   " called aggregate of ", first.Describe(), ", rank ", rank,
                                   " of ", call.Describe()));
  }
  return Status::Ok();
}

uint64_t DigestOf(const std::vector<int>& ranks) {
  uint64_t digest = ranks.size();
  for (const int rank : ranks) digest = (digest + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15;
  return digest;
}

}  // namespace

Aggregation::Aggregation(RankContext* context, AggregationState* state, const Array& array)
    : context_(context),
      state_(state),
      reduction_(array.op, array.dtype),
      count_(array.count),
      ranks_(context->workers()->members()),
      array_(array) {}

Status Aggregation::Meet(const WaitLimit& limit, Attachment* attachment) const {
  Group* const workers = context_->workers();
  const Call call{count_, static_cast<int32_t>(array_.dtype), static_cast<int32_t>(array_.op),
                  DigestOf(ranks_)};
  workers->BeginAllgather(CollectiveKind::kAggregate, &call, sizeof(call));
  MV_RETURN_IF_NOT_OK(workers->Wait(limit, attachment));
  return CheckSameCall(*workers);
}

bool Aggregation::AllStagedForThese() const {
  const std::vector<int> present = context_->workers()->participants();
  const uint64_t digest = DigestOf(present);
  return std::all_of(present.begin(), present.end(), [&](int rank) {
    return Call::Of(*context_->workers(), rank).ranks_digest == digest;
  });
}

}  // namespace multiverso
