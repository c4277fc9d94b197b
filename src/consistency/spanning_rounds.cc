#include "consistency/spanning_rounds.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace multiverso {
namespace {

// Values of Progress::phase.
constexpr int32_t kNotTicked = 0;
constexpr int32_t kTicked = 1;
constexpr int32_t kStaged = 2;

}  // namespace

SpanningRounds::SpanningRounds(const StagedShape& shape, int64_t first_row, SpanningMemory memory,
                               const Shard* shard, WorkerClocks clocks, const RankContext& context)
    : shape_(shape),
      first_row_(first_row),
      memory_(std::move(memory)),
      shard_(shard),
      clocks_(std::move(clocks)) {
  const Membership& members = context.members();
  if (is_worker()) local_index_ = memory_.local_index_of(clocks_.me());
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    const int rank = clocks_.rank_of(worker);
    leads_.push_back(members.leader_of(members.node_of(rank)) == rank);
  }
  for (int node = 0; node < members.num_nodes(); ++node) {
    const int leader = members.leader_of(node);
    if (!members.is_worker(leader)) clocks_.AlsoNeeds(leader);
  }
}

void SpanningRounds::Finish() {
  if (is_worker()) clocks_.Finish();
}

void SpanningRounds::ReachSyncPoint(const SyncPoint& point) {
  sync_point_ = point.number;
  if (is_worker()) clocks_.ReachSyncPoint(point);
}

CallDigest SpanningRounds::CallsBefore(const SyncPoint& point) const {
  return is_worker() ? clocks_.CallsBefore(point) : CallDigest();
}

void SpanningRounds::Depart() {
  if (is_worker()) clocks_.Depart();
}

uint64_t SpanningRounds::rounds_applied() const {
  // Without a part of the table, `applied` is the largest number.
  if (shard_->layout().rows() == 0) return rounds_read_;
  return std::max(rounds_read_, words()->applied.load());
}

bool SpanningRounds::HasBegun(uint64_t rounds) const {
  // The values that were read before are those before any change that is seen to have begun.
  std::atomic_thread_fence(std::memory_order_acquire);
  return words()->begun.load(std::memory_order_relaxed) > rounds;
}

void SpanningRounds::StartFrom(uint64_t rounds) {
  clocks_.StartFrom(rounds);
  // The copy has the values before the load.
  words()->copied_from.store(0);
}

Status SpanningRounds::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (request.kind == RequestKind::kAddGet) return AddGet(request, progress, limit);
  return IsAdd(request.kind) ? Add(request, progress, limit) : Get(request, progress, limit);
}

// ---- Adding -------------------------------------------------------------------------------------

template <class Done>
Status SpanningRounds::AwaitRounds(uint64_t rounds, const char* call, const WaitLimit& limit,
                                   Done done) {
  if (done()) return Status::Ok();
  return clocks_.Await(call, limit, done, [&](int worker) {
    if (rounds > 0 && !clocks_.HasPassed(worker, rounds - 1)) return Need::kCall;
    // A worker that has passed the round is needed only if it is a leader, since leaders sum.
    return leads_[static_cast<size_t>(worker)] ? Need::kWork : Need::kNothing;
  });
}

Status SpanningRounds::WaitForBuffer(const char* call, const WaitLimit& limit, int* buffer) {
  const uint64_t oldest = *std::min_element(std::begin(used_in_), std::end(used_in_));
  return AwaitRounds(oldest, call, limit, [&] {
    const uint64_t summed = words()->summed.load(std::memory_order_acquire);
    const auto* const free = std::find_if(std::begin(used_in_), std::end(used_in_),
                                          [&](uint64_t used) { return used <= summed; });
    *buffer = static_cast<int>(free - std::begin(used_in_));
    return free != std::end(used_in_);
  });
}

void SpanningRounds::Describe(bool is_rows, int buffer, int64_t count) {
  const uint64_t round = clocks_.my_adds();
  StagedAdd* const add = memory_.staging().add_of(local_index_, round);
  add->is_rows = is_rows ? 1 : 0;
  add->buffer = buffer;
  add->count = count;
  used_in_[buffer] = round + 1;
}

void SpanningRounds::AnnounceAdd() {
  clocks_.CountAdd();
  // The last worker of a node wakes the leader, which sums the round.
  if (clocks_.AllHereHavePassed(clocks_.my_adds() - 1)) clocks_.WakeLeader();
}

void SpanningRounds::Stage(const Request& request, int buffer) {
  const Staging& staging = memory_.staging();
  if (IsOfRows(request.kind)) {
    Describe(/*is_rows=*/true, buffer,
             memory_.staging().StageRows(local_index_, buffer, request.row_ids, request.num_ids,
                                         request.delta));
  } else {
    std::memcpy(staging.values(local_index_, buffer), request.delta,
                static_cast<size_t>(shape_.layout.bytes()));
    Describe(/*is_rows=*/false, buffer, 0);
  }
}

Status SpanningRounds::Add(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kNotTicked) {
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kAdd, "add", limit));
    progress->phase = kTicked;
  }
  int buffer = 0;
  MV_RETURN_IF_NOT_OK(WaitForBuffer("add", limit, &buffer));
  Stage(request, buffer);
  AnnounceAdd();
  return Status::Ok();
}

Status SpanningRounds::AddGet(const Request& request, Progress* progress, const WaitLimit& limit) {
  constexpr char kCall[] = "add_get";
  switch (progress->phase) {
    case kNotTicked:
      MV_RETURN_IF_NOT_OK(clocks_.MayTick(kCall, limit));
      words()->is_copy_wanted.store(1, std::memory_order_relaxed);
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
  return Read(request, clocks_.my_adds(), kCall, limit);
}

// ---- Getting ------------------------------------------------------------------------------------

Status SpanningRounds::WaitUntilComplete(const char* call, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(clocks_.CheckAborted());
  // Other workers' clocks then include all adds that they made before this rank's sync point.
  MV_RETURN_IF_NOT_OK(AwaitRounds(0, call, limit, [&] { return clocks_.AllAt(sync_point_); }));
  const uint64_t rounds = clocks_.CompleteRounds();
  return AwaitRounds(rounds, call, limit, [&] {
    if (words()->applied.load(std::memory_order_acquire) < rounds) return false;
    // Results that are still on their way would otherwise change the copy after a load.
    const uint64_t copied_from = words()->copied_from.load(std::memory_order_acquire);
    return copied_from == 0 || copied_from > rounds ||
           words()->copied.load(std::memory_order_acquire) >= rounds;
  });
}

void SpanningRounds::CopyRows(const Request& request, bool all_from_copy) const {
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
    std::memcpy(to, memory_.copy() + first * bytes, static_cast<size_t>((end - first) * bytes));
  };
  if (IsOfRows(request.kind)) {
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

Status SpanningRounds::Read(const Request& request, uint64_t rounds, const char* call,
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
    if (!IsOfRows(request.kind)) words()->is_copy_wanted.store(1, std::memory_order_relaxed);
    // Fetching waits to its end.
    if (limit.slice_end <= Clock::now()) return Status::Pending();
    Request fetched = request;
    fetched.kind = IsOfRows(request.kind) ? RequestKind::kGetRows : RequestKind::kGet;
    fetched.rounds = rounds;
    MV_RETURN_IF_NOT_OK(fetch_(fetched, limit));
  }
  rounds_read_ = std::max(rounds_read_, rounds);
  return Status::Ok();
}

Status SpanningRounds::GetComplete(const Request& request, const WaitLimit& limit) {
  for (;;) {
    MV_RETURN_IF_NOT_OK(WaitUntilComplete("get", limit));
    // The clocks of other nodes may be older than a round that has been applied here.
    const uint64_t rounds = std::max(clocks_.CompleteRounds(), rounds_applied());
    const Status read = Read(request, rounds, "get", limit);
    // A server reports that it has begun another round as a state that cannot be read.
    if (!read.ok() && read.code() != Code::kState) return read;
    // If no further round began meanwhile, the values are one consistent state.
    if (read.ok() && !HasBegun(rounds)) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    "no consistent state to read: other workers applied rounds without a pause");
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

Status SpanningRounds::Get(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kNotTicked) {
    if (request.IsPeek() || clocks_.i_have_finished()) return GetComplete(request, limit);
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kGet, "get", limit));
    progress->phase = kTicked;
  }
  return Read(request, clocks_.my_adds(), "get", limit);
}

}  // namespace multiverso
