// ShardService: answers the requests of other nodes for this node's rows, on the same shards that
// the ranks of this node operate on.
#ifndef MULTIVERSO_TABLE_SHARD_SERVICE_H_
#define MULTIVERSO_TABLE_SHARD_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "shard/shard.h"
#include "table/request_message.h"
#include "table/table_shard.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe. Works in whichever thread polls: a service thread, or one that waits.
class ShardService {
 public:
  // The group outlives the service.
  explicit ShardService(RankContext* rank_context);
  ~ShardService();

  // Serves the table until all ranks of all nodes have released it.
  void Keep(std::shared_ptr<TableShard> table);
  // The creation of the table has failed.
  void Forget(int64_t table);
  // This rank has released the table.
  void Release(const TableShard& table);

  // Accepts requests and continues those accepted. True if there was something to do. Returns at
  // once if another thread is polling.
  bool Poll();

  // How long a thread with messages in flight polls before it sleeps. Messages make progress only
  // while a thread polls, and this is longer than the network takes to fill and empty its buffers.
  static constexpr std::chrono::microseconds kEagerWhenBusy{1000};
  // Whether accepted requests are unfinished.
  bool IsBusy() const { return busy_.load(std::memory_order_relaxed); }

  // Tables served, for tests.
  size_t tables() const;

 private:
  // Further requests wait at the transport.
  static constexpr size_t kMostJobs = 16;

  struct Job {
    enum class Phase { kReceive, kWork, kReply };

    RequestHeader header;
    Phase phase = Phase::kReceive;
    bool is_claimed = false;  // in the RequestLog, by this rank
    std::shared_ptr<TableShard> table;
    Status failure;
    // Row ids, then values.
    std::vector<char>* buffer = nullptr;
    Messenger::Ticket receives[2];
    int64_t received = 0;
    Request request;  // refers to the buffer
    Progress progress;
    std::string reply;
    Messenger::Ticket sends[2];
  };

  std::shared_ptr<TableShard> Find(int64_t id) const;
  Status TakeRequests(bool* any);
  Status Begin(const RequestHeader& header);
  Status ReceiveValues(Job* job);
  // Returns ok when the job is over.
  Status Continue(Job* job, bool* any);
  // Checks the received message.
  void CheckValues(Job* job);
  Status Work(Job* job);
  Status Run(Job* job);
  // Returns ok if this rank runs the job now or *done says that it has been run. Returns pending
  // while another rank of the node runs it, and an error if one died in the middle.
  Status Claim(Job* job, bool* done);
  Status SendReply(Job* job);
  // Whether an earlier request of the same call is unanswered.
  bool HasPredecessor(const std::list<Job>::iterator& job);
  // The failure of one does not end the wait for the other.
  Status TestAll(Messenger::Ticket* tickets, Job* job, bool* done);
  // Drops the jobs of ranks that are lost or closed, and tables that all ranks have released.
  void CleanUp();
  // Releases the buffer of a job that will not be answered.
  void Abandon(Job* job);

  RankContext* rank_context_;
  Messenger* messenger_;
  mutable std::mutex tables_mutex_;
  std::map<int64_t, std::shared_ptr<TableShard>> tables_;
  std::mutex polling_;
  std::list<Job> jobs_;  // in order of arrival; messages point into them
  std::vector<std::unique_ptr<std::vector<char>>> buffers_;
  std::vector<std::vector<char>*> free_buffers_;
  std::atomic<bool> busy_{false};  // jobs_ is not empty
  Instant cleaned_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_SHARD_SERVICE_H_
