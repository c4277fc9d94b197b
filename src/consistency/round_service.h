// RoundService: the background work of a node's leader for rounds. It sums its workers' deltas with
// those of other nodes, applies the totals, and exchanges worker clocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status.h"
#include "consistency/clock_exchange.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"
#include "memory/futex.h"
#include "sum/piece_link.h"
#include "transport/deferred_failure.h"

namespace multiverso {

// Thread-safe. The work runs in the thread that calls Poll, and only on the leader of a node.
class RoundService {
 public:
  // The longest sleep while a worker of this node waits for a message of another node.
  static constexpr std::chrono::microseconds kMaxAwaitingSleep{2000};

  // The polls of rounds, for which the caller waits, for each one of other work.
  static constexpr int kPollsOfRounds = 8;

  // `context` must outlive the service. `poll_others` does the other work of the service thread,
  // and returns whether there was any.
  RoundService(RankContext* context, std::function<bool()> poll_others);

  // Takes part in the table's rounds until all ranks of all nodes have released the table.
  void Serve(int64_t table, std::shared_ptr<NodeRounds> rounds);
  // Forgets a table whose creation failed.
  void Forget(int64_t table);

  // Copies the delta that the caller of an add_get has lent, and sums the copy from now on.
  void StageLent(StagedAdd* add, char* to, int64_t bytes);

  // Makes progress. Returns whether there was work. Returns false if another thread is polling.
  bool Poll();
  // Does the work of the service thread, which naps meanwhile, until done() or `until`. Returns
  // done(). Call this on the leader: a waiting thread that works saves context switches, and two
  // threads that poll would take the core from each other.
  template <class Done>
  bool WorkUntil(Done done, Instant until);
  // Returns whether a thread is in WorkUntil.
  bool HasCallers() const { return callers_.load(std::memory_order_relaxed) != 0; }
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
  std::function<bool()> poll_others_;
  std::atomic<int> callers_{0};
  bool is_leader_;
  std::mutex mutex_;
  PieceLink link_;
  RoundsByTable rounds_by_table_;
  ClockExchange clock_exchange_;
  Instant cleaned_up_at_{};
  DeferredFailure failure_;
  std::atomic<bool> is_awaiting_{false};
};

template <class Done>
bool RoundService::WorkUntil(Done done, Instant until) {
  NodeControl* const control = context_->memory()->control();
  callers_.fetch_add(1, std::memory_order_relaxed);
  Backoff backoff(kMaxAwaitingSleep);
  bool is_done = done();
  for (int polls = 0; !is_done;) {
    const uint32_t rings = control->bell.load();
    const bool has_worked = Poll();
    is_done = done();
    const Instant now = Clock::now();
    if (is_done || now >= until) break;
    const auto nap = backoff.Next(now);
    if (has_worked || (++polls % kPollsOfRounds == 0 && poll_others_())) {
      backoff.Reset();
      continue;
    }
    if (nap.count() == 0) {
      YieldCore();
      continue;
    }
    const auto is_woken = [&] { return control->bell.load() != rings; };
    const Instant end = std::min<Instant>(until, now + nap);
    if (SleepUntil(&control->bell, &control->bell_sleepers, end, is_woken)) backoff.Reset();
  }
  callers_.fetch_sub(1, std::memory_order_relaxed);
  return is_done;
}

}  // namespace multiverso
