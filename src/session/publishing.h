// Publishing: the call that shows readers the state of all tables at one moment.
//
// The ranks agree on the tables (Negotiate), so no rank changes them until the call ends. The ranks
// of each node copy the changes to the buffers of the node's tables (Publication). If all ranks
// have succeeded, the ranks make the copies visible.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "saves/negotiation.h"

namespace multiverso {

// Runs the call after a barrier, with the `tables` and `num_created` of Negotiate, in a session
// that has a name. Returns the number of the publication.
Result<int64_t> Publish(RankContext* context, int64_t step, Tables tables, int64_t num_created,
                        const WaitLimit& limit);

}  // namespace multiverso
