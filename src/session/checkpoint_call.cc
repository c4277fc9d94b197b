#include "session/checkpoint_call.h"

namespace multiverso {

Status CheckpointCall::Begin(Tables tables, int64_t num_created, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(EndSave(state_, limit));
  state_->finished.reset();  // waits until the space of old checkpoints is free
  Result<Tables> covered =
      Negotiate(context(), kind_, request_, std::move(tables), num_created, limit);
  if (!covered.ok()) return covered.status();
  tables_ = std::move(covered.value());
  master_ = context()->peers()->MasterOf(world()->participants());
  for (const auto& table : tables_) MV_RETURN_IF_NOT_OK(table->consistency()->Settle(limit));
  return Status::Ok();
}

Status CheckpointCall::ExchangeVotes(const Status& mine, const WaitLimit& limit,
                                     const MasterMessage& from_master) {
  CastVote(world(), kind_, mine, request_.folder, from_master);
  return world()->Wait(limit);
}

Status CheckpointCall::CheckVotes(const std::vector<int>& ranks, const std::string& task) const {
  MV_RETURN_IF_NOT_OK(FirstFailure(*world(), request_.folder));
  return CheckAllVoted(*context(), *world(), ranks, task);
}

}  // namespace multiverso
