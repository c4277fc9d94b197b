// A deterministic simulator: all threads of a program become fibers of one thread, and a seeded
// scheduler chooses at each point which one continues. The clock is virtual.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace sim {

struct Options {
  uint64_t seed = 1;
  int mean_run = 20;          // points between two switches, on average
  int64_t point_ns = 40;      // virtual time of a point
  int64_t net_min_ns = 5000;  // latency of messages
  int64_t net_max_ns = 300000;
  bool writes_are_points = false;
  int64_t deadline_ns = int64_t{600} * 1000000000;
  uint64_t max_points = 3000000000u;
  const char* trace = nullptr;  // a file for each switch
};

void Start(const Options& options);
// Runs until all fibers that Spawn made have ended or are dead. Returns false after the deadline,
// or if no fiber can run.
bool Run();
void Finish();
int Spawn(int rank, std::function<void()> body);

int64_t Now();
int64_t StartOfTime();  // what Now returned at the start
uint64_t Random();
uint64_t Points();    // points passed
uint64_t Switches();  // switches done
uint64_t Hash();
uint64_t PointsOf(int rank);
std::string Why();  // why Run returned false, with the stacks of all fibers
int CurrentRank();
int64_t Latency();

void AddRank(int rank);                         // grows the tables of ranks
void KillAt(int rank, uint64_t point_of_rank);  // when the rank has passed that many points
void SuspendAt(int rank, uint64_t point_of_rank, int64_t ns);
void KillNow(int rank);  // not the current rank
bool IsDead(int rank);
int64_t DiedAt(int rank);
void OnDeath(std::function<void(int)> call);
void OnSuspend(std::function<void(int, int64_t)> call);  // the rank, and for how long
// While such a section is open, the rank is not killed: it is inside the simulated world.
void EnterWorld();
void LeaveWorld();
void Yield();
void SleepUntil(int64_t when);
struct World {
  World() { EnterWorld(); }
  ~World() { LeaveWorld(); }
};

// While it lives, nothing is a point. Do not block.
extern int quiet;
struct Quiet {
  Quiet() { ++quiet; }
  ~Quiet() { --quiet; }
};
void Cost(int64_t points);  // passes a point that takes as long as that many

struct Stats {
  uint64_t futex_waits = 0, futex_timeouts = 0, futex_wakes = 0, polls = 0, sleeps = 0, yields = 0;
  uint64_t locks = 0, blocked_locks = 0, connects = 0, socket_sends = 0, threads = 0;
};
extern Stats stats;

}  // namespace sim
