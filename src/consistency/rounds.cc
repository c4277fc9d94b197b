#include "consistency/rounds.h"

#include <algorithm>
#include <utility>

#include "base/wait_lines.h"

namespace multiverso {

Rounds::Rounds(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks)
    : shape_(shape),
      shard_(shard),
      memory_(shape, base, clocks),
      clocks_(std::move(clocks)),
      wait_(&clocks_),
      staging_(memory_.staging()),
      index_(memory_.local_index_of(clocks_.me())) {}

Status Rounds::Run(const Request& request, const WaitLimit& limit) {
  if (!IsAdd(request.kind)) return Get(request, limit);
  return ReturnsData(request.kind) ? AddGet(request, limit) : Add(request, limit);
}

// ---- Adding -------------------------------------------------------------------------------------

Status Rounds::DeltaBuffer(void** buffer, const WaitLimit& limit) {
  constexpr int kBuffer = Staging::kDeltaBuffer;
  *buffer = nullptr;
  if (!IsInPlace()) return Status::Ok();
  MV_RETURN_IF_NOT_OK(AwaitSummed(used_in_[kBuffer], "delta_buffer", limit));
  *buffer = staging_.values(index_, kBuffer);
  return Status::Ok();
}

Status Rounds::WaitForBuffer(const void* delta, const char* call, const WaitLimit& limit,
                             int* buffer) {
  if (delta == staging_.values(index_, Staging::kDeltaBuffer)) {
    *buffer = Staging::kDeltaBuffer;
    return AwaitSummed(used_in_[Staging::kDeltaBuffer], call, limit);
  }
  uint64_t* const end = used_in_ + Staging::kCopies + (MayReadSummedCopies() ? 1 : 0);
  for (;;) {
    const auto* const free =
        std::find_if(used_in_, end, [&](uint64_t rounds) { return AreCopiesFree(rounds); });
    *buffer = static_cast<int>(free - used_in_);
    if (free != end) return Status::Ok();
    const uint64_t oldest = *std::min_element(used_in_, end);
    MV_RETURN_IF_NOT_OK(AwaitSummed(oldest, call, limit));
    if (!MayReadSummedCopies()) continue;
    const auto has_passed = [&](int worker) { return clocks_.HasPassed(worker, oldest); };
    MV_RETURN_IF_NOT_OK(wait_.AwaitCalls(call, limit, has_passed));
  }
}

void Rounds::Stage(const Request& request, int buffer) {
  const uint64_t round = clocks_.my_adds();
  StagedAdd* const add = staging_.add_of(index_, round);
  const bool is_rows = HasIds(request.kind);
  SummedBy own_block = SummedBy::kAnyWorker;
  add->is_rows = is_rows ? 1 : 0;
  add->buffer = buffer;
  if (is_rows) {
    add->count =
        staging_.StageRows(index_, buffer, request.row_ids, request.num_ids, request.delta);
  } else {
    char* const to = buffer == Staging::kDeltaBuffer ? nullptr : staging_.values(index_, buffer);
    own_block = StageWhole(request, to);
  }
  add->own_block.store(own_block, std::memory_order_relaxed);
  used_in_[buffer] = round + 1;
}

Status Rounds::Add(const Request& request, const WaitLimit& limit) {
  constexpr char kCall[] = "add";
  MV_RETURN_IF_NOT_OK(Touch(request, limit));
  MV_RETURN_IF_NOT_OK(wait_.AwaitTicks(kCall, limit));
  int buffer = 0;
  const void* const whole = HasIds(request.kind) ? nullptr : request.delta;
  MV_RETURN_IF_NOT_OK(WaitForBuffer(whole, kCall, limit, &buffer));
  // Staging rows takes memory. Without it, the add fails before other workers see its tick.
  Stage(request, buffer);
  MV_RETURN_IF_NOT_OK(TickAndCompare(&clocks_, TickKind::kAdd));
  clocks_.CountAdd();
  NoteAdd();
  return Status::Ok();
}

Status Rounds::AddGet(const Request& request, const WaitLimit& limit) {
  const char* const call = NameOf(request.kind);
  MV_RETURN_IF_NOT_OK(Touch(Request::Touch(), limit));
  MV_RETURN_IF_NOT_OK(wait_.AwaitTicks(call, limit));
  int buffer = 0;
  MV_RETURN_IF_NOT_OK(WaitForBuffer(request.delta, call, limit, &buffer));
  // The delta is staged first and both ticks are then made together, so that other workers need to
  // fetch this worker's clock only once.
  Stage(request, buffer);
  const struct Loan {
    Rounds* rounds;
    ~Loan() { rounds->ReturnDelta(); }
  } loan{this};
  MV_RETURN_IF_NOT_OK(TickAndCompare(&clocks_, TickKind::kAdd));
  clocks_.CountAdd();
  NoteAdd();
  MV_RETURN_IF_NOT_OK(TickAndCompare(&clocks_, TickKind::kGet));
  return ReadAfterAdd(request, clocks_.my_adds(), limit);
}

// ---- Getting ------------------------------------------------------------------------------------

Status Rounds::Get(const Request& request, const WaitLimit& limit) {
  constexpr char kCall[] = "get";
  if (request.is_peek || clocks_.i_have_finished()) return GetComplete(request, limit);
  MV_RETURN_IF_NOT_OK(wait_.AwaitTicks(kCall, limit));
  MV_RETURN_IF_NOT_OK(TickAndCompare(&clocks_, TickKind::kGet));
  return Read(request, clocks_.my_adds(), kCall, limit);
}

Status Rounds::GetComplete(const Request& request, const WaitLimit& limit) {
  for (;;) {
    uint64_t rounds = 0;
    MV_RETURN_IF_NOT_OK(AwaitComplete(sync_point_, "get", limit, &rounds));
    const Status read = Read(request, rounds, "get", limit);
    // A server of another node reports that it has begun a later round as a state error.
    if (!read.ok() && read.code() != Code::kState) return read;
    // If no further round began meanwhile, the values are one consistent state.
    if (read.ok() && !HasBegun(rounds)) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(
          Code::kTimeout,
          StrCat("no consistent state to read: other workers applied rounds without a pause",
                 LimitAdvice()));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

Status Rounds::View(const void** values, const WaitLimit& limit) {
  constexpr char kCall[] = "view";
  // After this worker has finished, the others change the parameters at any time.
  *values = clocks_.i_have_finished() || !IsInPlace() ? nullptr : shard_->values();
  if (*values == nullptr) return Status::Ok();
  // The view shows the parameters themselves, so all rows must be there.
  MV_RETURN_IF_NOT_OK(Touch(Request::Touch(), limit));
  MV_RETURN_IF_NOT_OK(wait_.AwaitTicks(kCall, limit));
  MV_RETURN_IF_NOT_OK(TickAndCompare(&clocks_, TickKind::kGet));
  return AwaitSummed(clocks_.my_adds(), kCall, limit);
}

// ---- Between rounds -----------------------------------------------------------------------------

void Rounds::Finish() {
  if (is_worker()) clocks_.Finish();
}

void Rounds::ReachSyncPoint(const SyncPoint& point) {
  sync_point_ = point.number;
  if (is_worker()) ArriveAndCompare(&clocks_, point);
}

CallDigest Rounds::CallsBefore(const SyncPoint& point) const {
  return is_worker() ? clocks_.CallsBefore(point) : CallDigest();
}

void Rounds::Depart() {
  if (is_worker()) clocks_.Depart();
}

Status Rounds::Settle(const WaitLimit& limit) {
  uint64_t rounds = 0;
  return AwaitComplete(sync_point_, "save", limit, &rounds);
}

}  // namespace multiverso
