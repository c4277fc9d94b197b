// InRounds: runs the requests of a table in sync mode. A round sums whole rows that exist, so a
// request for a part or for keys becomes one for rows here.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "calls/add_arranger.h"
#include "remote/servers.h"
#include "shard/shard.h"
#include "table/table_shard.h"

namespace multiverso {

class InRounds final : public RequestRunner {
 public:
  // `servers` is null for a table on one node. The arguments outlive the object.
  InRounds(TableShard* here, Servers* servers, const AddArranger* arranger)
      : here_(here), servers_(servers), arranger_(arranger) {}

  Status Run(const Request& request, const WaitLimit& limit) override;

 private:
  Status RunRows(const Request& request, const WaitLimit& limit);
  // Runs a get or an add of a part. An add is for the updater add, to which zeros are no change.
  Status RunPart(const Request& part, const WaitLimit& limit);
  // Finds the rows of the keys first, which a get may have to do again. A table with keys is on one
  // node.
  Status RunKeys(const Request& request, const WaitLimit& limit);

  TableShard* here_;
  Servers* servers_;
  const AddArranger* arranger_;
};

}  // namespace multiverso
