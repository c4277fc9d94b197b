// AggregateCall: what a worker brings to the first meeting of an aggregate, and the check that all
// have made the same call.
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
  // A digest of those whose arrays this one sums, where that is decided before the meeting.
  uint64_t ranks;

  // Arrives at the next meeting of the workers with this.
  void Announce(Group* workers) const;
  // What a rank brought to the meeting just held.
  static AggregateCall Of(const Group& workers, int rank);
  // Mismatch unless all who came to it brought the same.
  static Status CheckSame(const Group& workers);
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATE_CALL_H_
