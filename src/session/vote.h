// Votes of a checkpoint call: each rank sends its status to the next allgather (Group), with texts
// shortened by the folder of the checkpoint.
#ifndef MULTIVERSO_SESSION_VOTE_H_
#define MULTIVERSO_SESSION_VOTE_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "group/group.h"

namespace multiverso {

// What the master sends to the other ranks with its vote.
struct MasterMessage {
  int64_t values[4] = {};
};

// Begins the allgather of the votes. `folder`, which all ranks know, is cut off the beginning of
// texts and paths, since a long path would not fit.
void CastVote(Group* world, CollectiveKind kind, const Status& status, const std::string& folder,
              const MasterMessage& from_master = MasterMessage());
// Waits for the votes. Returns the first failure among them in rank order, on all ranks.
Status AwaitVotes(Group* world, const std::string& folder, const WaitLimit& limit);
// Returns the message of the master, after AwaitVotes has returned ok.
MasterMessage MasterMessageOf(const Group& world, int master);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_VOTE_H_
