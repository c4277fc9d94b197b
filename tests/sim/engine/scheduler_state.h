// The state of a simulation, which scheduler.cc, ranks.cc and simulation.cc share.
#pragma once

#include <stdio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/simulator.h"

namespace sim {

inline constexpr int64_t kTimeUnits = 64;  // per nanosecond
// When the clock starts, so that times before it are positive, too.
inline constexpr int64_t kEpoch = int64_t{1000} * 1000000000;

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
  bool is_suspended;  // it was ready, so this is not the end of a wait of its own

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
inline constexpr const Seam* kSeams[] = {&kFiles, &kMemory, &kSockets};
extern Scheduler* scheduler;  // null outside of Start and Finish

// Adds a value to the hash.
void Mix(uint64_t value);
// Returns a random number below `limit`.
uint64_t Below(uint64_t limit);
// Adds the points since the last call to the counts.
void Settle();
// Lets the current fiber pass points up to the next at which something may happen.
void Grant();
// Makes the clock show at least that time.
void SetTime(int64_t ns);
void AddReady(Fiber* fiber);
// Makes the fiber wait for nothing.
void RemoveWaiter(Fiber* fiber);
// Chooses the next fiber. Returns null if there is none, or if the deadline has passed.
Fiber* Choose();
// Switches to a fiber, and returns when another switch continues this one.
void Continue(Fiber* next);
// Continues another fiber, or main if there is nothing left to do. The current one is ready, waits,
// or has ended.
void Dispatch();
// Lets another fiber continue, while the current one is ready.
void SwitchAway();

// Returns the rank of that number, which need not exist before, or that of the world for -1.
Rank* RankOf(int number);
// Kills a rank, or suspends it. If it is the current one, the caller then leaves the fiber.
void Die(Rank* rank);
void Suspend(Rank* rank, int64_t ns);
void EndProcess(Rank* rank);
// Continues others after the end of the current fiber.
[[noreturn]] void Leave();

}  // namespace sim
