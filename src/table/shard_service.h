// ShardService: answers the requests of other nodes for this node's rows, on the same shards that
// the ranks of this node operate on.
#ifndef MULTIVERSO_TABLE_SHARD_SERVICE_H_
#define MULTIVERSO_TABLE_SHARD_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "memory/buffer_pool.h"
#include "shard/shard.h"
#include "table/late_answers.h"
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
  static constexpr size_t kMostJobs = 16;

  struct Job {
    enum class Phase { kReceive, kWork, kReply };

    RequestHeader header;
    Phase phase = Phase::kReceive;
    bool is_claimed = false;    // by this rank, in the RequestLog
    bool is_continued = false;  // a lost rank has made a part of the change
    std::shared_ptr<TableShard> table;
    Status failure;
    // The row ids, the values as they travel, and room for as many more.
    BufferPool::Buffer buffer;
    Messenger::Ticket receives[2];
    int64_t received = 0;
    Request request;  // refers to the buffer
    Progress progress;
    bool fits = true;  // the format of the answer can represent the values
    std::string reply;
    Messenger::Ticket sends[2];
  };

  std::shared_ptr<TableShard> Find(int64_t id) const;
  Status TakeRequests(bool* did_work);
  // Sets job->failure if the call has ended, so that its values may have changed meanwhile.
  Status CheckHasNotEnded(Job* job);
  // `payload` has header.inline_bytes().
  Status Begin(const RequestHeader& header, const char* payload);
  Status ReceiveValues(Job* job, const char* payload);
  // Makes room in the job's buffer for that many bytes of values after the row ids and, if values
  // are encoded, once more.
  void PlaceValues(Job* job, int64_t bytes);
  // Returns where the second values are.
  static char* SecondValuesOf(const Job& job);
  // Whether the shard encodes and decodes the values. Those of rows are decoded before and encoded
  // after the shard runs the request.
  static bool IsEncodedRange(const RequestHeader& header);
  void DecodeRows(Job* job);
  // Returns the bytes of the values to send, and sets *values to their address.
  int64_t EncodeReply(const Job& job, const char** values);
  void CountEncoding(const Job& job, Instant began);
  // Returns whether the job needs more rounds of sync mode than have been applied.
  static bool WaitsForRound(const Job& job);
  // Takes up jobs whose rounds have been applied.
  void ResumeWaiting();
  // Continues the job, and returns ok when the job is over.
  Status Continue(const std::list<Job>::iterator& job, bool* did_work);
  // Sets job->failure if the received message is incomplete or names rows of other nodes.
  void CheckValues(Job* job);
  Status ClaimAndRun(Job* job);
  Status Run(Job* job);
  Status RunOnShard(Job* job);
  // Claims a numbered change in the RequestLog, so that one rank of the node applies it. Returns ok
  // if this rank may run or continue the job, or if *done says that a rank has run it, and pending
  // while another rank runs it.
  Status Claim(Job* job, bool* done);
  Status SendReply(Job* job);
  // Returns whether an earlier request of the same call is unanswered.
  bool HasEarlierRequest(const std::list<Job>::iterator& job);
  // Tests two messages. The failure of one message does not end the wait for the other.
  Status TestAll(Messenger::Ticket* tickets, Job* job, bool* done);
  // Drops the jobs of ranks that are lost or closed, and tables that all ranks have released.
  void CleanUp();
  // Releases, or leaks, the memory of a job that will not be answered.
  void Abandon(Job* job);

  RankContext* rank_context_;
  Messenger* messenger_;
  BufferPool buffers_;
  LateAnswers late_answers_;
  mutable std::mutex tables_mutex_;
  std::map<int64_t, std::shared_ptr<TableShard>> tables_;
  std::mutex polling_mutex_;
  std::deque<EndedCall> ended_;  // the last calls that ended before their values were sent
  std::list<Job> jobs_;          // in order of arrival; a list, since messages point into jobs
  // The jobs that wait for a round. They are not in jobs_, because a round may need requests that
  // arrive later.
  std::list<Job> waiting_;
  std::atomic<bool> busy_{false};  // whether jobs_ or waiting_ has jobs
  Instant last_clean_up_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_SHARD_SERVICE_H_
