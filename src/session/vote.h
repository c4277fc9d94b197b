// Votes of a checkpoint call: each rank sends its status to the next allgather, so that a failure
// of one rank is the result on every rank.
#ifndef MULTIVERSO_SESSION_VOTE_H_
#define MULTIVERSO_SESSION_VOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "group/group.h"
#include "group/rank_context.h"

namespace multiverso {

// The data that the deciding rank sends to the other ranks with its vote.
struct LeaderMessage {
  int64_t value[4] = {};
};

// Begins the allgather of the votes. Texts are sent without `folder`, which all ranks know, since a
// long path would not fit.
void CastVote(Group* world, CollectiveKind kind, const Status& status, const std::string& folder,
              const LeaderMessage& from_leader = LeaderMessage());

// Returns the first failure among the votes in rank order, which is the same on all ranks.
Status FirstFailure(const Group& world, const std::string& folder);
// Returns PeerLost, equally on all ranks, if one of `ranks` did not vote. `task` names the step
// that the lost rank had not completed.
Status CheckAllCame(const RankContext& context, const Group& world, const std::vector<int>& ranks,
                    const std::string& task);
LeaderMessage LeaderMessageOf(const Group& world, int rank);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_VOTE_H_
