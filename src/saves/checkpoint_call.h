// CheckpointCall: the common part of a save and a load.
//
// Both calls begin alike. After a barrier, no rank is in the middle of training. The previous save
// is completed. The ranks agree on the tables that the call covers and on the master, which finds
// or makes the folder. Pending adds are applied, so each add is before the checkpoint or after it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "saves/checkpointing.h"
#include "saves/negotiation.h"

namespace multiverso {

class CheckpointCall {
 protected:
  CheckpointCall(Checkpointing* state, CollectiveKind kind, AgreedCall request)
      : state_(state), kind_(kind), request_(std::move(request)) {}

  // Runs the beginning after the barrier, with the `tables` and `num_created` of Negotiate. Returns
  // a failure of all ranks, and sets *mine to this rank's failure, for its next vote.
  Status Begin(Tables tables, int64_t num_created, const WaitLimit& limit, Status* mine);

  Checkpointing* state() const { return state_; }
  RankContext* context() const { return state_->context; }
  Group* world() const { return context()->world(); }
  const Membership& members() const { return context()->members(); }
  const AgreedCall& request() const { return request_; }
  // Return, after Begin, the tables that the call covers and the master among the participants.
  const Tables& tables() const { return tables_; }
  int master() const { return master_; }
  bool is_master() const { return members().rank() == master_; }

  // Sends this rank's vote, with a message if this rank is the master, and waits for all votes.
  // Returns the first failure, or PeerLost if one of `ranks` did not vote: "rank 1 died before it
  // had" done the `task`.
  Status ExchangeVotes(const Status& mine, const std::vector<int>& ranks, const std::string& task,
                       const WaitLimit& limit, const MasterMessage& from_master = MasterMessage()) {
    return multiverso::ExchangeVotes(*state_, kind_, request_.folder, mine, ranks, task, limit,
                                     from_master);
  }

 private:
  Checkpointing* state_;
  CollectiveKind kind_;
  AgreedCall request_;
  Tables tables_;
  int master_ = -1;
};

}  // namespace multiverso
