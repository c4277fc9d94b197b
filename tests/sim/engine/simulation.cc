// The life of a simulation: its start, its end, and what it counts.
#include <stdio.h>
#include <stdlib.h>
#include <sys/single_threaded.h>

#include "engine/reordering.h"
#include "engine/scheduler.h"
#include "engine/scheduler_state.h"

namespace sim {

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
  reorders = options.reorders;
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
  for (const Seam* seam : kSeams) {
    if (seam->finish != nullptr) seam->finish();
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

uint64_t PointsOfProgram(int rank) {
  Settle();
  uint64_t points = 0;
  for (const Fiber* fiber : RankOf(rank)->fibers) points += fiber->is_program ? fiber->points : 0;
  return points;
}

std::string Why() { return scheduler->why; }

int CurrentRank() { return current == nullptr ? -1 : current->rank->number; }

int64_t Latency() {
  // Most are short, and some are long.
  const Options& options = scheduler->options;
  const auto span = static_cast<uint64_t>(options.net_max_ns - options.net_min_ns + 1);
  return options.net_min_ns + static_cast<int64_t>(Below(Below(8) == 0 ? span : span / 8 + 1));
}

}  // namespace sim
