#include "consistency/replica_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace multiverso {
namespace {

// Of Progress::phase.
constexpr int32_t kEnter = 0;
constexpr int32_t kTurnTaken = 1;
constexpr int32_t kStaged = 2;

}  // namespace

ReplicaRounds::ReplicaRounds(const StagedShape& shape, ReplicaMemory memory, const Shard* shard,
                             WorkerClocks clocks, const RankContext& group)
    : shape_(shape),
      memory_(std::move(memory)),
      shard_(shard),
      clocks_(std::move(clocks)),
      place_(memory_.place_of(clocks_.me())) {
  const Membership& members = group.members();
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    const int rank = clocks_.rank_of(worker);
    leads_.push_back(members.leader_of(members.node_of(rank)) == rank);
  }
}

// ---- Adding -------------------------------------------------------------------------------------

Status ReplicaRounds::WaitForBuffer(const char* call, const WaitLimit& limit, int* buffer) {
  const auto find = [&] {
    const uint64_t summed = memory_.words()->summed.load(std::memory_order_acquire);
    const auto free = std::find_if(std::begin(used_in_), std::end(used_in_),
                                   [&](uint64_t used) { return used <= summed; });
    *buffer = static_cast<int>(free - std::begin(used_in_));
    return free != std::end(used_in_);
  };
  const uint64_t oldest = *std::min_element(std::begin(used_in_), std::end(used_in_));
  return clocks_.Await(call, limit, find, [&](int worker) {
    if (!clocks_.HasPassed(worker, oldest - 1)) return Need::kCall;
    return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
  });
}

Status ReplicaRounds::BeginAdd(const char* call, Progress* progress, const WaitLimit& limit,
                               int* buffer) {
  if (progress->phase == kEnter) {
    MV_RETURN_IF_NOT_OK(clocks_.TakeTurn(TurnKind::kAdd, call, limit));
    progress->phase = kTurnTaken;
  }
  return WaitForBuffer(call, limit, buffer);
}

void ReplicaRounds::Describe(bool is_rows, int buffer, int64_t count) {
  const uint64_t round = clocks_.my_adds();
  StagedAdd* const add = memory_.staging().add_of(place_, round);
  add->is_rows = is_rows ? 1 : 0;
  add->buffer = buffer;
  add->count = count;
  used_in_[buffer] = round + 1;
}

void ReplicaRounds::AnnounceAdd() {
  const uint64_t round = clocks_.my_adds();
  clocks_.CountAdd();
  if (clocks_.AllHereHavePassed(round)) clocks_.CallLeader();
}

Status ReplicaRounds::Add(const void* delta, Progress* progress, const WaitLimit& limit) {
  int buffer = 0;
  MV_RETURN_IF_NOT_OK(BeginAdd("add", progress, limit, &buffer));
  std::memcpy(memory_.staging().values(place_, buffer), delta,
              static_cast<size_t>(shape_.layout.bytes()));
  Describe(/*is_rows=*/false, buffer, 0);
  AnnounceAdd();
  return Status::Ok();
}

Status ReplicaRounds::AddRows(const int64_t* rows, int64_t count, const void* delta,
                              Progress* progress, const WaitLimit& limit) {
  int buffer = 0;
  MV_RETURN_IF_NOT_OK(BeginAdd("add", progress, limit, &buffer));
  Staging staging = memory_.staging();
  Describe(/*is_rows=*/true, buffer, staging.StageRows(place_, buffer, rows, count, delta));
  AnnounceAdd();
  return Status::Ok();
}

Status ReplicaRounds::AddGet(const void* delta, void* out, Progress* progress,
                             const WaitLimit& limit) {
  constexpr char kCall[] = "add_get";
  switch (progress->phase) {
    case kEnter:
      MV_RETURN_IF_NOT_OK(clocks_.MayTakeTurns(kCall, limit));
      progress->phase = kTurnTaken;
      [[fallthrough]];
    case kTurnTaken: {
      int buffer = 0;
      MV_RETURN_IF_NOT_OK(WaitForBuffer(kCall, limit, &buffer));
      MV_RETURN_IF_NOT_OK(clocks_.Take(TurnKind::kAdd));
      std::memcpy(memory_.staging().values(place_, buffer), delta,
                  static_cast<size_t>(shape_.layout.bytes()));
      Describe(/*is_rows=*/false, buffer, 0);
      AnnounceAdd();
      MV_RETURN_IF_NOT_OK(clocks_.Take(TurnKind::kGet));
      progress->phase = kStaged;
      break;
    }
    default:
      break;
  }
  MV_RETURN_IF_NOT_OK(WaitUntilApplied(clocks_.my_adds(), kCall, limit));
  std::memcpy(out, shard_->parameters(), static_cast<size_t>(shape_.layout.bytes()));
  return Status::Ok();
}

// ---- Getting ------------------------------------------------------------------------------------

Status ReplicaRounds::WaitUntilApplied(uint64_t rounds, const char* call, const WaitLimit& limit) {
  if (rounds_applied() >= rounds) return Status::Ok();
  return clocks_.Await(
      call, limit, [&] { return rounds_applied() >= rounds; },
      [&](int worker) {
        if (!clocks_.HasPassed(worker, rounds - 1)) return Need::kCall;
        // The leaders carry the sum.
        return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
      });
}

Status ReplicaRounds::WaitUntilComplete(const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(clocks_.CheckAborted());
  // What the others had done before they came to a fence where this worker was too is to be known.
  MV_RETURN_IF_NOT_OK(clocks_.Await(
      call, limit, [&] { return clocks_.AllAtMySyncPoint(); },
      [&](int worker) {
        return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
      }));
  uint64_t rounds = 0;
  for (int i = 0; i < clocks_.workers(); ++i) rounds = std::max(rounds, clocks_.adds(i));
  while (rounds > 0 && !clocks_.AllHavePassed(rounds - 1)) --rounds;
  return rounds > 0 ? WaitUntilApplied(rounds, call, limit) : Status::Ok();
}

template <class Copy>
Status ReplicaRounds::Snapshot(const WaitLimit& limit, Copy copy) {
  for (;;) {
    MV_RETURN_IF_NOT_OK(WaitUntilComplete("get", limit));
    const uint64_t before = rounds_applied();
    copy();
    std::atomic_thread_fence(std::memory_order_acquire);
    // If no further round has been begun meanwhile, what was copied is one state.
    if (memory_.words()->begun.load(std::memory_order_relaxed) == before) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout, "the other workers' rounds left no moment to read in");
    }
    if (now >= limit.slice_end) return Status::Pending();
  }
}

template <class Copy>
Status ReplicaRounds::GetWith(Progress* progress, const WaitLimit& limit, Copy copy) {
  if (progress->phase == kEnter) {
    if (clocks_.i_have_finished()) return Snapshot(limit, copy);
    MV_RETURN_IF_NOT_OK(clocks_.TakeTurn(TurnKind::kGet, "get", limit));
    progress->phase = kTurnTaken;
  }
  MV_RETURN_IF_NOT_OK(WaitUntilApplied(clocks_.my_adds(), "get", limit));
  copy();
  return Status::Ok();
}

Status ReplicaRounds::Get(void* out, Progress* progress, const WaitLimit& limit) {
  return GetWith(progress, limit, [&] {
    std::memcpy(out, shard_->parameters(), static_cast<size_t>(shape_.layout.bytes()));
  });
}

void ReplicaRounds::CopyRows(const int64_t* rows, int64_t count, char* out) const {
  const int64_t row_bytes = shape_.layout.row_bytes();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * row_bytes, shard_->parameters() + rows[i] * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

Status ReplicaRounds::GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                              const WaitLimit& limit) {
  return GetWith(progress, limit, [&] { CopyRows(rows, count, static_cast<char*>(out)); });
}

}  // namespace multiverso
