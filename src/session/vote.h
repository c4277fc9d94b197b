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

// What the master sends to the other ranks with its vote.
struct MasterMessage {
  int64_t values[4] = {};
};

// Begins the allgather of the votes. `folder`, which all ranks know, is cut off the beginning of
// texts and paths, since a long path would not fit.
void CastVote(Group* world, CollectiveKind kind, const Status& status, const std::string& folder,
              const MasterMessage& from_master = MasterMessage());

// Returns the first failure among the votes in rank order, which is the same on all ranks.
Status FirstFailure(const Group& world, const std::string& folder);
// Returns PeerLost, on all ranks, if one of `ranks` did not vote. `task` completes "rank 1
// died before it had ...".
Status CheckAllVoted(const RankContext& context, const Group& world, const std::vector<int>& ranks,
                     const std::string& task);
MasterMessage MasterMessageOf(const Group& world, int master);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_VOTE_H_
