// Servers: runs the requests of a table that is on several nodes, on this node's rows and, by
// DistributedCalls, on those of the others.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "remote/shard_service.h"
#include "remote/spanning_touch.h"
#include "shard/shard.h"
#include "table/table_shard.h"

namespace multiverso {

// Thread-safe.
class Servers final : public RequestRunner {
 public:
  // The arguments outlive the object.
  Servers(TableShard* here, ShardService* service, RankContext* rank)
      : here_(here),
        service_(service),
        rank_(rank),
        touch_(SpanningTouch::Make(here, service, rank)) {}

  Status Run(const Request& request, const WaitLimit& limit) override;
  // Runs a request for the whole table on the given rows; an empty list means all rows.
  Status RunOnRows(const Request& request, const std::vector<RowRange>& rows,
                   const WaitLimit& limit);
  // Makes the rows exist that an add changes.
  Status Touch(const Request& add, const WaitLimit& limit) {
    return touch_ == nullptr ? Status::Ok() : touch_->Touch(add, limit);
  }

 private:
  TableShard* here_;
  ShardService* service_;
  RankContext* rank_;
  std::unique_ptr<SpanningTouch> touch_;  // null unless the table has lazy rows
};

}  // namespace multiverso
