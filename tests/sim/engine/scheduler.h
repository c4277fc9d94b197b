// A deterministic simulator of whole jobs: one program contains all ranks, and every thread of
// every rank is a fiber of one thread of the operating system. A scheduler, whose choices depend on
// a seed alone, says which fiber continues, and the clock is virtual. So a run of a seed can be
// repeated, and a job that waits a minute for a lost rank takes milliseconds.
//
// The library is simulated as it is. Two seams, which it does not know, lead into the engine:
//   - The program defines functions of the C library that block, that read the time or chance, or
//     that tell processes apart, and the linker takes these (threads.cc, clock.cc, processes.cc,
//     files.cc, memory.cc, sockets.cc, system_calls.cc). A function that would block in truth, and
//     that the simulation does not have, ends the program with its name (refused.cc).
//   - The compiler calls a function at each atomic operation, or at each block of code (points.cc).
//
// A *point* is one of these calls. Only at a point may another fiber continue, and only there is a
// rank killed or suspended. A point takes some virtual nanoseconds, which fibers that are ready
// share as cores would. When all fibers sleep, the clock jumps to the next deadline.
//
// A *kill* is what SIGKILL does to a process: its fibers never run again, and no destructor runs.
// Its memory is unmapped, its descriptors are closed, and with them its file locks end. Connections
// end for their other side after a latency. Of its messages in flight, the first ones arrive, up to
// a random one (world/network.h). Words in shared memory stay as they are. Mutexes of static
// variables are different: they belong to all ranks here, but to each process in truth, so no rank
// is killed or suspended while it holds one. The same goes for the initialization of static
// variables.
//
// A *suspension* is what SIGSTOP and SIGCONT do: no fiber of the rank runs for a time, its locks
// stay, and messages and bytes wait for it.
//
// A rank's process ends when all functions that Spawn was given for it have returned. Threads that
// still run are ended like those of a killed rank, and all else is given back alike.
//
// Limits: operations on memory are sequentially consistent, apart from some that seeds may reorder
// (reordering.h). Code between two points is one step. There is no real MPI. The static
// variables of the library are shared by all ranks; its thread_local variables are not (fiber.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace sim {

struct Options {
  uint64_t seed = 1;
  int mean_run = 20;          // points between two switches, on average
  int64_t point_ns = 40;      // virtual time of a point
  int64_t net_min_ns = 5000;  // latency of messages and connections
  int64_t net_max_ns = 300000;
  bool writes_are_points = false;  // stores, and not only atomic operations
  bool may_signal = true;          // whether a process may end another one
  bool reorders = false;           // operations on shared memory, as far as C++ lets them
  int64_t deadline_ns = int64_t{600} * 1000000000;
  uint64_t max_points = 3000000000u;
  const char* trace = nullptr;  // a file that gets a line per switch
  int cores = 4;                // that the ranks believe to have
};

// ---- A simulation -------------------------------------------------------------------------------

void Start(const Options& options);
// Runs until all functions that Spawn was given have returned, or are dead. Returns false after the
// deadline, or if no fiber can ever continue.
bool Run();
// Ends the simulation, and gives back what its ranks still hold.
void Finish();

// Starts a fiber of that rank, also from another fiber. A rank of -1 is no process, but a part of
// the world, which is never killed. Returns the fiber's number.
int Spawn(int rank, std::function<void()> body);

int64_t Now();          // virtual nanoseconds
int64_t StartOfTime();  // what Now returns at the start
uint64_t Random();
uint64_t Points();    // passed so far
uint64_t Switches();  // done so far
uint64_t Hash();      // over all switches, their virtual times, and kills
uint64_t PointsOf(int rank);
uint64_t PointsOfProgram(int rank);  // only of the functions that Spawn was given for it
std::string Why();                   // why Run has returned false, with the stacks of all fibers
int CurrentRank();                   // -1 outside of ranks
int64_t Latency();                   // a random latency of a message

// ---- Ranks --------------------------------------------------------------------------------------

void AddRank(int rank);  // before its first Spawn, if something else is to be said about it
// A rank sees the processes, the host name and the network address of its machine. All ranks are on
// machine 0 unless this says otherwise.
void SetMachine(int rank, int machine);
// Sets a variable in the environment of one rank, above those of the program.
void SetVariable(int rank, const std::string& name, const std::string& value);

void KillAt(int rank, uint64_t point_of_rank);  // when the rank has passed that many points
void SuspendAt(int rank, uint64_t point_of_rank, int64_t ns);
void KillNow(int rank);
// Lets the system refuse to start the thread of that number, from now on and from 1.
void RefuseThread(int rank, int number);
// Lets one of the next calls of mmap of that rank fail, which has this number, counted from 1. None
// fails after a number of 0.
void RefuseMemory(int rank, int64_t call);
void SuspendNow(int rank, int64_t ns);
bool IsDead(int rank);    // it was killed, or has ended itself with an exit code
bool HasEnded(int rank);  // there is no process any more
int64_t DiedAt(int rank);
// Calls this with the number of each rank that is killed.
void OnDeath(std::function<void(int)> call);

// Calls this with the number of each rank that is suspended, and for how long.
void OnSuspend(std::function<void(int, int64_t)> call);

// What a process holds. It holds nothing after its end, and a test asks before that.
struct Holdings {
  int descriptors = 0;
  int mappings = 0;
  int threads = 0;  // apart from those of Spawn
};
Holdings HeldBy(int rank);
Holdings LeftBy(int rank);  // what it held at its end, or at its death

// ---- For the simulated world --------------------------------------------------------------------

// While such a section is open, the rank is neither killed nor suspended. Others may continue.
void EnterWorld();
void LeaveWorld();
struct World {
  World() { EnterWorld(); }
  ~World() { LeaveWorld(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
};

// While such an object lives, nothing is a point, and nothing may block.
extern int quiet;
struct Quiet {
  Quiet() { ++quiet; }
  ~Quiet() { --quiet; }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

void Cost(int64_t points);  // passes one point that takes as long as that many
void Yield();               // lets another fiber continue
void SleepUntil(int64_t when);

struct Stats {
  uint64_t futex_waits = 0, futex_timeouts = 0, futex_wakes = 0, polls = 0, sleeps = 0, yields = 0;
  uint64_t locks = 0, blocked_locks = 0, connects = 0, socket_sends = 0, threads = 0;
};
extern Stats stats;

}  // namespace sim
