// Votes of a checkpoint call: each rank sends its status to the next allgather (Group), with texts
// shortened by the folder of the checkpoint.
#ifndef MULTIVERSO_SESSION_CHECKPOINT_VOTES_H_
#define MULTIVERSO_SESSION_CHECKPOINT_VOTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/group.h"

namespace multiverso {

// What the master sends to the other ranks with its vote.
struct MasterMessage {
  int64_t values[4] = {};
};

// Makes an allgather as Group::Agree. `folder`, which all ranks know, is cut off the beginning of
// texts and paths, since a long path would not fit.
Status ExchangeVotes(Group* world, CollectiveKind kind, const Status& mine,
                     const std::string& folder, const std::vector<int>& ranks,
                     const std::string& consequence, const WaitLimit& limit,
                     const MasterMessage& from_master = MasterMessage());
// Returns the message of the master, after ExchangeVotes has returned ok.
MasterMessage MasterMessageOf(const Group& world, int master);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINT_VOTES_H_
