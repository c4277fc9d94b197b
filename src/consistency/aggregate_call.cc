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
  const std::vector<int> ranks = workers.participants();
  const AggregateCall first = Of(workers, ranks.front());
  for (const int rank : ranks) {
    const AggregateCall call = Of(workers, rank);
    if (call.count == first.count && call.dtype == first.dtype) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ",
                                          ranks.front(), " called aggregate of ", Describe(first),
                                          ", rank ", rank, " of ", Describe(call)));
  }
  return Status::Ok();
}

}  // namespace multiverso
