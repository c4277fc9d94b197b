// CheckpointCall: what a save and a load have in common.
//
// Both begin alike. The ranks meet, so that nobody is in the middle of training any more; the save
// before is completed; they agree on what is to be saved or loaded, and on who of them is the
// master; and what has been added is applied, so that it lies neither before nor behind by chance.
#ifndef MULTIVERSO_SESSION_CHECKPOINT_CALL_H_
#define MULTIVERSO_SESSION_CHECKPOINT_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/operation.h"
#include "session/checkpointing.h"
#include "session/negotiation.h"
#include "session/vote.h"

namespace multiverso {

class CheckpointCall : public Operation {
 public:
  void Cancel(const std::string& reason) override;

 protected:
  // `fence` is the meeting of all ranks that the call begins with.
  CheckpointCall(Checkpointing* state, CollectiveKind kind, std::unique_ptr<Operation> fence,
                 CheckpointRequest request, Tables tables, int64_t num_created, Instant deadline);

  // Ok, again and again, when this rank has done all of the beginning.
  Status Begin(const WaitLimit& limit);

  Checkpointing* state() const { return state_; }
  RankContext* group() const { return state_->group; }
  Group* circle() const { return group()->world(); }
  const Membership& members() const { return group()->members(); }
  const CheckpointRequest& request() const { return request_; }
  // After the beginning: those that all ranks have, and the master of those who came.
  const Tables& tables() const { return negotiation_.tables(); }
  int master() const { return master_; }
  bool is_master() const { return members().rank() == master_; }

  // Arrives at the next meeting with how this rank has fared.
  void CastVote(const Status& status, const LeaderMessage& tidings = LeaderMessage());
  // What came of the meeting just held: the first failure, or the loss of one of `ranks`, which had
  // not done `task`.
  Status CheckMeeting(const std::vector<int>& ranks, const std::string& task) const;

 private:
  enum class Phase { kFence, kLast, kAgree, kSettle, kBegun };

  Checkpointing* state_;
  CollectiveKind kind_;
  std::unique_ptr<Operation> fence_;
  SaveEnd last_;  // of the save before
  CheckpointRequest request_;
  Negotiation negotiation_;
  Phase phase_ = Phase::kFence;
  size_t settled_ = 0;  // tables
  int master_ = -1;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINT_CALL_H_
