// What the files of the engine share: fibers and ranks, how a seam blocks a fiber and wakes others,
// and what a seam does when a process ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/fiber.h"
#include "engine/scheduler.h"

namespace sim {

// What a fiber waits for: an object of a kind, at an address or at an offset of a file.
enum class Waits : uint64_t { kNothing, kJoin, kMutex, kCondition, kReaders, kOnce, kWord, kFile };
struct Key {
  Waits kind = Waits::kNothing;
  uint64_t object = 0;  // an address, or what names a file
  uint64_t offset = 0;  // in a file

  bool operator==(const Key& other) const {
    return kind == other.kind && object == other.object && offset == other.offset;
  }
};
inline Key KeyOf(Waits kind, const void* object) {
  return Key{kind, reinterpret_cast<uint64_t>(object), 0};
}
inline constexpr int64_t kForever = INT64_MAX;
inline constexpr int kAll = 1 << 30;

struct Rank;

// A store that is not visible yet, and what a fiber has loaded last (reordering.h).
struct Delayed {
  volatile void* address = nullptr;
  uint64_t value = 0;
  int bytes = 0;
  int left = 0;  // atomic operations of the fiber up to the store
};
struct Loaded {
  const volatile void* address = nullptr;
  uint64_t value = 0;
  int bytes = 0;
};

enum class FiberState { kReady, kBlocked, kDone, kDead };
struct Fiber {
  int id = 0;
  Rank* rank = nullptr;
  FiberState state = FiberState::kReady;
  Context context;
  std::function<void()> body;
  bool is_program = false;  // of Spawn, and not of pthread_create
  uint64_t points = 0;      // without those since the last switch
  void* result = nullptr;   // for pthread_join
  const char* what = "";    // for whom it waits, for reports
  Key key;                  // while it waits
  uint64_t ticket = 0;      // of its current sleep, or 0
  int64_t wake_at = kForever;
  bool timed_out = false;
  Delayed delayed;
  Loaded loaded;
  std::vector<std::function<void()>> at_end;  // the destructors of thread_local variables
};

struct Rank {
  int number = -1;
  int machine = 0;
  int programs = 0;  // functions of Spawn that have not returned
  bool is_dead = false, has_ended = false;
  int64_t died_at = -1;
  uint64_t points = 0;  // without those since the last switch
  uint64_t kill_at = UINT64_MAX, suspend_at = UINT64_MAX;
  int64_t suspend_ns = 0, suspended_until = 0;
  int threads_to_refused = 0;  // how many threads start up to the one that does not; 0 for none
  int in_world = 0;
  int64_t refused_mapping = 0;  // the number of the next call of mmap that fails, or 0
  bool must_die = false, must_pause = false;  // as soon as it is outside of the world
  std::vector<Fiber*> fibers;
  std::map<std::string, std::string> variables;
  Holdings left;
};

extern Fiber* current;  // null in main

// What a point reads and writes: some numbers, since there are tens of millions of points a second.
struct PointState {
  int64_t left = 1;     // points up to the next at which something may happen
  int64_t granted = 1;  // what `left` was at its last change
  int64_t time = 0;     // in units of 1/64 ns
  int64_t step = 0;     // the time of a point
  bool counts_writes = false;
};
extern PointState point_state;
// Switches, kills or suspends, if it is time for that.
void StopAtPoint();

// Passes a point in the middle of operations on memory: time passes, and another fiber may
// continue.
inline void PassPointOfMemory() {
  if (quiet > 0) return;
  point_state.time += point_state.step;
  if (--point_state.left <= 0) StopAtPoint();
}
// Begins a call that orders operations on memory (reordering.h).
void OrderMemoryOfCall();
// Passes a point of another call. `cost` is in points.
inline void PassPoint() {
  if (quiet > 0) return;
  OrderMemoryOfCall();
  PassPointOfMemory();
}
inline void PassPoint(int64_t cost) {
  if (quiet > 0) return;
  OrderMemoryOfCall();
  point_state.time += cost * point_state.step;
  if (--point_state.left <= 0) StopAtPoint();
}

Fiber* NewFiber(Rank* rank, std::function<void()> body);
// Returns the rank of that number, or null.
Rank* FindRank(int number);
const std::vector<Rank*>& AllRanks();
const Options& CurrentOptions();
// Ends the process of the fiber that runs, which never returns.
[[noreturn]] void ExitCurrent();

// Blocks the current fiber until Wake finds it, at most until `until`. Returns true after that
// time.
bool Block(const Key& key, int64_t until, const char* what);
// Wakes up to `count` random fibers that wait for `key`. Returns how many.
int Wake(const Key& key, int count);
// Wakes a fiber that waits for anything, whose Block returns false.
void WakeFiber(Fiber* fiber);
// Ends the program with a sentence: the simulation cannot go on.
[[noreturn]] void GiveUp(const std::string& why);

inline bool IsInFiber() { return current != nullptr; }

// What a file of seams does when a simulation starts, and when a process ends.
struct Seam {
  void (*start)();            // forgets the simulation before
  void (*release)(int rank);  // gives back what that process holds
  void (*count)(int rank, Holdings* held);
  void (*finish)() = nullptr;  // if there is something to do at the simulation's end
};
extern const Seam kFiles, kMemory, kSockets;

}  // namespace sim
