// WorkerWait: how a worker waits for other workers of a table, in sync mode and with bounded
// staleness.
//
// A worker that has to wait sleeps on a word that every other worker changes when it advances. The
// sleeping worker checks periodically whether the workers that it waits for can still make their
// calls. If one of them is lost or waits in another collective call, the wait fails with an error
// that names that worker.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/worker_clocks.h"
#include "group/peer_watch.h"

namespace multiverso {

// What a waiting worker needs from another worker.
enum class Need {
  kNothing,
  kCall,  // a call that the other worker has not made; it must be alive and in no collective call
  kWork,  // work that the other worker may be doing; it must be alive
};

// Used by one thread.
class WorkerWait {
 public:
  // The clocks outlive the object.
  explicit WorkerWait(WorkerClocks* clocks)
      : clocks_(clocks),
        context_(clocks->context()),
        watch_(&context_->members(), context_->peers(), context_->state()) {}

  // Makes every wait fail if that rank, which is no worker but does a part of the rounds, is lost.
  void AlsoNeeds(int rank) { also_needed_.push_back(rank); }

  // Returns the error if the session was aborted or this rank excluded.
  Status CheckRunning() { return context_->state()->CheckRunning(/*was_waiting=*/false); }
  // Waits until this worker may make two more ticks: until the others can still compare them.
  Status AwaitTicks(const char* call, const WaitLimit& limit);
  // Waits until has_called(worker) returns true for all other workers.
  template <class HasCalled>
  Status AwaitCalls(const char* call, const WaitLimit& limit, HasCalled has_called);
  // Waits until done() returns true. need_of(worker) returns what the wait needs from that worker.
  // A thread that has work meanwhile does not sleep: work(until) returns done().
  template <class Done, class NeedOf>
  Status Await(const char* call, const WaitLimit& limit, Done done, NeedOf need_of,
               const std::function<bool(Instant)>& work = nullptr);

 private:
  // The workers that are needed, and why they may not come.
  struct Awaited;

  // Returns an error if the wait is over: because of the other workers, the session or the limit.
  Status Check(const char* call, const WaitLimit& limit, const std::function<Need(int)>& need_of);
  // Looks at what each worker is doing. Returns an error if one is silent.
  Status Look(const char* call, const std::function<Need(int)>& need_of, Awaited* awaited);
  // Returns whether messages sent before the abort, which can overtake them, may still arrive.
  bool EarlierMessagesMayArrive();

  WorkerClocks* clocks_;
  RankContext* context_;
  std::vector<int> also_needed_;
  PeerWatch watch_;  // of the current wait
  // Whether the session was aborted when the wait began.
  bool aborted_before_ = false;
  std::optional<Instant> abort_noticed_;
};

template <class HasCalled>
Status WorkerWait::AwaitCalls(const char* call, const WaitLimit& limit, HasCalled has_called) {
  const auto have_all = [&] {
    for (int i = 0; i < clocks_->workers(); ++i) {
      if (i != clocks_->me() && !has_called(i)) return false;
    }
    return true;
  };
  if (have_all()) return Status::Ok();
  return Await(call, limit, have_all,
               [&](int worker) { return has_called(worker) ? Need::kNothing : Need::kCall; });
}

template <class Done, class NeedOf>
Status WorkerWait::Await(const char* call, const WaitLimit& limit, Done done, NeedOf need_of,
                         const std::function<bool(Instant)>& work) {
  if (work == nullptr && SpinUntil(done, context_->memory()->spin_policy())) return Status::Ok();
  if (work == nullptr) clocks_->WakeLeader();
  watch_.Begin();
  aborted_before_ = context_->state()->IsAborted();
  abort_noticed_.reset();
  for (;;) {
    const Instant now = Clock::now();
    const Instant next_check = limit.NextWake(now);
    const bool is_done = work == nullptr ? clocks_->Sleep(next_check, done) : work(next_check);
    if (is_done) return Status::Ok();
    const Status status = Check(call, limit, need_of);
    // The awaited condition may have become true between the two checks.
    if (!status.ok()) return done() ? Status::Ok() : status;
  }
}

}  // namespace multiverso
