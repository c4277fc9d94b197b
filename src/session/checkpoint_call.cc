#include "session/checkpoint_call.h"

#include <utility>

namespace multiverso {

CheckpointCall::CheckpointCall(Checkpointing* state, CollectiveKind kind,
                               std::unique_ptr<Operation> fence, CheckpointRequest request,
                               Tables tables, int64_t num_created, Instant deadline)
    : Operation(deadline),
      state_(state),
      kind_(kind),
      fence_(std::move(fence)),
      last_(state),
      request_(request),
      negotiation_(state->group, kind, std::move(request), std::move(tables), num_created) {}

void CheckpointCall::Cancel(const std::string& reason) {
  group()->state()->Abort(Status(Code::kAborted, reason));
}

Status CheckpointCall::Begin(const WaitLimit& limit) {
  switch (phase_) {
    case Phase::kFence:
      MV_RETURN_IF_NOT_OK(fence_->Step(limit));
      phase_ = Phase::kLast;
      [[fallthrough]];
    case Phase::kLast:
      MV_RETURN_IF_NOT_OK(last_.Step(limit));
      phase_ = Phase::kAgree;
      [[fallthrough]];
    case Phase::kAgree:
      MV_RETURN_IF_NOT_OK(negotiation_.Step(limit));
      master_ = group()->peers()->MasterOf(circle()->participants());
      phase_ = Phase::kSettle;
      [[fallthrough]];
    case Phase::kSettle:
      for (; settled_ < tables().size(); ++settled_) {
        MV_RETURN_IF_NOT_OK(tables()[settled_]->Settle(limit));
      }
      phase_ = Phase::kBegun;
      [[fallthrough]];
    case Phase::kBegun:
      break;
  }
  return Status::Ok();
}

void CheckpointCall::CastVote(const Status& status, const LeaderMessage& tidings) {
  multiverso::CastVote(circle(), kind_, status, request_.folder, tidings);
}

Status CheckpointCall::CheckMeeting(const std::vector<int>& ranks, const std::string& task) const {
  MV_RETURN_IF_NOT_OK(FirstFailure(*circle(), request_.folder));
  return CheckAllCame(*group(), *circle(), ranks, task);
}

}  // namespace multiverso
