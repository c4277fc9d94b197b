#include "consistency/local_sum.h"

#include <algorithm>
#include <utility>

#include "base/copy_bytes.h"
#include "memory/streaming_copy.h"

namespace multiverso {
namespace {

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

// Returns whether each worker, on a core of its own, sums all deltas of an add_get itself. Two
// workers fetch no more from each other than if each sums a half and fetches the other sum, but
// larger tables and their copies leave the caches. More workers fetch more.
bool IsSmall(const StagedShape& shape, const Shard& shard, int workers) {
  const int64_t most_bytes = workers == 2 ? int64_t{512} << 10 : (int64_t{64} << 10) / workers;
  if (workers == 1 || shape.layout.bytes() > most_bytes) return false;
  return shard.values() != nullptr && shard.updater().ApplySum(Update(), nullptr);
}

}  // namespace

LocalSum::LocalSum(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks)
    : Rounds(shard->counts_steps() ? shape : InSmallerStripes(shape, clocks.workers()), base, shard,
             std::move(clocks)),
      sum_(SegmentGrid(shape_.layout.rows(), shape_.columns, shape_.element_bytes()),
           Reduction::Sum(shape_.dtype), clocks_.workers()),
      scratch_(static_cast<size_t>(RoundSum::kElementsAtATime * shape_.element_bytes())) {
  const int workers = clocks_.workers();
  auto* const words = memory_.words<BlockWords>();
  const int64_t stripes = shape_.layout.stripes();
  // A worker that has claimed a stripe must not fail for lack of memory, since others wait for it.
  sources_.reserve(static_cast<size_t>(workers));
  for (int i = 0; i < workers; ++i) {
    const int64_t first = stripes * i / workers;
    blocks_.push_back(Block{first, stripes * (i + 1) / workers - first, words + i});
  }
  is_small_ = IsSmall(shape_, *shard, workers);
  // Whether there are cores is not the same for all ranks if containers show them different
  // numbers. The pages of a copy that is never made are never touched.
  if (is_small_ && clocks_.context()->memory()->HasCoreForEachRank()) {
    copy_.reset(new char[shape_.layout.bytes()]);
  }
}

// ---- Summing ------------------------------------------------------------------------------------

uint64_t LocalSum::CurrentRound(const Block& block) const {
  return block.words->done.load(std::memory_order_acquire) / static_cast<uint64_t>(block.stripes);
}

bool LocalSum::IsApplied(const Block& block, uint64_t round) const {
  return block.words->done.load(std::memory_order_acquire) >=
         (round + 1) * static_cast<uint64_t>(block.stripes);
}

bool LocalSum::CanSumBlock(int owner, uint64_t round) const {
  const Block& block = blocks_[static_cast<size_t>(owner)];
  const uint64_t end = (round + 1) * static_cast<uint64_t>(block.stripes);
  if (block.words->claimed.load(std::memory_order_relaxed) >= end) return false;
  if (!clocks_.AllHavePassed(round)) return false;
  // If a block's owner is in add_get, which does not stage the block, only the owner can sum.
  return owner == clocks_.me() || clocks_.adds(owner) <= round ||
         memory_.staging().add_of(owner, round)->own_block.load(std::memory_order_relaxed) ==
             SummedBy::kAnyWorker;
}

void LocalSum::CollectSources(uint64_t round, const OwnBlock& own) {
  sources_.clear();
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    if (clocks_.adds(worker) <= round) continue;  // the worker had finished before the round
    sources_.push_back(memory_.staging().SourceOf(worker, worker, round));
    if (worker == clocks_.me() && own.delta != nullptr) {
      sources_.back() = DeltaSource::Whole(worker, own.delta);
    }
  }
}

void LocalSum::SumStripe(int64_t stripe, char* out) {
  const int64_t first = shape_.layout.first_row(stripe);
  const int64_t end = shape_.layout.end_row(stripe);
  const auto at = [&](int64_t element) {
    return out == nullptr ? nullptr : out + element * shape_.element_bytes();
  };
  const auto apply = [&](int64_t element, int64_t count, const char* a, const char* b) {
    return b != nullptr && shard_->ApplySum(element, a, b, at(element), count);
  };
  if (AllAreWhole(sources_) && sum_.SumAllButLastStep(sources_, first, end, apply)) return;
  for (DeltaSource& source : sources_) source.SeekRow(sum_.grid(), first);
  sum_.Sum(
      &sources_, first, end, [](int64_t, int64_t) { return true; },
      [&](int64_t element, int64_t count, const char* sum, int64_t terms) {
        shard_->Apply(element, sum, terms, at(element), count, scratch_.data());
      });
}

void LocalSum::SumBlock(int owner, uint64_t round, const OwnBlock& own) {
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
    // Rounds::GetComplete reads parameters that may change. If it sees a write to this stripe, it
    // must also see this claim, so that it discards its copy.
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

bool LocalSum::CanSumInCopy(uint64_t round) const {
  bool is_sum = false;
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    if (worker == clocks_.me() || clocks_.adds(worker) <= round) continue;
    const StagedAdd& add = *memory_.staging().add_of(worker, round);
    if (add.is_rows != 0 || add.buffer == Staging::kDeltaBuffer ||
        add.own_block.load(std::memory_order_relaxed) == SummedBy::kOwnerAlone) {
      return false;
    }
    is_sum = true;
  }
  return is_sum;
}

void LocalSum::SumInCopy(const Block& block, char* out) {
  const int64_t first = shape_.layout.first_row(block.first_stripe);
  const int64_t end = shape_.layout.end_row(block.first_stripe + block.stripes - 1);
  (void)sum_.SumAllButLastStep(sources_, first, end,
                               [&](int64_t element, int64_t count, const char* a, const char* b) {
                                 const int64_t at = element * shape_.element_bytes();
                                 Update update;
                                 update.weights = copy_.get() + at;
                                 update.delta = a;
                                 update.out = out + at;
                                 update.count = count;
                                 return shard_->updater().ApplySum(update, b);
                               });
}

Status LocalSum::WaitForBlock(int owner, uint64_t round, const OwnBlock& own, const char* call,
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
    MV_RETURN_IF_NOT_OK(wait_.Await(
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

bool LocalSum::HasSummed(uint64_t rounds) const {
  return rounds == 0 || std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
           return IsApplied(block, rounds - 1);
         });
}

Status LocalSum::AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) {
  for (int i = 0; rounds > 0 && i < clocks_.workers(); ++i) {
    const int owner = (clocks_.me() + i) % clocks_.workers();
    MV_RETURN_IF_NOT_OK(WaitForBlock(owner, rounds - 1, OwnBlock{}, call, limit));
  }
  return Status::Ok();
}

bool LocalSum::HasBegun(uint64_t rounds) const {
  // The values that were read before are those before any change that is seen to have begun.
  std::atomic_thread_fence(std::memory_order_acquire);
  return !std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return block.words->claimed.load(std::memory_order_relaxed) ==
           rounds * static_cast<uint64_t>(block.stripes);
  });
}

Status LocalSum::AwaitComplete(uint64_t /*sync_point*/, const char* call, const WaitLimit& limit,
                               uint64_t* rounds) {
  *rounds = clocks_.CompleteRounds();
  return AwaitSummed(*rounds, call, limit);
}

// ---- Copying -----------------------------------------------------------------------------------

template <class Copy>
void LocalSum::ForElementsOf(const Block& block, const Copy& copy) const {
  if (block.stripes == 0) return;
  const StripeLayout& layout = shape_.layout;
  const int64_t begin = layout.first_row(block.first_stripe) * shape_.columns;
  const int64_t end = layout.end_row(block.first_stripe + block.stripes - 1) * shape_.columns;
  copy(begin, end - begin, begin * shape_.element_bytes());
}

SummedBy LocalSum::StageWhole(const Request& request, char* to) {
  const bool is_exchange = request.kind == RequestKind::kExchange;
  const bool stages_all = request.kind == RequestKind::kAdd || (!is_exchange && copy_ != nullptr);
  // A store to a line that another core has read waits for that core, one line after the other.
  // That takes several times as long as to read lines from memory, except for a few lines.
  const bool streams = copy_ != nullptr && shape_.layout.bytes() > kPage;
  const auto* const delta = static_cast<const char*>(request.delta);
  for (int i = 0; i < clocks_.workers() && to != nullptr; ++i) {
    // This worker's own block is staged last, because the worker begins to sum with that block.
    const int owner = (clocks_.me() + 1 + i) % clocks_.workers();
    const bool is_kept = !stages_all && owner == clocks_.me();
    if (is_kept && !is_exchange) continue;
    const auto stage = [&](int64_t first, int64_t count, int64_t offset) {
      if (is_exchange) {
        const TensorExchange exchange = ExchangeOf(request);
        exchange.TakeDelta(first, count, is_kept ? exchange.last(first) : to + offset);
        return;
      }
      const int64_t bytes = count * shape_.element_bytes();
      if (streams) return StreamingCopy(to + offset, delta + offset, bytes);
      CopyBytes(to + offset, delta + offset, static_cast<size_t>(bytes));
    };
    ForElementsOf(blocks_[static_cast<size_t>(owner)], stage);
  }
  if (!stages_all) return SummedBy::kOwnerAlone;
  return request.kind == RequestKind::kAdd ? SummedBy::kAnyWorker : SummedBy::kOwner;
}

Status LocalSum::Read(const Request& request, uint64_t rounds, const char* call,
                      const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(AwaitSummed(rounds, call, limit));
  shard_->CopyUnlocked(request);
  return Status::Ok();
}

Status LocalSum::ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) {
  auto* const out = static_cast<char*>(request.out);
  const bool is_exchange = request.kind == RequestKind::kExchange;
  const OwnBlock own{static_cast<const char*>(request.delta), out};
  const uint64_t round = rounds - 1;
  bool sums_in_copy = !is_exchange && copied_rounds_ == round;
  if (sums_in_copy) {
    MV_RETURN_IF_NOT_OK(wait_.AwaitCalls(
        NameOf(request.kind), limit, [&](int worker) { return clocks_.HasPassed(worker, round); }));
    sums_in_copy = CanSumInCopy(round);
  }
  for (int i = 0; i < clocks_.workers(); ++i) {
    const int owner = (clocks_.me() + i) % clocks_.workers();
    const bool is_own = owner == clocks_.me();
    const Block& block = blocks_[static_cast<size_t>(owner)];
    if (block.stripes == 0) continue;
    if (sums_in_copy && !is_own) {
      CollectSources(round, own);
      SumInCopy(block, out);
      continue;
    }
    MV_RETURN_IF_NOT_OK(
        WaitForBlock(owner, round, is_own ? own : OwnBlock{}, NameOf(request.kind), limit));
    // The new values of this worker's own block are in `out` already, unless another worker added
    // rows in this round, because a sum by rows does not write to `out`.
    const bool is_out = is_own && own_block_is_out_;
    if (is_out && !is_exchange) continue;
    ForElementsOf(block, [&](int64_t first, int64_t count, int64_t offset) {
      if (!is_exchange) return shard_->Copy(first, count, out + offset);
      const TensorExchange exchange = ExchangeOf(request);
      for (int64_t end = first + count; first < end; first += exchange.kPiece) {
        const int64_t piece = std::min(exchange.kPiece, end - first);
        if (!is_out) shard_->Copy(first, piece, exchange.last(first));
        exchange.Settle(first, piece);
      }
    });
  }
  if (copy_ != nullptr && !is_exchange) {
    if (!sums_in_copy) CopyBytes(copy_.get(), out, static_cast<size_t>(shape_.layout.bytes()));
    copied_rounds_ = rounds;
  }
  return Status::Ok();
}

}  // namespace multiverso
