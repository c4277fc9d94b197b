#include "engine/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <queue>
#include <unordered_map>

#include "engine/simulator.h"

namespace sim {
namespace {

constexpr int64_t kTimeUnits = 64;  // per nanosecond
// When the clock starts, so that times before it are positive, too.
constexpr int64_t kEpoch = int64_t{1000} * 1000000000;

struct KeyHash {
  size_t operator()(const Key& key) const {
    const uint64_t mixed =
        (key.object ^ static_cast<uint64_t>(key.kind) << 56) * 0x9e3779b97f4a7c15u ^ key.offset;
    return mixed ^ mixed >> 29;
  }
};

// A fiber that wakes up at a time. It stays in the queue if the fiber is woken before, and is then
// known by its ticket.
struct Sleeper {
  int64_t when;
  uint64_t order;
  Fiber* fiber;
  uint64_t ticket;

  bool operator<(const Sleeper& other) const {
    return when != other.when ? when > other.when : order > other.order;
  }
};

struct Scheduler {
  Options options;
  uint64_t random = 0;  // the state of the generator
  std::deque<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> ready;
  std::priority_queue<Sleeper> sleepers;
  std::unordered_map<Key, std::vector<Fiber*>, KeyHash> waiters;
  std::vector<Rank*> ranks;  // by number; null where there is none
  Rank world;                // for fibers of no rank
  uint64_t points = 0, switches = 0, order = 0, tickets = 0, hash = 1469598103934665603u;
  int64_t countdown = 1;      // points up to the next switch
  int alive = 0;              // fibers that are ready or blocked
  Fiber* finished = nullptr;  // whose stack can be used again once another one is in use
  Context main;
  std::string why;
  bool has_failed = false;
  std::function<void(int)> on_death;
  std::function<void(int, int64_t)> on_suspend;
  FILE* trace = nullptr;
};
Scheduler* scheduler = nullptr;

constexpr const Seam* kSeams[] = {&kFiles, &kMemory, &kSockets};

void Mix(uint64_t value) { scheduler->hash = (scheduler->hash ^ value) * 1099511628211u; }

// Returns a random number below `limit`.
uint64_t Below(uint64_t limit) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(Random()) * limit) >> 64);
}

// ---- Points
// --------------------------------------------------------------------------------------

// Adds the points since the last call to the counts.
void Settle() {
  const int64_t passed = point_state.granted - point_state.left;
  point_state.granted = point_state.left;
  scheduler->points += static_cast<uint64_t>(passed);
  scheduler->countdown -= passed;
  if (current != nullptr) current->rank->points += static_cast<uint64_t>(passed);
}

// Lets the current fiber pass points up to the next at which something may happen.
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

// Fibers that are ready share the cores, so that time passes more slowly for each point.
void SetStep() {
  const auto running = static_cast<int64_t>(scheduler->ready.size()) + 1;
  point_state.step = scheduler->options.point_ns * kTimeUnits / running;
}

void SetTime(int64_t ns) { point_state.time = std::max(point_state.time, ns * kTimeUnits); }

// ---- Waiting
// -------------------------------------------------------------------------------------

void AddReady(Fiber* fiber) {
  fiber->state = FiberState::kReady;
  scheduler->ready.push_back(fiber);
  SetStep();
}

void MakeReady(Fiber* fiber) {
  if (fiber->state != FiberState::kBlocked) return;
  fiber->ticket = 0;
  AddReady(fiber);
}

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

void AddSleeper(Fiber* fiber, int64_t when) {
  fiber->ticket = ++scheduler->tickets;
  scheduler->sleepers.push(Sleeper{when, ++scheduler->order, fiber, fiber->ticket});
}

void WakeSleepers() {
  auto& sleepers = scheduler->sleepers;
  while (!sleepers.empty() && sleepers.top().when <= Now()) {
    const Sleeper top = sleepers.top();
    sleepers.pop();
    if (top.fiber->ticket != top.ticket) continue;
    RemoveWaiter(top.fiber);
    top.fiber->timed_out = true;
    MakeReady(top.fiber);
  }
}

// ---- Switches
// ------------------------------------------------------------------------------------

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

// Chooses the next fiber. Returns null if there is none, or if the deadline has passed.
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
    const bool timed_out = fiber->timed_out;
    AddSleeper(fiber, rank.suspended_until);
    fiber->timed_out = timed_out;
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

// Continues another fiber, or main if there is nothing left to do. The current one is ready, waits,
// or has ended.
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

// ---- Ranks
// ---------------------------------------------------------------------------------------

Rank* RankOf(int number) {
  if (number < 0) return &scheduler->world;
  AddRank(number);
  return scheduler->ranks[static_cast<size_t>(number)];
}

int CountThreads(const Rank& rank) {
  int threads = 0;
  for (const Fiber* fiber : rank.fibers) {
    const bool is_over = fiber->state == FiberState::kDone || fiber->state == FiberState::kDead;
    if (!is_over && !fiber->is_program) ++threads;
  }
  return threads;
}

void EndProcess(Rank* rank) {
  rank->left = HeldBy(rank->number);
  rank->has_ended = true;
  rank->must_die = rank->must_pause = false;
  rank->kill_at = rank->suspend_at = UINT64_MAX;
  for (Fiber* fiber : rank->fibers) {
    if (fiber->state == FiberState::kDone || fiber->state == FiberState::kDead) continue;
    RemoveWaiter(fiber);
    fiber->state = FiberState::kDead;
    fiber->ticket = 0;
    --scheduler->alive;
  }
  auto& ready = scheduler->ready;
  ready.erase(std::remove_if(ready.begin(), ready.end(),
                             [](Fiber* fiber) { return fiber->state == FiberState::kDead; }),
              ready.end());
  for (const Seam* seam : kSeams) seam->release(rank->number);
}

void Die(Rank* rank) {
  if (rank->has_ended) return;
  rank->is_dead = true;
  rank->died_at = Now();
  Mix(0xdead0000u + static_cast<uint64_t>(rank->number));
  EndProcess(rank);
  const Quiet quiet_call;
  if (scheduler->on_death) scheduler->on_death(rank->number);
}

// Continues others after the end of the current fiber.
[[noreturn]] void Leave() {
  Dispatch();
  abort();  // an ended fiber never continues
}

void Suspend(Rank* rank, int64_t ns) {
  rank->must_pause = false;
  rank->suspended_until = Now() + ns;
  const Quiet quiet_call;
  if (scheduler->on_suspend) scheduler->on_suspend(rank->number, ns);
}

// The first function on the stack of each fiber.
void RunFiber() {
  BeginContext();
  try {
    current->body();
    while (!current->at_end.empty()) {
      const auto destroy = std::move(current->at_end.back());
      current->at_end.pop_back();
      destroy();
    }
  } catch (const std::exception& error) {
    GiveUp(std::string("a thread ends with an exception: ") + error.what());
  }
  Fiber* const fiber = current;
  fiber->state = FiberState::kDone;
  --scheduler->alive;
  Wake(KeyOf(Waits::kJoin, fiber), kAll);
  if (fiber->is_program && --fiber->rank->programs == 0 && fiber->rank->number >= 0) {
    EndProcess(fiber->rank);
  }
  Leave();
}

}  // namespace

Stats stats;
int quiet = 1;  // main has no points
Fiber* current = nullptr;
PointState point_state;

// ---- For the files of the engine
// -----------------------------------------------------------------

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

Fiber* NewFiber(Rank* rank, std::function<void()> body) {
  scheduler->fibers.push_back(std::make_unique<Fiber>());
  Fiber* const fiber = scheduler->fibers.back().get();
  fiber->id = static_cast<int>(scheduler->fibers.size()) - 1;
  fiber->rank = rank;
  fiber->body = std::move(body);
  MakeContext(&fiber->context, RunFiber);
  ++scheduler->alive;
  rank->fibers.push_back(fiber);
  AddReady(fiber);
  return fiber;
}

Rank* FindRank(int number) {
  if (scheduler == nullptr || number < 0) return nullptr;
  const auto index = static_cast<size_t>(number);
  return index < scheduler->ranks.size() ? scheduler->ranks[index] : nullptr;
}

const std::vector<Rank*>& AllRanks() { return scheduler->ranks; }

const Options& CurrentOptions() { return scheduler->options; }

bool Block(const Key& key, int64_t until, const char* what) {
  if (quiet > 0) GiveUp(std::string("a call blocks where nothing may block: ") + what);
  Fiber* const fiber = current;
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

void ExitCurrent() {
  Die(current->rank);
  Leave();
}

void GiveUp(const std::string& why) {
  fprintf(stderr, "simulation: %s (rank %d)\n", why.c_str(), CurrentRank());
  abort();
}

// ---- For programs that simulate
// ------------------------------------------------------------------

void Start(const Options& options) {
  PrepareContexts();
  scheduler = new Scheduler;
  // Otherwise the counts of shared pointers would be no atomic operations, and no points.
  __libc_single_threaded = 0;
  scheduler->options = options;
  scheduler->random = options.seed;
  if (options.trace != nullptr) scheduler->trace = fopen(options.trace, "w");
  point_state = PointState();
  point_state.counts_writes = options.writes_are_points;
  SetTime(kEpoch);
  stats = Stats();
  for (const Seam* seam : kSeams) seam->start();
}

bool Run() {
  Fiber* const first = Choose();
  if (first != nullptr) Continue(first);
  return !scheduler->has_failed;
}

void Finish() {
  for (Rank* rank : scheduler->ranks) {
    if (rank != nullptr && !rank->has_ended) EndProcess(rank);
  }
  if (scheduler->trace != nullptr) fclose(scheduler->trace);
  for (const auto& fiber : scheduler->fibers) FreeContext(&fiber->context);
  for (Rank* rank : scheduler->ranks) delete rank;
  delete scheduler;
  scheduler = nullptr;
}

int Spawn(int rank, std::function<void()> body) {
  Rank* const process = RankOf(rank);
  Fiber* const fiber = NewFiber(process, std::move(body));
  fiber->is_program = true;
  ++process->programs;
  return fiber->id;
}

int64_t Now() { return point_state.time / kTimeUnits; }
int64_t StartOfTime() { return kEpoch; }

// The generator is splitmix64.
uint64_t Random() {
  uint64_t mixed = scheduler->random += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

uint64_t Points() {
  Settle();
  return scheduler->points;
}
uint64_t Switches() { return scheduler->switches; }
uint64_t Hash() { return scheduler->hash; }

uint64_t PointsOf(int rank) {
  Settle();
  return RankOf(rank)->points;
}

std::string Why() { return scheduler->why; }

int CurrentRank() { return current == nullptr ? -1 : current->rank->number; }

int64_t Latency() {
  // Most are short, and some are long.
  const Options& options = scheduler->options;
  const auto span = static_cast<uint64_t>(options.net_max_ns - options.net_min_ns + 1);
  return options.net_min_ns + static_cast<int64_t>(Below(Below(8) == 0 ? span : span / 8 + 1));
}

void AddRank(int rank) {
  auto& ranks = scheduler->ranks;
  const auto index = static_cast<size_t>(rank);
  if (ranks.size() <= index) ranks.resize(index + 1, nullptr);
  if (ranks[index] != nullptr) return;
  ranks[index] = new Rank;
  ranks[index]->number = rank;
}

void SetMachine(int rank, int machine) { RankOf(rank)->machine = machine; }

void SetVariable(int rank, const std::string& name, const std::string& value) {
  RankOf(rank)->variables[name] = value;
}

void KillAt(int rank, uint64_t point_of_rank) {
  RankOf(rank)->kill_at = point_of_rank;
  Settle();
  if (current != nullptr) Grant();
}

void SuspendAt(int rank, uint64_t point_of_rank, int64_t ns) {
  RankOf(rank)->suspend_at = point_of_rank;
  RankOf(rank)->suspend_ns = ns;
  Settle();
  if (current != nullptr) Grant();
}

void KillNow(int rank) {
  Rank* const process = RankOf(rank);
  if (process->has_ended) return;
  if (process->in_world > 0) {
    process->must_die = true;
    return;
  }
  Die(process);
  if (current != nullptr && current->rank == process) Leave();
}

void SuspendNow(int rank, int64_t ns) {
  Rank* const process = RankOf(rank);
  if (process->has_ended) return;
  if (process->in_world > 0) {
    process->must_pause = true;
    process->suspend_ns = ns;
    return;
  }
  Suspend(process, ns);
  if (current != nullptr && current->rank == process) SwitchAway();
}

bool IsDead(int rank) { return RankOf(rank)->is_dead; }
bool HasEnded(int rank) { return RankOf(rank)->has_ended; }
int64_t DiedAt(int rank) { return RankOf(rank)->died_at; }
void OnDeath(std::function<void(int)> call) { scheduler->on_death = std::move(call); }
void OnSuspend(std::function<void(int, int64_t)> call) { scheduler->on_suspend = std::move(call); }

Holdings HeldBy(int rank) {
  Holdings held;
  held.threads = CountThreads(*RankOf(rank));
  for (const Seam* seam : kSeams) seam->count(rank, &held);
  return held;
}

Holdings LeftBy(int rank) { return RankOf(rank)->left; }

void EnterWorld() {
  if (current != nullptr) ++current->rank->in_world;
}

void LeaveWorld() {
  if (current == nullptr) return;
  Rank* const rank = current->rank;
  if (--rank->in_world > 0 || (!rank->must_die && !rank->must_pause)) return;
  Settle();
  Grant();
}

void Cost(int64_t points) { PassPoint(points); }

void Yield() {
  if (current != nullptr && quiet == 0) SwitchAway();
}

void SleepUntil(int64_t when) {
  if (current != nullptr && when > Now()) Block(Key(), when, "sleep");
}

}  // namespace sim
