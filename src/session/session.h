// Session: one rank's part in a job, from init to shutdown, and the tables made in it.
#ifndef MULTIVERSO_SESSION_SESSION_H_
#define MULTIVERSO_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/operation.h"
#include "base/status.h"
#include "consistency/aggregation.h"
#include "consistency/relay_aggregation.h"
#include "consistency/spanning_aggregation.h"
#include "consistency/sync_point_check.h"
#include "group/rank_context.h"
#include "node/membership.h"
#include "session/checkpointing.h"
#include "session/heartbeat.h"
#include "session/loading.h"
#include "session/negotiation.h"
#include "session/node_service.h"
#include "table/table.h"
#include "table/table_creation.h"
#include "transport/transport.h"

namespace multiverso {

struct SessionOptions {
  ModeOptions mode;
  Role role = Role::kAll;
  OnLoss on_loss = OnLoss::kFail;
  std::chrono::milliseconds timeout{120000};
  std::chrono::milliseconds peer_timeout{30000};
  FileSystem* files = LocalFileSystem();  // of checkpoints
};

// Collective calls are made by one thread at a time; everything else is thread-safe.
class Session {
 public:
  // `service` is null unless the session spans nodes, `heartbeat` if it has one rank.
  Session(const SessionOptions& options, std::unique_ptr<Transport> transport, Membership members,
          std::unique_ptr<RankContext> group, std::unique_ptr<NodeService> service,
          std::unique_ptr<Heartbeat> heartbeat = nullptr);
  ~Session();

  const Membership& members() const { return members_; }
  RankContext* group() const { return group_.get(); }
  TableContext table_context() const {
    return TableContext{&members_, group_.get(), options_.mode,
                        service_ == nullptr ? nullptr : service_->shards(),
                        service_ == nullptr ? nullptr : service_->rounds()};
  }
  // The deadline of a call that starts now.
  Instant NextDeadline() const { return Clock::now() + options_.timeout; }

  std::unique_ptr<Operation> StartBarrier();
  std::unique_ptr<TableCreation> StartTable(TableSpec spec, const void* init_value);
  // In-place sum over the workers; `count` elements, as many and of the same type on each.
  std::unique_ptr<Operation> StartAggregate(DType dtype, void* data, int64_t count);
  // Checkpoints; collective. A save in the background ends with StartSaveWait, the next save or
  // load, or StartClose, which return its failure.
  std::unique_ptr<Operation> StartSave(const CheckpointRequest& request);
  std::unique_ptr<Operation> StartSaveWait();
  std::unique_ptr<Loading> StartLoad(const CheckpointRequest& request);
  // This worker joins no further rounds of any table.
  void Finish();
  // Meets the others for the end. The session is of no use afterwards, whatever came of it.
  std::unique_ptr<Operation> StartClose();
  // In a forked child, which shares the parent's descriptors. Async-signal-safe.
  void CloseInForkedChild() const {
    if (group_->connections() != nullptr) group_->connections()->CloseInForkedChild();
  }
  // Goes without meeting anybody.
  void Leave(const std::string& reason) { group_->state()->Leave(reason); }

  // Keeps the table until ReleaseTable or the end of the session.
  Table* KeepTable(std::shared_ptr<Table> table);
  void ReleaseTable(Table* table);

 private:
  // To be called before the rank arrives at a call of everybody: whether the workers' rounds agree
  // there is for each table to see, and for what is returned when all have met.
  SyncPointCheck ComeToFence(CollectiveKind call);
  // The meeting that a collective call of that kind begins with.
  std::unique_ptr<Operation> StartMeeting(CollectiveKind call);
  Tables TablesHere();
  // For a call that writes or reads all tables.
  Instant NextDiskDeadline();

  SessionOptions options_;
  std::unique_ptr<Transport> transport_;
  Membership members_;
  std::unique_ptr<RankContext> group_;
  std::unique_ptr<NodeService> service_;  // these end before the group
  std::unique_ptr<Heartbeat> heartbeat_;
  int64_t next_table_ = 0;
  uint64_t fences_ = 0;
  std::mutex tables_mutex_;
  std::vector<std::shared_ptr<Table>> tables_;
  bool has_finished_ = false;  // guarded by tables_mutex_, like the tables it goes for
  // The calls on tables that have been released: those that count at a fence, and at the last.
  SyncPointArrival released_;
  SyncPointArrival released_adds_;
  AggregationTurn next_aggregation_;
  std::unique_ptr<ChainLink> aggregate_link_;  // in a session that spans nodes, on leaders
  Checkpointing checkpointing_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_SESSION_H_
