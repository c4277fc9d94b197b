#include "session/checkpoint_call.h"

#include "base/text.h"

namespace multiverso {

Status CheckpointCall::Begin(Tables tables, int64_t num_created, const WaitLimit& limit,
                             Status* mine) {
  MV_RETURN_IF_NOT_OK(EndSave(state_, limit));
  state_->finished.reset();  // waits until the space of old checkpoints is free
  MV_ASSIGN_OR_RETURN(tables_,
                      Negotiate(context(), kind_, request_, std::move(tables), num_created, limit));
  master_ = context()->peers()->MasterOf(world()->participants());
  for (const auto& table : tables_) {
    if (mine->ok()) *mine = table->consistency()->Settle(limit);
  }
  return Status::Ok();
}

Status CheckpointCall::ExchangeVotes(const Status& mine, const std::vector<int>& ranks,
                                     const std::string& task, const WaitLimit& limit,
                                     const MasterMessage& from_master) {
  return multiverso::ExchangeVotes(world(), kind_, mine, request_.folder, ranks,
                                   StrCat(" before it had ", task), limit, from_master);
}

}  // namespace multiverso
