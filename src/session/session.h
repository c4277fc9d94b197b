// Session: one rank's part in a job, from init to shutdown, and the tables made in it.
#ifndef MULTIVERSO_SESSION_SESSION_H_
#define MULTIVERSO_SESSION_SESSION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/aggregation.h"
#include "consistency/chain_link.h"
#include "consistency/sync_point_check.h"
#include "group/rank_context.h"
#include "node/membership.h"
#include "session/checkpointing.h"
#include "session/heartbeat.h"
#include "session/negotiation.h"
#include "session/node_service.h"
#include "table/table.h"
#include "transport/transport.h"

namespace multiverso {

struct SessionOptions {
  ModeOptions mode;
  Role role = Role::kAll;
  OnLoss on_loss = OnLoss::kFail;
  std::chrono::milliseconds timeout{120000};
  std::chrono::milliseconds peer_timeout{30000};
  FileSystem* files = LocalFileSystem();  // for checkpoints
};

// Collective calls are made by one thread at a time; everything else is thread-safe.
class Session {
 public:
  // `service` is null unless the session spans nodes, `heartbeat` if it has one rank.
  Session(const SessionOptions& options, std::unique_ptr<Transport> transport, Membership members,
          std::unique_ptr<RankContext> context, std::unique_ptr<NodeService> service,
          std::unique_ptr<Heartbeat> heartbeat = nullptr);
  ~Session();

  const Membership& members() const { return members_; }
  RankContext* context() const { return context_.get(); }
  TableContext table_context() const {
    return TableContext{&members_, context_.get(), options_.mode,
                        service_ == nullptr ? nullptr : service_->shards(),
                        service_ == nullptr ? nullptr : service_->rounds()};
  }
  // The deadline of a call that starts now.
  Instant NextDeadline() const { return Clock::now() + options_.timeout; }

  // ---- Collective calls. A rank that is interrupted in one aborts the session, as the other ranks
  // would wait for it in vain.
  Status Barrier(Interrupt* interrupt = nullptr);
  // The caller passes the table to KeepTable.
  Result<std::shared_ptr<Table>> CreateTable(TableSpec spec, const void* init_value,
                                             Interrupt* interrupt = nullptr);
  // Collective over the workers: sums `count` elements in place, the same number and type on each.
  Status Aggregate(DType dtype, void* data, int64_t count, Interrupt* interrupt = nullptr);
  // A save in the background ends in SaveWait, the next Save or Load, or Close, which return its
  // failure.
  Status Save(const CheckpointRequest& request, Interrupt* interrupt = nullptr);
  Status SaveWait(Interrupt* interrupt = nullptr);
  // Whether a save is in progress in the background.
  bool IsSaving() const { return checkpointing_.job != nullptr; }
  // Returns the checkpoint's step; -1 without a checkpoint.
  Result<int64_t> Load(const CheckpointRequest& request, Interrupt* interrupt = nullptr);
  // The session cannot be used afterwards, whatever the result.
  Status Close(Interrupt* interrupt = nullptr);

  // ---- Calls of this rank alone
  // This worker joins no further rounds of any table.
  void Finish();
  // For a forked child, which shares the parent's descriptors. Async-signal-safe.
  void CloseInForkedChild() const {
    if (context_->connections() != nullptr) context_->connections()->CloseInForkedChild();
  }
  // Leaves without waiting for other ranks.
  void Leave(const std::string& reason) { context_->state()->Leave(reason); }

  // Keeps the table until ReleaseTable or the end of the session.
  Table* KeepTable(std::shared_ptr<Table> table);
  void ReleaseTable(Table* table);

 private:
  // To be called before this rank enters a collective call of all ranks: each table compares the
  // rounds of the workers, and so does the returned check when all ranks have entered the call.
  SyncPointCheck ReachSyncPoint(CollectiveKind call);
  // The barrier that a collective call of that kind begins with.
  Status AwaitAll(CollectiveKind call, const WaitLimit& limit);
  // What Close does before it leaves the group.
  Status SettleAll(bool* save_failed, const WaitLimit& limit);
  // Keeps this rank until all nodes have heard of the end.
  void Linger(const WaitLimit& limit);
  // The limit of a collective call.
  WaitLimit LimitOf(Instant deadline, Interrupt* interrupt);
  Tables TablesHere();
  // The deadline of a call that writes or reads all tables.
  Instant NextDiskDeadline();

  SessionOptions options_;
  std::unique_ptr<Transport> transport_;
  Membership members_;
  std::unique_ptr<RankContext> context_;
  std::unique_ptr<NodeService> service_;  // destroyed before the group
  std::unique_ptr<Heartbeat> heartbeat_;
  int64_t next_table_ = 0;
  uint64_t sync_points_ = 0;
  std::mutex tables_mutex_;
  std::vector<std::shared_ptr<Table>> tables_;
  bool has_finished_ = false;  // guarded by tables_mutex_
  // The calls on released tables: those that count at a sync point, and at the last one.
  SyncPointArrival released_;
  SyncPointArrival released_adds_;
  AggregationTurn next_aggregation_;
  std::unique_ptr<ChainLink> aggregate_link_;  // on leaders, in a session that spans nodes
  Checkpointing checkpointing_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_SESSION_H_
