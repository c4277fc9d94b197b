// Session: one rank's part in a job from init to shutdown: its collective calls and its tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"
#include "consistency/sync_point_check.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "node/membership.h"
#include "saves/checkpointing.h"
#include "saves/negotiation.h"
#include "session/heartbeat.h"
#include "session/node_service.h"
#include "sum/aggregation.h"
#include "sum/transfer.h"
#include "transport/transport.h"

namespace multiverso {

struct SessionOptions : AgreedOptions {
  Role role = Role::kAll;
  FileSystem* files = LocalFileSystem();  // for checkpoints

  // Returns what this rank uses, for CheckSupported, as far as it knows that without the others.
  FeatureSet features() const {
    return AgreedOptions::features() | mode.features().With(Feature::kRoles, role != Role::kAll);
  }
};

// One thread at a time makes collective calls; all other calls are thread-safe.
class Session {
 public:
  // `service` is null if the session has one node, and `heartbeat` is null if it has one rank.
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
  // Returns the deadline of a call that starts now.
  Instant NextDeadline() const { return Clock::now() + timeout(); }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout); }

  // ---- Collective calls. An interrupted rank aborts the session, since the other ranks would wait
  // for that rank in vain, or leaves an elastic session. In an elastic session, a rank returns at
  // once from calls that were over before it joined (CollectiveCall).
  Status Barrier(Interrupt* interrupt = nullptr);
  // Creates a table with all ranks. The caller passes the table to KeepTable.
  Result<std::shared_ptr<Table>> CreateTable(TableSpec spec, const void* init_value,
                                             Interrupt* interrupt = nullptr,
                                             const std::string& folder = "");
  // Combines an array with those of all other workers, in place. All pass the same operation, type
  // and number of elements.
  Status Aggregate(const Aggregation::Array& array, Interrupt* interrupt = nullptr);
  // Sends parts of this worker's arrays to other workers, and receives parts of theirs.
  Status Move(const Transfer::Call& call, Interrupt* interrupt = nullptr);
  // Saves all tables or one table. A save in the background ends in SaveWait, the next Save or
  // Load, or Close, which return the save's failure.
  Status Save(const AgreedCall& request, Interrupt* interrupt = nullptr);
  Status SaveWait(Interrupt* interrupt = nullptr);
  // Returns whether a save is in progress in the background.
  bool IsSaving() const { return checkpointing_.job != nullptr; }
  // Returns the checkpoint's step, or -1 without a checkpoint.
  Result<int64_t> Load(const AgreedCall& request, Interrupt* interrupt = nullptr);
  // Shows readers the tables as they are, as that step. Returns the number of the publication.
  Result<int64_t> Publish(int64_t step, Interrupt* interrupt = nullptr);
  // Asks whether all ranks leave now, after one was told to end (SessionState::AnnounceLeaving), at
  // the end of a step, before this rank closes, or after its program has failed: `when` is an
  // MV_AT_ of the C API. Returns an MV_LEAVE_. Sets *step to the smallest step of the ranks that do
  // not close, or of all ranks if all close. A step of -1 means that a rank has none.
  Result<int32_t> AgreeToLeave(int when, int64_t* step, Interrupt* interrupt = nullptr);
  // Ends the session, or in an elastic session this rank's part in it, for which it does not wait.
  // Whatever the result, this rank cannot use the session afterwards.
  Status Close(Interrupt* interrupt = nullptr);

  // ---- Calls of this rank alone
  // Maps the tables that an elastic session had when this rank joined, so that they exist as long
  // as this rank, even if the ranks that created them end before this rank calls CreateTable.
  void FindEarlierTables();
  // Says that this worker of an elastic session was told to end, and has made its last add.
  void SayThatItLeaves() { context_->memory()->own_slot().leaves.store(1); }
  // Returns, after SayThatItLeaves, whether this worker is the last: true for exactly one of the
  // workers that leave if none remains. No rank joins afterwards.
  bool IsLastToLeave();
  // Ends this worker's part in the rounds of all tables.
  void Finish();
  // Leaves without waiting for other ranks.
  void Leave(const std::string& reason);

  // Keeps the table until ReleaseTable or the end of the session.
  Table* KeepTable(std::shared_ptr<Table> table);
  void ReleaseTable(Table* table);

 private:
  // Returns the result of a call that read what other workers had written to memory of the session.
  // They may have begun to overwrite it if the session has ended, or has excluded this rank.
  Status Completed(const Status& result) const;
  // Tells each table that this rank next enters a collective call of all ranks, a sync point. The
  // returned check compares all workers' calls when all ranks have entered the call.
  SyncPointCheck ReachSyncPoint(CollectiveKind call);
  // Runs the barrier with which a collective call begins, and checks the sync point.
  Status AwaitAll(CollectiveKind call, const WaitLimit& limit);
  // Waits for all ranks to close, and completes the rounds and the save in progress.
  Status SettleBeforeClose(bool* save_failed, const WaitLimit& limit);
  // Ends the use of the files of tables, when no rank uses the tables any more.
  Status EndUseOfFiles(bool after_error, const WaitLimit& limit);
  // Returns the limit of a collective call, whose interrupt aborts or leaves the session.
  WaitLimit LimitOf(Instant deadline, Interrupt* interrupt);
  Tables TablesHere();
  // Returns the deadline of a call that writes or reads all tables.
  Instant NextDiskDeadline();

  SessionOptions options_;
  std::atomic<std::chrono::milliseconds> timeout_;  // of a call of this rank that starts now
  std::unique_ptr<Transport> transport_;
  Membership members_;
  std::unique_ptr<RankContext> context_;
  std::unique_ptr<NodeService> service_;  // destroyed before context_, which it uses
  std::unique_ptr<Heartbeat> heartbeat_;
  int64_t next_table_ = 0;
  bool has_init_value_ = false;  // whether the program gave values for the last table
  uint64_t unused_since_ = 0;    // the number of the call that created that table, or 0
  std::mutex tables_mutex_;
  std::vector<std::shared_ptr<Table>> tables_;
  std::vector<std::shared_ptr<TableShard>> on_disk_;  // also those that have been released
  std::map<int64_t, Segment> earlier_tables_;         // those that this rank has not created yet
  bool has_finished_ = false;                         // guarded by tables_mutex_
  // What the calls on released tables count for at a sync point, and at the last one (Close).
  SyncPointArrival released_;
  SyncPointArrival released_at_close_;
  AggregationState aggregation_;
  Checkpointing checkpointing_;
};

}  // namespace multiverso
