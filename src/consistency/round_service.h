// RoundService: what the leader of a node does for its workers beside their own calls: it sums
// their rounds with those of other nodes, and tells and hears how far workers are.
#ifndef MULTIVERSO_CONSISTENCY_ROUND_SERVICE_H_
#define MULTIVERSO_CONSISTENCY_ROUND_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/clock_exchange.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"
#include "transport/deferred_failure.h"

namespace multiverso {

// Thread-safe. Works in whichever thread polls. On ranks that lead no node it does nothing.
class RoundService {
 public:
  // The group outlives the service.
  explicit RoundService(RankContext* group);
  ~RoundService();

  // Takes part in the table's rounds from now on, until all ranks of all nodes have released it.
  void Keep(int64_t table, std::shared_ptr<NodeRounds> rounds);
  // Its creation has failed.
  void Forget(int64_t table);

  // Goes on. True if there was something to do. If another thread is at it, returns at once.
  bool Poll();
  // Whether something that is waited for may come any moment.
  bool Awaits() const { return awaits_.load(std::memory_order_relaxed); }

  // Waits until all that the workers have added has been applied and passed on, and nothing that
  // leaders write to each other is under way. To be called when all ranks have met for the end.
  Status Settle(const WaitLimit& limit);

 private:
  Status PollAll(bool* any);
  // Without its leader this node has no rounds: after a failure whoever waits is told.
  void AbortIf(const Status& status);
  void CleanUp();
  bool IsSettled();

  RankContext* group_;
  bool leads_;
  std::mutex mutex_;
  RoundsByTable tables_;
  ClockExchange clocks_;
  Instant cleaned_{};
  DeferredFailure failure_;
  std::atomic<bool> awaits_{false};
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_ROUND_SERVICE_H_
