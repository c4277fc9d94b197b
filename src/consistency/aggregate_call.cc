#include "consistency/aggregate_call.h"

#include <string>
#include <vector>

#include "base/text.h"

namespace multiverso {
namespace {

std::string Describe(const AggregateCall& call) {
  return StrCat(call.count, " ", NameOf(static_cast<DType>(call.dtype)));
}

}  // namespace

void AggregateCall::Announce(Group* workers) const {
  workers->BeginAllgather(CollectiveKind::kAggregate, this, sizeof(*this));
}

AggregateCall AggregateCall::Of(const Group& workers, int rank) {
  return workers.payload(rank).Read<AggregateCall>();
}

Status AggregateCall::CheckSame(const Group& workers) {
  const std::vector<int> present = workers.participants();
  const AggregateCall one = Of(workers, present.front());
  for (const int rank : present) {
    const AggregateCall other = Of(workers, rank);
    if (other.count == one.count && other.dtype == one.dtype) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ",
                                          present.front(), " called aggregate of ", Describe(one),
                                          ", rank ", rank, " of ", Describe(other)));
  }
  return Status::Ok();
}

}  // namespace multiverso
