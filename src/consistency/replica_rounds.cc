#include "consistency/replica_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace multiverso {
namespace {

// Values of Progress::phase.
constexpr int32_t kEnter = 0;
constexpr int32_t kTicked = 1;
constexpr int32_t kStaged = 2;

}  // namespace

ReplicaRounds::ReplicaRounds(const StagedShape& shape, ReplicaMemory memory, const Shard* shard,
                             WorkerClocks clocks, const RankContext& context)
    : shape_(shape),
      memory_(std::move(memory)),
      shard_(shard),
      clocks_(std::move(clocks)),
      local_index_(memory_.local_index_of(clocks_.me())) {
  const Membership& members = context.members();
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    const int rank = clocks_.rank_of(worker);
    leads_.push_back(members.leader_of(members.node_of(rank)) == rank);
  }
}

Status ReplicaRounds::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (request.kind == RequestKind::kAddGet) return AddGet(request, progress, limit);
  return IsAdd(request.kind) ? Add(request, progress, limit) : Get(request, progress, limit);
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

void ReplicaRounds::Describe(bool is_rows, int buffer, int64_t count) {
  const uint64_t round = clocks_.my_adds();
  StagedAdd* const add = memory_.staging().add_of(local_index_, round);
  add->is_rows = is_rows ? 1 : 0;
  add->buffer = buffer;
  add->count = count;
  used_in_[buffer] = round + 1;
}

void ReplicaRounds::AnnounceAdd() {
  const uint64_t round = clocks_.my_adds();
  clocks_.CountAdd();
  if (clocks_.AllHereHavePassed(round)) clocks_.WakeLeader();
}

void ReplicaRounds::Stage(const Request& request, int buffer) {
  Staging staging = memory_.staging();
  if (IsOfRows(request.kind)) {
    Describe(
        /*is_rows=*/true, buffer,
        staging.StageRows(local_index_, buffer, request.row_ids, request.num_ids, request.delta));
  } else {
    std::memcpy(staging.values(local_index_, buffer), request.delta,
                static_cast<size_t>(shape_.layout.bytes()));
    Describe(/*is_rows=*/false, buffer, 0);
  }
}

Status ReplicaRounds::Add(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kEnter) {
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kAdd, "add", limit));
    progress->phase = kTicked;
  }
  int buffer = 0;
  MV_RETURN_IF_NOT_OK(WaitForBuffer("add", limit, &buffer));
  Stage(request, buffer);
  AnnounceAdd();
  return Status::Ok();
}

Status ReplicaRounds::AddGet(const Request& request, Progress* progress, const WaitLimit& limit) {
  constexpr char kCall[] = "add_get";
  switch (progress->phase) {
    case kEnter:
      MV_RETURN_IF_NOT_OK(clocks_.MayTick(kCall, limit));
      progress->phase = kTicked;
      [[fallthrough]];
    case kTicked: {
      int buffer = 0;
      MV_RETURN_IF_NOT_OK(WaitForBuffer(kCall, limit, &buffer));
      MV_RETURN_IF_NOT_OK(clocks_.Advance(TickKind::kAdd));
      Stage(request, buffer);
      AnnounceAdd();
      MV_RETURN_IF_NOT_OK(clocks_.Advance(TickKind::kGet));
      progress->phase = kStaged;
      break;
    }
    default:
      break;
  }
  MV_RETURN_IF_NOT_OK(WaitUntilApplied(clocks_.my_adds(), kCall, limit));
  shard_->CopyUnlocked(request);
  return Status::Ok();
}

// ---- Getting ------------------------------------------------------------------------------------

Status ReplicaRounds::WaitUntilApplied(uint64_t rounds, const char* call, const WaitLimit& limit) {
  if (rounds_applied() >= rounds) return Status::Ok();
  return clocks_.Await(
      call, limit, [&] { return rounds_applied() >= rounds; },
      [&](int worker) {
        if (!clocks_.HasPassed(worker, rounds - 1)) return Need::kCall;
        // A worker that has passed the round is needed only if it is a leader, since leaders sum.
        return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
      });
}

Status ReplicaRounds::WaitUntilComplete(const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(clocks_.CheckAborted());
  // Other workers' clocks then include all adds that they made before this worker's sync point.
  MV_RETURN_IF_NOT_OK(clocks_.Await(
      call, limit, [&] { return clocks_.AllAtMySyncPoint(); },
      [&](int worker) {
        return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
      }));
  const uint64_t rounds = clocks_.CompleteRounds();
  return rounds > 0 ? WaitUntilApplied(rounds, call, limit) : Status::Ok();
}

Status ReplicaRounds::GetFinished(const Request& request, const WaitLimit& limit) {
  for (;;) {
    MV_RETURN_IF_NOT_OK(WaitUntilComplete("get", limit));
    const uint64_t before = rounds_applied();
    shard_->CopyUnlocked(request);
    std::atomic_thread_fence(std::memory_order_acquire);
    // If no further round began during the copy, the copy is one consistent state.
    if (memory_.words()->begun.load(std::memory_order_relaxed) == before) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    "no consistent state to read: other workers applied rounds without a pause");
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

Status ReplicaRounds::Get(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kEnter) {
    if (clocks_.i_have_finished()) return GetFinished(request, limit);
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kGet, "get", limit));
    progress->phase = kTicked;
  }
  MV_RETURN_IF_NOT_OK(WaitUntilApplied(clocks_.my_adds(), "get", limit));
  shard_->CopyUnlocked(request);
  return Status::Ok();
}

}  // namespace multiverso
