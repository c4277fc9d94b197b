#include "consistency/worker_clocks.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace multiverso {

int64_t WorkerClocks::BytesFor(int workers) {
  return static_cast<int64_t>(sizeof(Words)) + workers * static_cast<int64_t>(sizeof(Slot));
}

WorkerClocks::WorkerClocks(char* base, RankContext* context, std::string name)
    : context_(context),
      is_elastic_(context->members().is_elastic()),
      name_(std::move(name)),
      words_(reinterpret_cast<Words*>(base)),
      slots_(reinterpret_cast<Slot*>(base + sizeof(Words))) {
  const Membership& members = context_->members();
  for (int rank = 0; rank < members.capacity(); ++rank) {
    if (!members.is_worker(rank)) continue;
    if (members.is_local(rank)) here_.push_back(static_cast<int>(worker_ranks_.size()));
    worker_ranks_.push_back(rank);
  }
  me_ = members.worker_id();
  if (me_ >= 0 && me_ < members.initial_size()) Attach();
}

void WorkerClocks::Attach() {
  Slot& mine = slots_[me_];
  if (!is_elastic_ || mine.attached.load(std::memory_order_relaxed) != 0) return;
  // Raises this worker's clock to that of the slowest other worker.
  const auto catch_up = [&] {
    uint64_t slowest = UINT64_MAX;
    for (int worker = 0; worker < workers(); ++worker) {
      if (worker == me_ || has_finished(worker)) continue;
      if (context_->peers()->IsLost(rank_of(worker))) continue;
      slowest = std::min(slowest, adds(worker));
    }
    if (slowest != UINT64_MAX && slowest > my_adds()) mine.adds.store(slowest);
  };
  catch_up();
  mine.attached.store(1);
  // The slowest may have advanced meanwhile. From now on the others wait for this worker.
  catch_up();
  Wake();
}

void WorkerClocks::Detach() {
  if (!is_elastic_) return;
  slots_[me_].attached.store(0);
  Wake();
}

std::string WorkerClocks::RoundName(uint64_t round) const {
  return StrCat("round ", rounds_before() + round, " of table '", name_, "'");
}

bool WorkerClocks::HasPassed(int worker, uint64_t round) const {
  // has_finished is read first, because a worker's clock no longer changes after it finishes.
  return has_finished(worker) || adds(worker) > round;
}

bool WorkerClocks::AllHavePassed(uint64_t round) const {
  for (int i = 0; i < workers(); ++i) {
    if (!HasPassed(i, round)) return false;
  }
  return true;
}

uint64_t WorkerClocks::CompleteRounds() const {
  uint64_t rounds = 0;
  for (int i = 0; i < workers(); ++i) rounds = std::max(rounds, adds(i));
  while (rounds > 0 && !AllHavePassed(rounds - 1)) --rounds;
  return rounds;
}

bool WorkerClocks::AllHereHavePassed(uint64_t round) const {
  return std::all_of(here_.begin(), here_.end(),
                     [&](int worker) { return HasPassed(worker, round); });
}

TickKind WorkerClocks::KindOf(int worker, uint64_t tick) const {
  const uint64_t gets = slots_[worker].gets.load(std::memory_order_relaxed);
  return (gets >> (tick % kTicksKept) & 1) != 0 ? TickKind::kGet : TickKind::kAdd;
}

CallDigest WorkerClocks::CallsBefore(const SyncPoint& point) const {
  return point.is_last ? CallDigest{my_adds(), digest_at_add_} : CallDigest{my_ticks(), digest_};
}

bool WorkerClocks::AllAt(uint64_t point) const {
  for (int i = 0; i < workers(); ++i) {
    if (sync_point(i) < point) return false;
  }
  return true;
}

WorkerClocks::Snapshot WorkerClocks::TakeSnapshot(int worker) const {
  const Slot& slot = slots_[worker];
  Snapshot snapshot;
  // A worker stores `sync_point` and `finished` after the ticks that precede them. Both are read
  // before the ticks, so that the snapshot contains those ticks.
  snapshot.sync_point = slot.sync_point.load(std::memory_order_acquire);
  snapshot.finished = slot.finished.load(std::memory_order_acquire);
  snapshot.adds = slot.adds.load(std::memory_order_acquire);
  snapshot.ticks = slot.ticks.load(std::memory_order_acquire);
  snapshot.gets = slot.gets.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  snapshot.latest = slot.ticks.load(std::memory_order_relaxed);
  return snapshot;
}

void WorkerClocks::StoreCalls(int worker, const Snapshot& snapshot) {
  Slot& slot = slots_[worker];
  slot.gets.store(snapshot.gets, std::memory_order_relaxed);
  slot.ticks.store(snapshot.ticks, std::memory_order_release);
  slot.adds.store(snapshot.adds, std::memory_order_release);
  slot.finished.store(static_cast<uint32_t>(snapshot.finished), std::memory_order_release);
  Wake();
}

uint64_t WorkerClocks::RoundOf(int worker, uint64_t tick) const {
  uint64_t round = adds(worker);
  for (uint64_t later = tick; later < ticks(worker) && round > 0; ++later) {
    if (KindOf(worker, later) == TickKind::kAdd) --round;
  }
  return round;
}

std::vector<uint64_t> WorkerClocks::AllAdds() const {
  std::vector<uint64_t> all;
  for (int worker = 0; worker < workers(); ++worker) all.push_back(rounds_before() + adds(worker));
  return all;
}

void WorkerClocks::StartFrom(uint64_t rounds) {
  uint64_t most_adds = 0;
  for (int worker = 0; worker < workers(); ++worker) most_adds = std::max(most_adds, adds(worker));
  words_->rounds_before.store(rounds - most_adds, std::memory_order_relaxed);
}

void WorkerClocks::CountTick(TickKind kind) {
  Slot& mine = slots_[me_];
  const uint64_t tick = my_ticks();
  const uint64_t bit = uint64_t{1} << (tick % kTicksKept);
  const uint64_t gets = mine.gets.load(std::memory_order_relaxed);
  mine.gets.store(kind == TickKind::kGet ? gets | bit : gets & ~bit, std::memory_order_relaxed);
  mine.ticks.store(tick + 1, std::memory_order_release);
  // The digest is a polynomial, so that the order counts. An odd factor loses no information.
  digest_ = digest_ * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(kind);
  if (kind == TickKind::kAdd) digest_at_add_ = digest_;
  // Other workers wait for ticks only when they are far ahead, so an occasional wake-up suffices.
  if (tick % (kTicksKept / 4) == 0) {
    Wake();
    WakeLeader();
  }
}

void WorkerClocks::CountAdd() {
  slots_[me_].adds.store(my_adds() + 1, std::memory_order_release);
  Wake();
}

void WorkerClocks::FinishFor(int worker) {
  slots_[worker].finished.store(1, std::memory_order_release);
  Wake();
  WakeLeader();
}

}  // namespace multiverso
