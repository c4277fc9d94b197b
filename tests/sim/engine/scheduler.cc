#include "engine/scheduler.h"

#include <algorithm>

#include "engine/reordering.h"
#include "engine/scheduler_state.h"

namespace sim {

Scheduler* scheduler = nullptr;
void Mix(uint64_t value) { scheduler->hash = (scheduler->hash ^ value) * 1099511628211u; }

uint64_t Below(uint64_t limit) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(Random()) * limit) >> 64);
}

// ---- Points -------------------------------------------------------------------------------------

void Settle() {
  const int64_t passed = point_state.granted - point_state.left;
  point_state.granted = point_state.left;
  scheduler->points += static_cast<uint64_t>(passed);
  scheduler->countdown -= passed;
  if (current == nullptr) return;
  current->points += static_cast<uint64_t>(passed);
  current->rank->points += static_cast<uint64_t>(passed);
}

void Grant() {
  const Rank& rank = *current->rank;
  int64_t left = std::max<int64_t>(scheduler->countdown, 1);
  const uint64_t event = std::min(rank.kill_at, rank.suspend_at);
  if (event != UINT64_MAX) {
    const uint64_t until_event = event > rank.points ? event - rank.points : 1;
    left = static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(left), until_event));
  }
  if ((rank.must_die || rank.must_pause) && rank.in_world == 0) left = 1;
  point_state.left = point_state.granted = left;
}

namespace {

// Fibers that are ready share the cores, so that time passes more slowly for each point.
void SetStep() {
  const auto running = static_cast<int64_t>(scheduler->ready.size()) + 1;
  point_state.step = scheduler->options.point_ns * kTimeUnits / running;
}

}  // namespace

void SetTime(int64_t ns) { point_state.time = std::max(point_state.time, ns * kTimeUnits); }

// ---- Waiting ------------------------------------------------------------------------------------

void AddReady(Fiber* fiber) {
  fiber->state = FiberState::kReady;
  scheduler->ready.push_back(fiber);
  SetStep();
}

namespace {

void MakeReady(Fiber* fiber) {
  if (fiber->state != FiberState::kBlocked) return;
  fiber->ticket = 0;
  AddReady(fiber);
}

}  // namespace

void RemoveWaiter(Fiber* fiber) {
  if (fiber->key.kind == Waits::kNothing) return;
  const auto found = scheduler->waiters.find(fiber->key);
  if (found != scheduler->waiters.end()) {
    std::vector<Fiber*>& list = found->second;
    list.erase(std::remove(list.begin(), list.end(), fiber), list.end());
    if (list.empty()) scheduler->waiters.erase(found);
  }
  fiber->key = Key();
}

namespace {

void AddSleeper(Fiber* fiber, int64_t when, bool is_suspended = false) {
  fiber->ticket = ++scheduler->tickets;
  scheduler->sleepers.push(Sleeper{when, ++scheduler->order, fiber, fiber->ticket, is_suspended});
}

void WakeSleepers() {
  auto& sleepers = scheduler->sleepers;
  while (!sleepers.empty() && sleepers.top().when <= Now()) {
    const Sleeper top = sleepers.top();
    sleepers.pop();
    if (top.fiber->ticket != top.ticket) continue;
    RemoveWaiter(top.fiber);
    if (!top.is_suspended) top.fiber->timed_out = true;
    MakeReady(top.fiber);
  }
}

}  // namespace

// ---- Switches -----------------------------------------------------------------------------------

namespace {

void Fail(const std::string& why) {
  if (scheduler->has_failed) return;
  scheduler->has_failed = true;
  scheduler->why = why + "\n";
  char line[256];
  for (const auto& fiber : scheduler->fibers) {
    if (fiber->state == FiberState::kDone || fiber->state == FiberState::kDead) continue;
    const double left = static_cast<double>(fiber->wake_at - Now()) * 1e-9;
    snprintf(line, sizeof(line), "fiber %d rank %d %s %s wakes in %.6f s\n ", fiber->id,
             fiber->rank->number, fiber->state == FiberState::kReady ? "ready" : "blocked",
             fiber->what, fiber->wake_at == kForever ? -1.0 : left);
    scheduler->why += line;
    void* const frame = fiber.get() == current ? __builtin_frame_address(0) : nullptr;
    for (void* address : ReturnAddresses(fiber->context, frame)) {
      snprintf(line, sizeof(line), " %p", address);
      scheduler->why += line;
    }
    scheduler->why += "\n";
  }
}

}  // namespace

Fiber* Choose() {
  for (;;) {
    WakeSleepers();
    if (Now() - kEpoch > scheduler->options.deadline_ns) return nullptr;
    std::vector<Fiber*>& ready = scheduler->ready;
    if (ready.empty()) {
      if (scheduler->sleepers.empty()) return nullptr;
      SetTime(scheduler->sleepers.top().when);
      continue;
    }
    const size_t chosen = Below(ready.size());
    Fiber* const fiber = ready[chosen];
    ready[chosen] = ready.back();
    ready.pop_back();
    const Rank& rank = *fiber->rank;
    if (rank.suspended_until <= Now() || rank.in_world > 0) return fiber;
    fiber->state = FiberState::kBlocked;
    AddSleeper(fiber, rank.suspended_until, /*is_suspended=*/true);
  }
}

void Continue(Fiber* next) {
  ++scheduler->switches;
  Mix(static_cast<uint64_t>(next->id));
  Mix(static_cast<uint64_t>(Now()));
  if (scheduler->trace != nullptr) {
    fprintf(scheduler->trace, "%llu %lld %d %d %s\n",
            static_cast<unsigned long long>(scheduler->points),
            static_cast<long long>(Now() - kEpoch), next->id, next->rank->number, next->what);
  }
  const auto mean = static_cast<uint64_t>(scheduler->options.mean_run);
  scheduler->countdown = mean <= 1 ? 1 : 1 + static_cast<int64_t>(Below(2 * mean - 1));
  if (scheduler->finished != nullptr) {
    FreeContext(&scheduler->finished->context);
    scheduler->finished = nullptr;
  }
  Fiber* const from = current;
  current = next;
  SetStep();
  Grant();
  if (next == from) return;
  if (from == nullptr) {
    --quiet;
    SwitchContext(&scheduler->main, &next->context, false);
    return;
  }
  const bool ends = from->state == FiberState::kDone || from->state == FiberState::kDead;
  if (from->state == FiberState::kDone) scheduler->finished = from;
  SwitchContext(&from->context, &next->context, ends);
}

void Dispatch() {
  Settle();
  Fiber* const next = scheduler->alive == 0 ? nullptr : Choose();
  if (next != nullptr && scheduler->points < scheduler->options.max_points) {
    Continue(next);
    return;
  }
  if (scheduler->alive > 0) {
    const bool is_late = Now() - kEpoch > scheduler->options.deadline_ns;
    Fail(next != nullptr ? "too many points" : is_late ? "deadline exceeded" : "deadlock");
  }
  Fiber* const from = current;
  current = nullptr;
  ++quiet;
  SwitchContext(&from->context, &scheduler->main, false);
}

void SwitchAway() {
  AddReady(current);
  Dispatch();
}

Stats stats;
int quiet = 1;  // main has no points
Fiber* current = nullptr;
PointState point_state;

// ---- For the files of the engine ----------------------------------------------------------------

void StopAtPoint() {
  Settle();
  Rank* const rank = current->rank;
  if (rank->points >= rank->kill_at) rank->must_die = true;
  if (rank->points >= rank->suspend_at) {
    rank->must_pause = true;
    rank->suspend_at = UINT64_MAX;
  }
  if (rank->must_die && rank->in_world == 0) {
    Die(rank);
    Leave();
  }
  if (rank->must_pause && rank->in_world == 0) {
    Suspend(rank, rank->suspend_ns);
  } else if (scheduler->countdown > 0) {
    Grant();
    return;
  }
  SwitchAway();
}

bool Block(const Key& key, int64_t until, const char* what) {
  if (quiet > 0) GiveUp(std::string("a call blocks where nothing may block: ") + what);
  Fiber* const fiber = current;
  OrderMemory();
  fiber->state = FiberState::kBlocked;
  fiber->key = key;
  fiber->timed_out = false;
  fiber->what = what;
  fiber->wake_at = until;
  fiber->ticket = 0;
  if (key.kind != Waits::kNothing) scheduler->waiters[key].push_back(fiber);
  if (until != kForever) AddSleeper(fiber, until);
  Dispatch();
  fiber->what = "";
  return fiber->timed_out;
}

int Wake(const Key& key, int count) {
  const auto found = scheduler->waiters.find(key);
  if (found == scheduler->waiters.end()) return 0;
  std::vector<Fiber*>& list = found->second;
  int woken = 0;
  for (; woken < count && !list.empty(); ++woken) {
    const size_t chosen = list.size() == 1 ? 0 : Below(list.size());
    Fiber* const fiber = list[chosen];
    list.erase(list.begin() + static_cast<ptrdiff_t>(chosen));
    fiber->key = Key();
    MakeReady(fiber);
  }
  if (list.empty()) scheduler->waiters.erase(found);
  return woken;
}

void WakeFiber(Fiber* fiber) {
  if (fiber->state != FiberState::kBlocked) return;
  RemoveWaiter(fiber);
  MakeReady(fiber);
}

void Cost(int64_t points) { PassPoint(points); }

void Yield() {
  if (current == nullptr || quiet > 0) return;
  // A loop that only yields must let time pass, or no sleep of another fiber would end.
  point_state.time += point_state.step;
  SwitchAway();
}

void SleepUntil(int64_t when) {
  if (current != nullptr && when > Now()) Block(Key(), when, "sleep");
}

}  // namespace sim
