// ShardService: answers the requests of other nodes for this node's rows, by calling the very same
// operations of the shard that the ranks of this node call.
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
#include "table/chunk_source.h"
#include "table/request.h"
#include "transport/messenger.h"

namespace multiverso {

class Table;

// Thread-safe. Works in whichever thread polls: a service thread, or one that waits.
class ShardService {
 public:
  // The group outlives the service.
  explicit ShardService(RankContext* group);
  ~ShardService();

  // Serves the table from now on, until all ranks of all nodes have released it.
  void Keep(std::shared_ptr<Table> table);
  // Its creation has failed.
  void Forget(int64_t table);
  // This rank has released it.
  void Release(Table* table);

  // Takes requests in and goes on with those at hand. True if there was something to do. If
  // another thread is at it, returns at once.
  bool Poll();

  // Messages move on only while somebody polls: with some under way it pays to do so for longer
  // than it takes the network to fill and empty its buffers.
  static constexpr std::chrono::microseconds kUnderWay{1000};
  // Whether requests are at hand.
  bool IsBusy() const { return busy_.load(std::memory_order_relaxed); }

  // Tables served, for tests.
  size_t tables() const;

 private:
  // How many requests are at hand at a time; others wait at the transport.
  static constexpr size_t kMostJobs = 16;

  struct Job {
    enum class Phase { kReceive, kWork, kReply };

    RequestHeader header;
    Phase phase = Phase::kReceive;
    bool is_claimed = false;   // it is this rank's, to be made once
    bool is_of_shard = false;  // the chunk has been checked and counts from the shard's first row
    std::shared_ptr<Table> table;
    Status failure;
    // Row ids, then values.
    std::vector<char>* buffer = nullptr;
    Messenger::Ticket receives[2];
    int64_t received = 0;
    Chunk chunk;
    Progress progress;
    std::string reply;
    Messenger::Ticket sends[2];
  };

  std::shared_ptr<Table> Find(int64_t id) const;
  Status TakeRequests(bool* any);
  Status Begin(const RequestHeader& header);
  Status ReceiveValues(Job* job);
  // Ok when the job is over.
  Status GoOn(Job* job, bool* any);
  Status Work(Job* job);
  Status Operate(Job* job);
  // Ok if the job is to be carried out now; else done, broken, or pending while another rank of the
  // node is at it.
  Status Claim(Job* job, bool* done);
  Status SendReply(Job* job);
  // Whether an earlier request of the same call has not been answered yet.
  bool HasPredecessor(const std::list<Job>::iterator& job);
  // The failure of one does not end the wait for the other.
  Status TestAll(Messenger::Ticket* tickets, Job* job, bool* done);
  // Drops the jobs of ranks that are not there any more, and tables that nobody uses.
  void CleanUp();
  // Gives up a job whose sender has gone.
  void Abandon(Job* job);

  RankContext* group_;
  Messenger* messenger_;
  mutable std::mutex tables_mutex_;
  std::map<int64_t, std::shared_ptr<Table>> tables_;
  std::mutex polling_;
  std::list<Job> jobs_;  // in the order in which they came; stay put
  std::vector<std::unique_ptr<std::vector<char>>> buffers_;
  std::vector<std::vector<char>*> free_buffers_;
  std::atomic<bool> busy_{false};  // jobs_ is not empty
  Instant cleaned_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_SHARD_SERVICE_H_
