// ShardService: answers the requests of other nodes for this node's rows, on the same shards that
// the ranks of this node operate on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "memory/buffer_pool.h"
#include "remote/late_answers.h"
#include "remote/served_request.h"
#include "table/request_message.h"
#include "table/table_shard.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe. The service works in the thread that polls: a service thread, or a waiting caller.
class ShardService {
 public:
  // `rank_context` outlives the service.
  explicit ShardService(RankContext* rank_context);
  ~ShardService();

  // Serves the table until all ranks of all nodes have released the table.
  void Keep(std::shared_ptr<TableShard> table);
  // Drops a table whose creation has failed.
  void Forget(int64_t table);
  // Records that this rank has released the table. The node's last rank informs the other nodes.
  void Release(const TableShard& table);

  // Accepts requests and continues accepted requests. Returns whether there was work, and false at
  // once if another thread is polling.
  bool Poll();

  // The time for which a thread with messages in flight polls before it first sleeps. Messages make
  // progress only while a thread polls, so this time exceeds what emptying network buffers takes.
  static constexpr std::chrono::microseconds kEagerWhenBusy{1000};
  // Returns whether accepted requests are unfinished.
  bool IsBusy() const { return busy_.load(std::memory_order_relaxed); }

  // Returns the memory of messages, which calls use, too.
  BufferPool* buffers() { return &buffers_; }
  LateAnswers* late_answers() { return &late_answers_; }

  // Returns the number of tables that are served; only tests need it.
  size_t num_tables() const;

 private:
  // The most requests in work, which bounds the memory of their values. Further requests wait at
  // the transport, or in waiting_.
#if defined(MULTIVERSO_SIMULATION)
  // The few requests of a simulated job exceed it, too.
  static constexpr size_t kMostJobs = 2;
#else
  static constexpr size_t kMostJobs = 16;
#endif

  std::shared_ptr<TableShard> Find(int64_t id) const;
  Status TakeRequests(bool* did_work);
  // Fails the job if its sender counts as lost, or if its call may have ended, also because this
  // rank counts as lost, so that its values may have changed meanwhile.
  Status CheckStillCounts(ServedRequest* job);
  // `payload` has header.inline_bytes().
  Status Begin(const RequestHeader& header, const char* payload);
  // Takes up jobs whose rounds have been applied.
  void ResumeWaiting();
  // Continues the job, and returns ok when the job is over.
  Status Continue(const std::list<ServedRequest>::iterator& job, bool* did_work);
  // Returns whether the job belongs in waiting_. Those behind a job there would fill jobs_, so that
  // it could not be taken up again.
  bool MustWait(const ServedRequest& job) const;
  // Drops the jobs of ranks that are lost or closed, and tables that all ranks have released.
  void CleanUp();

  RankContext* rank_context_;
  Messenger* messenger_;
  BufferPool buffers_;
  LateAnswers late_answers_;
  mutable std::mutex tables_mutex_;
  std::map<int64_t, std::shared_ptr<TableShard>> tables_;
  std::mutex polling_mutex_;
  std::deque<EndedCall> ended_;    // the last calls that ended before their values were sent
  uint64_t num_requests_ = 0;      // that have arrived
  std::list<ServedRequest> jobs_;  // a list, since messages point into jobs
  // The jobs that wait for a round. They are not in jobs_, because a round may need requests that
  // arrive later.
  std::list<ServedRequest> waiting_;
  std::atomic<bool> busy_{false};  // whether jobs_ or waiting_ has jobs
  Instant last_clean_up_{};
};

}  // namespace multiverso
