// Ranks: the processes whose threads are fibers, how they are killed and suspended, and how they
// end.
#include <stdlib.h>

#include <algorithm>
#include <exception>

#include "engine/reordering.h"
#include "engine/scheduler.h"
#include "engine/scheduler_state.h"

namespace sim {

Rank* RankOf(int number) {
  if (number < 0) return &scheduler->world;
  AddRank(number);
  return scheduler->ranks[static_cast<size_t>(number)];
}

namespace {

int CountThreads(const Rank& rank) {
  int threads = 0;
  for (const Fiber* fiber : rank.fibers) {
    const bool is_over = fiber->state == FiberState::kDone || fiber->state == FiberState::kDead;
    if (!is_over && !fiber->is_program) ++threads;
  }
  return threads;
}

}  // namespace

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
  for (Fiber* fiber : rank->fibers) SettleMemory(fiber);
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

void Leave() {
  Dispatch();
  abort();  // an ended fiber never continues
}

void Suspend(Rank* rank, int64_t ns) {
  rank->must_pause = false;
  rank->suspended_until = Now() + ns;
  for (Fiber* fiber : rank->fibers) SettleMemory(fiber);
  const Quiet quiet_call;
  if (scheduler->on_suspend) scheduler->on_suspend(rank->number, ns);
}

namespace {

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

void ExitCurrent() {
  Die(current->rank);
  Leave();
}

void GiveUp(const std::string& why) {
  fprintf(stderr, "simulation: %s (rank %d)\n", why.c_str(), CurrentRank());
  abort();
}

// ---- For programs that simulate -----------------------------------------------------------------

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

void LackMemory(int rank, bool lacks) { RankOf(rank)->lacks_memory = lacks; }

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
  OrderMemory();
  if (current != nullptr) ++current->rank->in_world;
}

void LeaveWorld() {
  if (current == nullptr) return;
  Rank* const rank = current->rank;
  if (--rank->in_world > 0 || (!rank->must_die && !rank->must_pause)) return;
  Settle();
  Grant();
}

}  // namespace sim
