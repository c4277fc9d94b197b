// SpanningTouch: touches the lazy rows of an add on all nodes before the add begins, so that no
// node runs out of memory in the middle of it.
#pragma once

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "remote/shard_service.h"
#include "shard/request.h"
#include "table/table_shard.h"

namespace multiverso {

// Thread-safe.
class SpanningTouch {
 public:
  // Returns null if the table, which is on several nodes, has no lazy rows. The arguments outlive
  // the object.
  static std::unique_ptr<SpanningTouch> Make(TableShard* here, ShardService* service,
                                             RankContext* rank);

  // Touches the rows of an add. Rows that this rank knows to be touched cost no message.
  Status Touch(const Request& add, const WaitLimit& limit);

 private:
  SpanningTouch(TableShard* here, ShardService* service, RankContext* rank);

  Status Run(const Request& touch, const WaitLimit& limit) const;
  // Returns the byte of `known_` that has the bit of a row.
  std::atomic<uint8_t>& ByteOf(int64_t row) const;

  TableShard* here_;
  ShardService* service_;
  RankContext* rank_;
  // A bit for each row that this rank knows to have been touched on all nodes. Without this memory,
  // every add asks about all of its rows.
  Segment known_;
  std::atomic<bool> knows_all_{false};
};

}  // namespace multiverso
