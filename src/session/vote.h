// Vote: how a rank fared in a step of a collective call, as it brings it to the next meeting, so
// that what fails on one rank fails on all, with the same error.
#ifndef MULTIVERSO_SESSION_VOTE_H_
#define MULTIVERSO_SESSION_VOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "group/group.h"
#include "group/rank_context.h"

namespace multiverso {

// What the rank that decides something tells the others, besides how it fared.
struct LeaderMessage {
  int64_t value[4] = {};
};

// Arrives with it. What lies in `folder` is told without its path, which all ranks know.
void CastVote(Group* circle, CollectiveKind kind, const Status& status, const std::string& folder,
              const LeaderMessage& tidings = LeaderMessage());

// The first failure that somebody brought to the meeting just held, in rank order; the same on all
// ranks.
Status FirstFailure(const Group& circle, const std::string& folder);
// PeerLost, the same on all ranks, if one of `ranks` has not come to the meeting just held. `task`
// is what it had not done by then.
Status CheckAllCame(const RankContext& group, const Group& circle, const std::vector<int>& ranks,
                    const std::string& task);
// What that rank brought.
LeaderMessage LeaderMessageOf(const Group& circle, int rank);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_VOTE_H_
