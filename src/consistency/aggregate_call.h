// AggregateCall: the payload with which a worker announces an aggregate in the workers' allgather,
// and the check that all workers made the same call.
#ifndef MULTIVERSO_CONSISTENCY_AGGREGATE_CALL_H_
#define MULTIVERSO_CONSISTENCY_AGGREGATE_CALL_H_

#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"
#include "group/group.h"

namespace multiverso {

struct AggregateCall {
  int64_t count;
  int32_t dtype;
  int32_t unused;
  // A digest of the ranks whose arrays the sender sums, or 0 if no worker compares the digest.
  uint64_t ranks_digest;

  // Begins the workers' next allgather with this payload.
  void Announce(Group* workers) const;
  // Returns the payload that a rank contributed to the last allgather.
  static AggregateCall Of(const Group& workers, int rank);
  // Returns a mismatch unless all participants announced the same count and dtype.
  static Status CheckSame(const Group& workers);
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATE_CALL_H_
