#include "sum/local_aggregation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sum/pairwise_sum.h"

namespace multiverso {
namespace {

// For smaller arrays a second collective would cost more than summing all parts on every worker.
constexpr int64_t kSmallBytes = int64_t{16} << 10;
// The number of bytes summed at a time. A sum of this size stays in the first-level cache until it
// has been copied to every worker.
constexpr int64_t kBytesAtATime = int64_t{8} << 10;

}  // namespace

Status LocalAggregation::RunChunks(const WaitLimit& limit) {
  for (; done_ < chunks_; ++done_) {
    MV_RETURN_IF_NOT_OK(StageTogether(/*is_first=*/done_ == 0, limit));
    if (ranks_.size() == 1) break;
    MV_RETURN_IF_NOT_OK(SumChunk(limit));
  }
  state_->area ^= 1;
  return Status::Ok();
}

void LocalAggregation::SumOver(std::vector<int> ranks) {
  Aggregation::SumOver(std::move(ranks));
  me_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), context_->members().rank()) -
                         ranks_.begin());
}

int64_t LocalAggregation::ChunkBegin() const {
  return (state_->area == 0 ? done_ : chunks_ - 1 - done_) * in_chunk_;
}

int64_t LocalAggregation::ChunkCount() const { return std::min(count_ - ChunkBegin(), in_chunk_); }

bool LocalAggregation::IsSmall() const { return count_ * value_bytes() <= kSmallBytes; }

void LocalAggregation::StageChunk() {
  const int64_t begin = ChunkBegin();
  char* const to = scratch(context_->members().rank());
  if (IsSmall() || !is_summed_as_it_is()) return Stage(begin, ChunkCount(), to);
  Stage(begin, PartBegin(me_), to);
  const int64_t next = PartBegin(me_ + 1);
  Stage(begin + next, ChunkCount() - next, to + next * value_bytes());
}

Status LocalAggregation::SumChunk(const WaitLimit& limit) {
  if (IsSmall()) {
    SumPart(0, ChunkCount());
    return Status::Ok();
  }
  SumPart(PartBegin(me_), PartBegin(me_ + 1));
  Group* const workers = context_->workers();
  workers->BeginAllgather(CollectiveKind::kAggregate);
  MV_RETURN_IF_NOT_OK(workers->Wait(limit));
  MV_RETURN_IF_NOT_OK(CheckAllCame());
  TakeOthersParts();
  return Status::Ok();
}

int64_t LocalAggregation::PartBegin(int place) const {
  // Parts begin at cache lines, so that no two workers write to the same cache line.
  const int64_t line = 64 / value_bytes();
  const auto workers = static_cast<int64_t>(ranks_.size());
  if (place == workers) return ChunkCount();
  return ChunkCount() / line * place / workers * line;
}

void LocalAggregation::SumPart(int64_t begin, int64_t end) {
  const int64_t size = value_bytes();
  const int64_t at_a_time = std::min(kBytesAtATime / size, end - begin);
  const Membership& members = context_->members();
  const char* const mine = is_summed_as_it_is() ? element(ChunkBegin()) : scratch(members.rank());
  const auto workers = static_cast<int>(context_->workers()->members().size());
  PairwiseSum sum(reduction_, workers, at_a_time);
  std::vector<PairwiseSum::Term> terms(ranks_.size());
  for (; begin < end; begin += at_a_time) {
    const int64_t count = std::min(at_a_time, end - begin);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const bool is_me = static_cast<int>(i) == me_;
      terms[i] = {members.worker_id(ranks_[i]), (is_me ? mine : scratch(ranks_[i])) + begin * size};
    }
    const char* const total = sum.Of(terms, count);
    Take(ChunkBegin() + begin, count, total);
    if (IsSmall()) continue;  // every worker sums a small array itself
    for (const int rank : ranks_) {
      if (rank == members.rank()) continue;
      std::memcpy(scratch(rank) + begin * size, total, static_cast<size_t>(count * size));
    }
  }
}

void LocalAggregation::TakeOthersParts() {
  const char* const from = scratch(context_->members().rank());
  const auto take = [&](int64_t begin, int64_t end) {
    Take(ChunkBegin() + begin, end - begin, from + begin * value_bytes());
  };
  take(0, PartBegin(me_));
  take(PartBegin(me_ + 1), ChunkCount());
}

}  // namespace multiverso
