#include "transport/rank_claim.h"

namespace multiverso {

// On Windows a session has one rank.
int32_t ClaimRank() { return kLauncherOfMultiverso + kLauncherOfMpi + kLauncherOfTorchrun; }

Status HoldRank(int32_t /*launchers*/) { return Status::Ok(); }

void ReleaseHeldRank() {}

}  // namespace multiverso
