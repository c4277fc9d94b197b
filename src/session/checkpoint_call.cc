#include "session/checkpoint_call.h"

#include <utility>

namespace multiverso {

CheckpointCall::CheckpointCall(Checkpointing* state, CallKind kind,
                               std::unique_ptr<Operation> fence, Wish wish, Tables tables,
                               int64_t num_created, Instant deadline)
    : Operation(deadline),
      state_(state),
      kind_(kind),
      fence_(std::move(fence)),
      last_(state),
      wish_(wish),
      agreement_(state->group, kind, std::move(wish), std::move(tables), num_created) {}

void CheckpointCall::Cancel(const std::string& reason) {
  group()->Abort(Status(Code::kAborted, reason));
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
      MV_RETURN_IF_NOT_OK(agreement_.Step(limit));
      master_ = group()->peers()->MasterOf(circle()->present());
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

void CheckpointCall::ArriveWith(const Status& status, const Tidings& tidings) {
  multiverso::ArriveWith(circle(), kind_, status, wish_.folder, tidings);
}

Status CheckpointCall::CheckMeeting(const std::vector<int>& ranks, const std::string& task) const {
  MV_RETURN_IF_NOT_OK(FirstFailure(*circle(), wish_.folder));
  return CheckAllCame(*group(), *circle(), ranks, task);
}

}  // namespace multiverso
