#include "saves/checkpoint_call.h"

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

}  // namespace multiverso
