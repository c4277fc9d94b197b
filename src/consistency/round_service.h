// RoundService: the background work of a node's leader for rounds. It sums its workers' deltas with
// those of other nodes, applies the totals, and exchanges worker clocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/clock_exchange.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"
#include "sum/piece_link.h"
#include "transport/deferred_failure.h"

namespace multiverso {

// Thread-safe. The work runs in the thread that calls Poll, and only on the leader of a node.
class RoundService {
 public:
  // `context` must outlive the service.
  explicit RoundService(RankContext* context);

  // Takes part in the table's rounds until all ranks of all nodes have released the table.
  void Serve(int64_t table, std::shared_ptr<NodeRounds> rounds);
  // Forgets a table whose creation failed.
  void Forget(int64_t table);

  // Makes progress. Returns whether there was work. Returns false if another thread is polling.
  bool Poll();
  // Returns whether a message that a worker waits for may arrive at any moment.
  bool IsAwaitingMessage() const { return is_awaiting_.load(std::memory_order_relaxed); }

  // Waits until all adds have been applied and passed on and no message between leaders is in
  // flight, until an abort, until the deadline, or until the leader of another node is lost. All
  // ranks have joined the closing collective.
  Status Settle(const WaitLimit& limit);

 private:
  Status PollAll(bool* did_work);
  Status PollSums(bool* did_work, bool* is_awaiting);
  // Aborts the session after a failure unless it follows from a loss, which waiting calls report.
  void AbortOnFailure(const Status& status);
  void RemoveReleasedTables();
  bool IsSettled();
  // Returns whether the leader of another node is lost, from which messages may be missing.
  bool HasLostLeader() const;

  RankContext* context_;
  bool is_leader_;
  std::mutex mutex_;
  PieceLink link_;
  RoundsByTable rounds_by_table_;
  ClockExchange clock_exchange_;
  Instant cleaned_up_at_{};
  DeferredFailure failure_;
  std::atomic<bool> is_awaiting_{false};
};

}  // namespace multiverso
