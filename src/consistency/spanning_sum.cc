#include "consistency/spanning_sum.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/copy_bytes.h"
#include "consistency/round_service.h"
#include "memory/futex.h"

namespace multiverso {

SpanningSum::SpanningSum(const StagedShape& shape, int64_t first_row, char* base, Shard* shard,
                         WorkerClocks clocks, const Membership& members)
    : Rounds(shape, base, shard, std::move(clocks)),
      first_row_(first_row),
      joint_staging_(shape, memory_.staging(), clocks_.here(), clocks_.workers()) {
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    const int rank = clocks_.rank_of(worker);
    leads_.push_back(members.leader_of(members.node_of(rank)) == rank);
  }
  for (int node = 0; node < members.num_nodes(); ++node) {
    const int leader = members.leader_of(node);
    if (!members.is_worker(leader)) wait_.AlsoNeeds(leader);
  }
}

uint64_t SpanningSum::rounds_applied() const {
  // Without a part of the table, `applied` is the largest number.
  if (shard_->layout().rows() == 0) return rounds_read_;
  return std::max(rounds_read_, words()->applied.load());
}

bool SpanningSum::HasBegun(uint64_t rounds) const {
  // The values that were read before are those before any change that is seen to have begun.
  std::atomic_thread_fence(std::memory_order_acquire);
  return words()->begun.load(std::memory_order_relaxed) > rounds;
}

void SpanningSum::StartFrom(uint64_t rounds) {
  Rounds::StartFrom(rounds);
  // The copy has the values before the load.
  words()->copied_from.store(0);
}

// ---- Adding -------------------------------------------------------------------------------------

template <class Done>
Status SpanningSum::AwaitRounds(uint64_t rounds, const char* call, const WaitLimit& limit,
                                Done done) {
  const auto need_of = [&](int worker) {
    if (rounds > 0 && !clocks_.HasPassed(worker, rounds - 1)) return Need::kCall;
    // A worker that has passed the round is needed only if it is a leader, since leaders sum.
    return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
  };
  if (done()) return Status::Ok();
  if (service_ == nullptr) return wait_.Await(call, limit, done, need_of);
  return wait_.Await(call, limit, done, need_of,
                     [&](Instant until) { return service_->WorkUntil(done, until); });
}

bool SpanningSum::HasSummed(uint64_t rounds) const {
  return words()->summed.load(std::memory_order_acquire) >= rounds;
}

Status SpanningSum::AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) {
  return AwaitRounds(rounds, call, limit, [&] { return HasSummed(rounds); });
}

SummedBy SpanningSum::StageWhole(const Request& request, char* /*to*/) {
  if (request.kind != RequestKind::kAdd) {
    words()->is_copy_wanted.store(1, std::memory_order_relaxed);
  }
  if (request.kind == RequestKind::kAddGet && service_ != nullptr) {
    lending_ = add_of(clocks_.my_adds());
    lending_->lent = static_cast<const char*>(request.delta);
    return SummedBy::kAnyWorker;
  }
  const int me = memory_.local_index_of(clocks_.me());
  if (request.kind == RequestKind::kExchange) {
    const TensorExchange exchange = ExchangeOf(request);
    joint_staging_.Stage(me, clocks_.my_adds(), [&](int64_t first, int64_t count, char* room) {
      exchange.TakeDelta(first, count, room);
      return room;
    });
    return SummedBy::kAnyWorker;
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  const int64_t bytes = shape_.element_bytes();
  joint_staging_.Stage(
      me, clocks_.my_adds(),
      [&](int64_t first, int64_t /*count*/, char* /*room*/) { return delta + first * bytes; });
  return SummedBy::kAnyWorker;
}

void SpanningSum::ReturnDelta() {
  if (lending_ == nullptr) return;
  // A call that fails leaves its add in the round, which other nodes may still complete.
  if (!HasSummed(clocks_.my_adds())) {
    const int me = memory_.local_index_of(clocks_.me());
    service_->StageLent(lending_, memory_.staging().values(me, lending_->buffer),
                        shape_.layout.bytes());
  }
  lending_->lent = nullptr;
  lending_ = nullptr;
}

void SpanningSum::NoteAdd() {
  // The last worker of a node wakes the leader, which sums the round.
  if (clocks_.AllHereHavePassed(clocks_.my_adds() - 1)) clocks_.WakeLeader();
}

// ---- Getting ------------------------------------------------------------------------------------

Status SpanningSum::AwaitComplete(uint64_t sync_point, const char* call, const WaitLimit& limit,
                                  uint64_t* rounds) {
  MV_RETURN_IF_NOT_OK(wait_.CheckRunning());
  // Other workers' clocks then include all adds that they made before this rank's sync point.
  MV_RETURN_IF_NOT_OK(AwaitRounds(0, call, limit, [&] { return clocks_.AllAt(sync_point); }));
  const uint64_t complete = clocks_.CompleteRounds();
  MV_RETURN_IF_NOT_OK(AwaitRounds(complete, call, limit, [&] {
    if (words()->applied.load(std::memory_order_acquire) < complete) return false;
    // Results that are still on their way would otherwise change the copy after a load.
    const uint64_t copied_from = words()->copied_from.load(std::memory_order_acquire);
    return copied_from == 0 || copied_from > complete ||
           words()->copied.load(std::memory_order_acquire) >= complete;
  }));
  // The clocks of other nodes may be older than a round that has been applied here.
  *rounds = std::max(clocks_.CompleteRounds(), rounds_applied());
  // A node without a part of the table knows only from here how many rounds the others have
  // applied.
  rounds_read_ = std::max(rounds_read_, *rounds);
  return Status::Ok();
}

void SpanningSum::CopyRows(const Request& request, bool all_from_copy) const {
  const int64_t columns = shape_.columns;
  const int64_t own_first = first_row_ * columns;
  const int64_t own_end = own_first + (all_from_copy ? 0 : shard_->layout().rows() * columns);
  const int64_t bytes = shape_.element_bytes();
  char* const out = static_cast<char*>(request.out);
  // Copies elements that are all in this node's part or all outside.
  const auto copy = [&](int64_t first, int64_t end, char* to) {
    if (first >= own_first && first < own_end) {
      return shard_->Copy(first - own_first, end - first, to);
    }
    CopyBytes(to, memory_.copy() + first * bytes, static_cast<size_t>((end - first) * bytes));
  };
  if (HasIds(request.kind)) {
    for (int64_t i = 0; i < request.num_ids; ++i) {
      const int64_t first = request.row_ids[i] * columns;
      copy(first, first + columns, out + i * columns * bytes);
    }
    return;
  }
  copy(0, own_first, out);
  copy(own_first, own_end, out + own_first * bytes);
  copy(own_end, shape_.layout.rows() * columns, out + own_end * bytes);
}

Status SpanningSum::Read(const Request& request, uint64_t rounds, const char* call,
                         const WaitLimit& limit) {
  // When the rounds have been summed, it is known whether this node copies their results.
  MV_RETURN_IF_NOT_OK(AwaitRounds(rounds, call, limit, [&] {
    return words()->summed.load(std::memory_order_acquire) >= rounds &&
           words()->applied.load(std::memory_order_acquire) >= rounds;
  }));
  const uint64_t copied_from = words()->copied_from.load(std::memory_order_acquire);
  const bool is_copied = copied_from != 0 && copied_from <= rounds;
  MV_RETURN_IF_NOT_OK(AwaitRounds(rounds, call, limit, [&] {
    return !is_copied || words()->copied.load(std::memory_order_acquire) >= rounds;
  }));
  if (is_copied || shard_->layout().rows() == shape_.layout.rows()) {
    CopyRows(request, is_copied && shape_.results != WireFormat::kFloat32);
  } else {
    if (!HasIds(request.kind)) words()->is_copy_wanted.store(1, std::memory_order_relaxed);
    Request fetched = request;
    fetched.kind = HasIds(request.kind) ? RequestKind::kGetRows : RequestKind::kGet;
    fetched.rounds = rounds;
    MV_RETURN_IF_NOT_OK(runner_->Run(fetched, limit));
  }
  rounds_read_ = std::max(rounds_read_, rounds);
  return Status::Ok();
}

Status SpanningSum::ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(Read(request, rounds, NameOf(request.kind), limit));
  if (request.kind == RequestKind::kExchange) {
    ExchangeOf(request).Settle(0, request.tensors->count());
  }
  return Status::Ok();
}

}  // namespace multiverso
