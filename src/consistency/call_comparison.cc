#include "consistency/call_comparison.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"

namespace multiverso {
namespace {

const char* NameOf(TickKind kind) { return kind == TickKind::kAdd ? "add" : "get"; }

// Returns a mismatch that names the calls of two workers in the order of their ranks.
Status Mismatch(const WorkerClocks& clocks, uint64_t tick, uint64_t round, WorkersCall one,
                WorkersCall other) {
  if (other.worker < one.worker) std::swap(one, other);
  const std::string first = one.call;
  const std::string second = other.call;
  const bool one_shuts_down = first == "shutdown" || second == "shutdown";
  return Status(
      Code::kMismatch,
      StrCat("sync ", clocks.RoundName(round), ": rank ", clocks.rank_of(one.worker), " called ",
             first, ", rank ", clocks.rank_of(other.worker), " called ", second, " (call number ",
             tick, " on the table)",
             one_shuts_down ? "; a worker with fewer batches calls finish() before shutdown" : ""));
}

Status Abort(const WorkerClocks& clocks, const Status& mismatch) {
  clocks.context()->state()->Abort(mismatch);
  return mismatch;
}

// Compares the counts of two workers at the same sync point.
Status ComparePair(const WorkerClocks& clocks, const SyncPoint& point, int worker, int other) {
  const auto count = [&](int i) { return point.is_last ? clocks.adds(i) : clocks.ticks(i); };
  if (count(worker) == count(other)) return Status::Ok();
  const int behind = count(other) < count(worker) ? other : worker;
  const int ahead = behind == other ? worker : other;
  // A worker that has finished misses no call. Until the last sync point, the others may still make
  // the calls by which a finished worker is ahead.
  if (clocks.has_finished(behind) || (clocks.has_finished(ahead) && !point.is_last)) {
    return Status::Ok();
  }
  const TickKind kind = clocks.KindOf(ahead, clocks.ticks(behind));
  return AbortWithMismatch(clocks, {behind, point.call}, {ahead, NameOf(kind)});
}

// Compares the ticks, from `first` on, that a worker of this node and one of another have made.
Status CompareTicks(const WorkerClocks& clocks, int local_worker, int remote_worker,
                    uint64_t first) {
  const uint64_t end = std::min(clocks.ticks(local_worker), clocks.ticks(remote_worker));
  for (uint64_t tick = first; tick < end; ++tick) {
    const TickKind local = clocks.KindOf(local_worker, tick);
    const TickKind remote = clocks.KindOf(remote_worker, tick);
    std::atomic_thread_fence(std::memory_order_acquire);
    // The bit of the tick that the local worker is making may have replaced the bit of `tick`.
    if (local == remote || clocks.ticks(local_worker) >= tick + WorkerClocks::kTicksKept) continue;
    // Both workers made the same calls before `tick`, so their rounds agree. A worker in the middle
    // of an add has ticked but not counted the add, and appears one round behind.
    const uint64_t round =
        std::max(clocks.RoundOf(local_worker, tick), clocks.RoundOf(remote_worker, tick));
    return Mismatch(clocks, tick, round, {local_worker, NameOf(local)},
                    {remote_worker, NameOf(remote)});
  }
  return Status::Ok();
}

}  // namespace

Status AbortWithMismatch(const WorkerClocks& clocks, WorkersCall behind, WorkersCall other) {
  return Abort(clocks, Mismatch(clocks, clocks.ticks(behind.worker), clocks.adds(behind.worker),
                                behind, other));
}

Status TickAndCompare(WorkerClocks* clocks, TickKind kind) {
  const uint64_t tick = clocks->my_ticks();
  clocks->CountTick(kind);
  // Of two workers that make the same tick, at least one sees the other's tick.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const int me = clocks->me();
  for (int i = 0; i < clocks->workers(); ++i) {
    if (i == me || clocks->ticks(i) <= tick) continue;
    const TickKind other = clocks->KindOf(i, tick);
    if (other == kind) continue;
    return Abort(*clocks, Mismatch(*clocks, tick, clocks->my_adds(), {me, NameOf(kind)},
                                   {i, NameOf(other)}));
  }
  return Status::Ok();
}

void ArriveAndCompare(WorkerClocks* clocks, const SyncPoint& point) {
  clocks->ArriveAt(point.number);
  // At least one of two workers sees the other at the sync point, because neither leaves the
  // collective call before both have joined.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < clocks->workers(); ++i) {
    if (i == clocks->me() || clocks->sync_point(i) != point.number) continue;
    // If two workers disagree, ComparePair has aborted the session, and the collective call that
    // this worker is about to join reports the reason.
    if (!ComparePair(*clocks, point, clocks->me(), i).ok()) return;
  }
}

Status CompareAllAt(const WorkerClocks& clocks, const SyncPoint& point) {
  if (!clocks.AllAt(point.number)) return Status::Pending();
  const auto is_there = [&](int worker) { return clocks.sync_point(worker) == point.number; };
  for (int worker = 0; worker < clocks.workers(); ++worker) {
    for (int other = 0; other < worker && is_there(worker); ++other) {
      if (is_there(other)) MV_RETURN_IF_NOT_OK(ComparePair(clocks, point, worker, other));
    }
  }
  return Status::Ok();
}

Status CompareAdds(const WorkerClocks& clocks, uint64_t rounds, const char* call) {
  const PeerStatus& peers = *clocks.context()->peers();
  for (int worker = 0; worker < clocks.workers(); ++worker) {
    // The call is read before the adds, because the worker made its adds before it began the call.
    const char* const their_call = peers.CollectiveAwaitedBy(clocks.rank_of(worker));
    if (their_call == nullptr || clocks.HasPassed(worker, rounds - 1)) continue;
    return AbortWithMismatch(clocks, {worker, their_call}, {clocks.me(), call});
  }
  return Status::Ok();
}

void StoreAndCompare(WorkerClocks* clocks, int worker, const WorkerClocks::Snapshot& snapshot) {
  constexpr uint64_t kKept = WorkerClocks::kTicksKept;
  uint64_t first = clocks->ticks(worker);
  // Ticks whose bits have been overwritten need no comparison here. The worker's own node compared
  // them, because a worker does not get that far ahead of clocks that its node has received.
  if (snapshot.latest >= kKept) first = std::max(first, snapshot.latest - kKept + 1);
  clocks->StoreCalls(worker, snapshot);
  // A worker of this node that ticks after this fence sees the stored values (TickAndCompare). Its
  // earlier ticks are compared here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int local_worker : clocks->here()) {
    const Status compared = CompareTicks(*clocks, local_worker, worker, first);
    if (compared.ok()) continue;
    clocks->context()->state()->AbortInBackground(compared);
    return;
  }
  // A reader that sees this sync point knows that the worker's ticks have been compared.
  clocks->ArriveAt(snapshot.sync_point, worker);
  clocks->Wake();
}

}  // namespace multiverso
