// DistributedCall: a call on a table whose rows lie on several nodes.
//
// The rows of this node are operated on by this thread, in memory, like those of any table; those
// of other nodes by the service threads of the ranks that own them (ShardService). Both at once.
// The call ends when everybody has answered, so whatever it added is there for every get after it.
#ifndef MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_
#define MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/operation.h"
#include "table/chunk_source.h"
#include "table/server_pipeline.h"
#include "table/table.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class DistributedCall final : public Operation {
 public:
  // The arguments have been checked. The table outlives the call.
  DistributedCall(Table* table, const TableRequest& request, Instant deadline);
  ~DistributedCall() override;

  Status Step(const WaitLimit& limit) override;
  // What has been sent is applied, what has not is not.
  void Cancel(const std::string& reason) override;

 private:
  void OpenLanes();
  void SplitRows(std::vector<std::vector<int64_t>>* by_owner) const;
  void AddLane(int server, ChunkSource source, RowRange rows);
  // One chunk of this node's own rows.
  Status StepHere(const WaitLimit& limit, bool* progressed);
  Status StepLanes(bool* progressed);
  // Whether those who have not answered still can.
  Status LookAfterServers();
  // In a session that goes on without it: another rank of its node takes over.
  Status Replace(ServerPipeline* lane);
  bool survives_losses() const { return table_->group()->members().survives_losses(); }
  Status TooLate() const;
  // Ends what is under way, so that the caller gets the memory back.
  Status Fail(const Status& status);

  Table* table_;
  TableRequest request_;
  Messenger* messenger_;
  int tag_;
  Instant began_;
  Backoff backoff_;
  Instant looked_;
  std::vector<ServerPipeline> lanes_;
  std::vector<bool> answered_;
  DeferredFailure failure_;
  std::optional<Instant> stalled_at_;
  // Of this node.
  std::unique_ptr<ChunkSource> here_;
  Chunk chunk_;
  bool has_chunk_ = false;
  Progress progress_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_
