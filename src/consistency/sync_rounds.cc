#include "consistency/sync_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace multiverso {
namespace {

// Values of Progress::phase. Add passes from kEnter to kStage, Get from kEnter to kSum, and AddGet
// through all three.
constexpr int32_t kEnter = 0;
constexpr int32_t kStage = 1;
constexpr int32_t kSum = 2;

// Divides a small table into smaller stripes, because with a single stripe all workers would wait
// while one worker sums. Stripes of less than kMinStripeBytes bytes cost more than they gain. Not
// for an updater that counts updates per stripe of the shard, because two workers would then update
// the same count.
StagedShape InSmallerStripes(StagedShape shape, int workers) {
  constexpr int64_t kMinStripeBytes = int64_t{4} << 10;
  constexpr int64_t kStripesPerWorker = 4;  // so that the workers' shares differ little
  const StripeLayout& layout = shape.layout;
  shape.layout = StripeLayout(layout.rows(), layout.row_bytes(),
                              std::clamp(layout.bytes() / (kStripesPerWorker * workers),
                                         kMinStripeBytes, StripeLayout::kStripeBytes));
  return shape;
}

int64_t ClockBytes(int workers) { return RoundUp(WorkerClocks::BytesFor(workers), kPage); }

}  // namespace

bool SyncRounds::BytesFor(const StagedShape& shape, int workers, int64_t* bytes) {
  int64_t staging = 0;
  if (!Staging::BytesFor(shape, workers, &staging)) return false;
  *bytes = ClockBytes(workers) +
           RoundUp(workers * static_cast<int64_t>(sizeof(BlockWords)), kPage) + staging;
  return true;
}

SyncRounds::SyncRounds(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks)
    : shape_(shard->counts_steps() ? shape : InSmallerStripes(shape, clocks.workers())),
      shard_(shard),
      clocks_(std::move(clocks)),
      staging_(base + ClockBytes(clocks_.workers()) +
                   RoundUp(clocks_.workers() * static_cast<int64_t>(sizeof(BlockWords)), kPage),
               shape_, clocks_.workers()),
      sum_(SegmentGrid(shape_.layout.rows(), shape_.columns, shape_.element_bytes()), shape_.dtype,
           clocks_.workers()),
      scratch_(static_cast<size_t>(RoundSum::kElementsAtATime * shape_.element_bytes())) {
  const int workers = clocks_.workers();
  auto* const words = reinterpret_cast<BlockWords*>(base + ClockBytes(workers));
  const int64_t stripes = shape_.layout.stripes();
  for (int i = 0; i < workers; ++i) {
    const int64_t first = stripes * i / workers;
    blocks_.push_back(Block{first, stripes * (i + 1) / workers - first, words + i});
  }
}

Status SyncRounds::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (request.kind == RequestKind::kAddGet) return AddGet(request, progress, limit);
  return IsAdd(request.kind) ? Add(request, progress, limit) : Get(request, progress, limit);
}

// ---- Summing ------------------------------------------------------------------------------------

uint64_t SyncRounds::CurrentRound(const Block& block) const {
  return block.words->done.load(std::memory_order_acquire) / static_cast<uint64_t>(block.stripes);
}

bool SyncRounds::IsApplied(const Block& block, uint64_t round) const {
  return block.words->done.load(std::memory_order_acquire) >=
         (round + 1) * static_cast<uint64_t>(block.stripes);
}

bool SyncRounds::AllApplied(uint64_t round) const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [&](const Block& block) { return IsApplied(block, round); });
}

bool SyncRounds::CanSumBlock(int owner, uint64_t round) const {
  const Block& block = blocks_[static_cast<size_t>(owner)];
  const uint64_t end = (round + 1) * static_cast<uint64_t>(block.stripes);
  if (block.words->claimed.load(std::memory_order_relaxed) >= end) return false;
  if (!clocks_.AllHavePassed(round)) return false;
  // If a block's owner is in add_get, which does not stage the block, only the owner can sum.
  return owner == clocks_.me() || clocks_.adds(owner) <= round ||
         staging_.add_of(owner, round)->keeps_own_block.load(std::memory_order_relaxed) == 0;
}

void SyncRounds::CollectSources(uint64_t round, const OwnBlock& own) {
  sources_.clear();
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    if (clocks_.adds(worker) <= round) continue;  // the worker had finished before the round
    sources_.push_back(staging_.SourceOf(worker, worker, round));
    if (worker == clocks_.me() && own.delta != nullptr) {
      sources_.back() = DeltaSource::Whole(worker, own.delta);
    }
  }
}

void SyncRounds::SumStripe(int64_t stripe, char* out) {
  const int64_t first = shape_.layout.first_row(stripe);
  const int64_t end = shape_.layout.end_row(stripe);
  const auto at = [&](int64_t element) {
    return out == nullptr ? nullptr : out + element * shape_.element_bytes();
  };
  const auto apply = [&](int64_t element, int64_t count, const char* a, const char* b) {
    return b != nullptr && shard_->ApplySum(element, a, b, at(element), count);
  };
  if (AllAreWhole(sources_) && sum_.SumInHalves(sources_, first, end, apply)) return;
  for (DeltaSource& source : sources_) source.SeekRow(sum_.grid(), first);
  sum_.Sum(
      &sources_, first, end, [](int64_t, int64_t) { return true; },
      [&](int64_t element, int64_t count, const char* sum, int64_t terms) {
        shard_->Apply(element, sum, terms, at(element), count, scratch_.data());
      });
}

void SyncRounds::SumBlock(int owner, uint64_t round, const OwnBlock& own) {
  const Block& block = blocks_[static_cast<size_t>(owner)];
  const uint64_t first = round * static_cast<uint64_t>(block.stripes);
  const uint64_t end = first + static_cast<uint64_t>(block.stripes);
  bool collected = false;
  char* out = nullptr;
  uint64_t claim = block.words->claimed.load(std::memory_order_relaxed);
  while (claim < end) {
    if (!block.words->claimed.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) {
      continue;
    }
    // GetComplete reads parameters that may change. If it sees a write to this stripe, it must also
    // see this claim, so that it discards its copy.
    std::atomic_thread_fence(std::memory_order_release);
    // The staged deltas do not change from here until the stripe is done.
    if (!collected) {
      CollectSources(round, own);
      const bool has_rows = !AllAreWhole(sources_);
      out = has_rows ? nullptr : own.out;
      if (own.out != nullptr) own_block_is_out_ = !has_rows;
      collected = true;
    }
    const auto stripe = static_cast<int64_t>(claim - first) + block.first_stripe;
    SumStripe(stripe, out);
    if (block.words->done.fetch_add(1, std::memory_order_acq_rel) + 1 == end) clocks_.Wake();
    claim = block.words->claimed.load(std::memory_order_relaxed);
  }
}

Status SyncRounds::WaitForBlock(int owner, uint64_t round, const OwnBlock& own, const char* call,
                                const WaitLimit& limit) {
  const Block& block = blocks_[static_cast<size_t>(owner)];
  while (!IsApplied(block, round)) {
    const uint64_t current = CurrentRound(block);
    // If another worker has completed the round, this worker must not wait for the next round.
    if (current > round) break;
    if (CanSumBlock(owner, current)) {
      SumBlock(owner, current, current == round ? own : OwnBlock{});
      continue;
    }
    MV_RETURN_IF_NOT_OK(clocks_.Await(
        call, limit, [&] { return CurrentRound(block) != current || CanSumBlock(owner, current); },
        [&](int worker) {
          if (!clocks_.HasPassed(worker, current)) return Need::kCall;
          // All workers have passed the round, so some worker is summing the last stripes of the
          // block. Even a worker that has finished may be summing, so all workers must be alive.
          return clocks_.AllHavePassed(current) ? Need::kWork : Need::kNothing;
        }));
  }
  return Status::Ok();
}

Status SyncRounds::WaitForRound(uint64_t round, const char* call, const WaitLimit& limit) {
  for (int i = 0; i < clocks_.workers(); ++i) {
    MV_RETURN_IF_NOT_OK(
        WaitForBlock((clocks_.me() + i) % clocks_.workers(), round, OwnBlock{}, call, limit));
  }
  return Status::Ok();
}

// ---- Adding -------------------------------------------------------------------------------------

Status SyncRounds::DeltaBuffer(void** buffer, const WaitLimit& limit) {
  constexpr int kBuffer = Staging::kDeltaBuffer;
  if (used_in_[kBuffer] != 0) {
    MV_RETURN_IF_NOT_OK(WaitForRound(used_in_[kBuffer] - 1, "delta_buffer", limit));
  }
  *buffer = staging_.values(clocks_.me(), kBuffer);
  return Status::Ok();
}

Status SyncRounds::WaitForBuffer(const void* delta, const char* call, const WaitLimit& limit,
                                 int* buffer) {
  if (delta == staging_.values(clocks_.me(), Staging::kDeltaBuffer)) {
    *buffer = Staging::kDeltaBuffer;
    void* ready = nullptr;
    return DeltaBuffer(&ready, limit);
  }
  for (;;) {
    uint64_t oldest = 0;
    for (int i = 0; i < Staging::kCopies; ++i) {
      if (used_in_[i] == 0 || AllApplied(used_in_[i] - 1)) {
        *buffer = i;
        return Status::Ok();
      }
      oldest = i == 0 ? used_in_[i] : std::min(oldest, used_in_[i]);
    }
    MV_RETURN_IF_NOT_OK(WaitForRound(oldest - 1, call, limit));
  }
}

template <class Copy>
void SyncRounds::ForElementsOf(const Block& block, const Copy& copy) const {
  if (block.stripes == 0) return;
  const StripeLayout& layout = shape_.layout;
  const int64_t begin = layout.first_row(block.first_stripe) * shape_.columns;
  const int64_t end = layout.end_row(block.first_stripe + block.stripes - 1) * shape_.columns;
  copy(begin, end - begin, begin * shape_.element_bytes());
}

void SyncRounds::StageWhole(int buffer, const void* delta, bool keeps_own_block) {
  for (int i = 0; i < clocks_.workers() && buffer != Staging::kDeltaBuffer; ++i) {
    // This worker's own block is staged last, because the worker begins to sum with that block.
    const int owner = (clocks_.me() + 1 + i) % clocks_.workers();
    if (keeps_own_block && owner == clocks_.me()) continue;
    char* const to = staging_.values(clocks_.me(), buffer);
    ForElementsOf(blocks_[static_cast<size_t>(owner)],
                  [&](int64_t /*first*/, int64_t count, int64_t offset) {
                    std::memcpy(to + offset, static_cast<const char*>(delta) + offset,
                                static_cast<size_t>(count * shape_.element_bytes()));
                  });
  }
  Describe(/*is_rows=*/false, buffer, 0, keeps_own_block);
}

void SyncRounds::Describe(bool is_rows, int buffer, int64_t count, bool keeps_own_block) {
  const uint64_t round = clocks_.my_adds();
  StagedAdd* const add = staging_.add_of(clocks_.me(), round);
  add->is_rows = is_rows ? 1 : 0;
  add->buffer = buffer;
  add->count = count;
  add->keeps_own_block.store(keeps_own_block ? 1 : 0, std::memory_order_relaxed);
  used_in_[buffer] = round + 1;
}

Status SyncRounds::Add(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kEnter) {
    MV_RETURN_IF_NOT_OK(shard_->Touch(request, limit));
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kAdd, "add", limit));
    progress->phase = kStage;
  }
  int buffer = 0;
  const void* const whole = IsOfRows(request.kind) ? nullptr : request.delta;
  MV_RETURN_IF_NOT_OK(WaitForBuffer(whole, "add", limit, &buffer));
  if (IsOfRows(request.kind)) {
    const int64_t staged =
        staging_.StageRows(clocks_.me(), buffer, request.row_ids, request.num_ids, request.delta);
    Describe(/*is_rows=*/true, buffer, staged, /*keeps_own_block=*/false);
  } else {
    StageWhole(buffer, request.delta, /*keeps_own_block=*/false);
  }
  clocks_.CountAdd();
  return Status::Ok();
}

// ---- Getting ------------------------------------------------------------------------------------

Status SyncRounds::Settle(const WaitLimit& limit) {
  const uint64_t rounds = clocks_.CompleteRounds();
  return rounds == 0 ? Status::Ok() : WaitForRound(rounds - 1, "save", limit);
}

Status SyncRounds::GetComplete(const Request& request, const WaitLimit& limit) {
  for (;;) {
    const uint64_t rounds = clocks_.CompleteRounds();
    if (rounds > 0) MV_RETURN_IF_NOT_OK(WaitForRound(rounds - 1, "get", limit));
    shard_->CopyUnlocked(request);
    std::atomic_thread_fence(std::memory_order_acquire);
    // If no worker began another round during the copy, the copy is one consistent state.
    const bool is_unchanged = std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return block.words->claimed.load(std::memory_order_relaxed) ==
             rounds * static_cast<uint64_t>(block.stripes);
    });
    if (is_unchanged) return Status::Ok();
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    "no consistent state to read: other workers applied rounds without a pause");
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

Status SyncRounds::AwaitState(const char* call, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kEnter) {
    MV_RETURN_IF_NOT_OK(clocks_.Tick(TickKind::kGet, call, limit));
    progress->phase = kSum;
  }
  return clocks_.my_adds() == 0 ? Status::Ok() : WaitForRound(clocks_.my_adds() - 1, call, limit);
}

Status SyncRounds::Get(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (request.IsPeek() || clocks_.i_have_finished()) return GetComplete(request, limit);
  MV_RETURN_IF_NOT_OK(AwaitState("get", progress, limit));
  shard_->CopyUnlocked(request);
  return Status::Ok();
}

Status SyncRounds::View(const void** values, Progress* progress, const WaitLimit& limit) {
  // After this worker has finished, the others change the parameters at any time.
  *values = clocks_.i_have_finished() ? nullptr : shard_->values();
  if (*values == nullptr) return Status::Ok();
  // The view shows the parameters themselves, so all rows must be there.
  MV_RETURN_IF_NOT_OK(shard_->Touch(Request::Touch(), limit));
  return AwaitState("view", progress, limit);
}

Status SyncRounds::AddGet(const Request& request, Progress* progress, const WaitLimit& limit) {
  constexpr char kCall[] = "add_get";
  switch (progress->phase) {
    case kEnter:
      MV_RETURN_IF_NOT_OK(shard_->Touch(Request::Touch(), limit));
      MV_RETURN_IF_NOT_OK(clocks_.MayTick(kCall, limit));
      progress->phase = kStage;
      [[fallthrough]];
    case kStage: {
      int buffer = 0;
      MV_RETURN_IF_NOT_OK(WaitForBuffer(request.delta, kCall, limit, &buffer));
      // The delta is staged first and both ticks are then made together, so that other workers
      // need to fetch this worker's clock only once.
      StageWhole(buffer, request.delta, /*keeps_own_block=*/true);
      MV_RETURN_IF_NOT_OK(clocks_.Advance(TickKind::kAdd));
      clocks_.CountAdd();
      MV_RETURN_IF_NOT_OK(clocks_.Advance(TickKind::kGet));
      progress->phase = kSum;
      [[fallthrough]];
    }
    default:
      break;
  }
  const uint64_t round = clocks_.my_adds() - 1;
  auto* const out = static_cast<char*>(request.out);
  const OwnBlock own{static_cast<const char*>(request.delta), out};
  // progress->done counts the blocks that have been written to `out`.
  for (; progress->done < clocks_.workers(); ++progress->done) {
    const int owner = (clocks_.me() + static_cast<int>(progress->done)) % clocks_.workers();
    const bool is_own = owner == clocks_.me();
    MV_RETURN_IF_NOT_OK(WaitForBlock(owner, round, is_own ? own : OwnBlock{}, kCall, limit));
    // The new values of this worker's own block are in `out` already, unless another worker added
    // rows in this round, because a sum by rows does not write to `out`.
    if (!is_own || !own_block_is_out_) {
      ForElementsOf(blocks_[static_cast<size_t>(owner)],
                    [&](int64_t first, int64_t count, int64_t offset) {
                      shard_->Copy(first, count, out + offset);
                    });
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
