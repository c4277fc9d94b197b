#include "remote/servers.h"

#include "remote/distributed_call.h"

namespace multiverso {

Status Servers::Run(const Request& request, const WaitLimit& limit) {
  if (CarriesData(request.kind)) MV_RETURN_IF_NOT_OK(Touch(request, limit));
  if (request.kind == RequestKind::kSetHyper) {
    MV_RETURN_IF_NOT_OK(here_->shard()->Run(request, limit));
    // Other nodes apply the change after as many rounds as this node.
    Request to_others = request;
    to_others.rounds = here_->consistency()->rounds_applied();
    return RunOnRows(to_others, {}, limit);
  }
  if (!request.IsPart()) return RunOnRows(request, {}, limit);
  if (request.count == 0) return Status::Ok();
  return RunOnRows(request, {RowsOfPart(request, here_->spec().num_col)}, limit);
}

Status Servers::RunOnRows(const Request& request, const std::vector<RowRange>& rows,
                          const WaitLimit& limit) {
  return DistributedCall(here_, service_, rank_, request, rows).Run(limit);
}

}  // namespace multiverso
