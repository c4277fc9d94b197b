#include "sum/local_aggregation.h"

#include <algorithm>
#include <utility>

#include "base/copy_bytes.h"
#include "sum/element_sum.h"

namespace multiverso {
namespace {

// For smaller arrays a second collective would cost more than summing all parts on every worker.
constexpr int64_t kSmallBytes = int64_t{16} << 10;

}  // namespace

Status LocalAggregation::Run(const WaitLimit& limit) {
  std::vector<int> remaining;
  for (const int rank : ranks_) {
    if (!context_->peers()->IsExcluded(rank)) remaining.push_back(rank);
  }
  SumOver(std::move(remaining));
  for (; done_ < chunks_; ++done_) {
    MV_RETURN_IF_NOT_OK(StageTogether(limit));
    if (ranks_.size() == 1) break;
    MV_RETURN_IF_NOT_OK(SumChunk(limit));
  }
  state_->area ^= 1;
  return Status::Ok();
}

void LocalAggregation::SumOver(std::vector<int> ranks) {
  ranks_ = std::move(ranks);
  me_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), context_->members().rank()) -
                         ranks_.begin());
}

Status LocalAggregation::StageTogether(const WaitLimit& limit) {
  for (;;) {
    StageChunk();
    MV_RETURN_IF_NOT_OK(Meet(limit));
    if (done_ > 0) return CheckAllCame();
    if (AllStagedForThese()) return Status::Ok();
    SumOver(context_->workers()->participants());
  }
}

Status LocalAggregation::CheckAllCame() const {
  return context_->workers()->CheckTookPart(
      ranks_, " in the middle of aggregate: a part of the array has been summed");
}

int64_t LocalAggregation::ChunkBegin() const {
  return (state_->area == 0 ? done_ : chunks_ - 1 - done_) * in_chunk_;
}

int64_t LocalAggregation::ChunkCount() const { return std::min(count_ - ChunkBegin(), in_chunk_); }

bool LocalAggregation::IsSmall() const { return count_ * element_bytes() <= kSmallBytes; }

void LocalAggregation::StageChunk() {
  char* const to = scratch(context_->members().rank());
  if (IsSmall()) return Copy(element(ChunkBegin()), 0, ChunkCount(), to);
  Copy(element(ChunkBegin()), 0, PartBegin(me_), to);
  Copy(element(ChunkBegin()), PartBegin(me_ + 1), ChunkCount(), to);
}

void LocalAggregation::Copy(const char* from, int64_t begin, int64_t end, char* to) const {
  CopyBytes(to + begin * element_bytes(), from + begin * element_bytes(),
            static_cast<size_t>((end - begin) * element_bytes()));
}

Status LocalAggregation::SumChunk(const WaitLimit& limit) {
  if (IsSmall()) {
    SumPart(0, ChunkCount());
    return Status::Ok();
  }
  SumPart(PartBegin(me_), PartBegin(me_ + 1));
  MV_RETURN_IF_NOT_OK(
      context_->workers()->Allgather(CollectiveKind::kAggregate, Status::Ok(), limit));
  MV_RETURN_IF_NOT_OK(CheckAllCame());
  TakeOthersParts();
  return Status::Ok();
}

int64_t LocalAggregation::PartBegin(int place) const {
  // Parts begin at cache lines, so that no two workers write to the same cache line.
  const int64_t line = 64 / element_bytes();
  const auto workers = static_cast<int64_t>(ranks_.size());
  if (place == workers) return ChunkCount();
  return ChunkCount() / line * place / workers * line;
}

void LocalAggregation::SumPart(int64_t begin, int64_t end) {
  const Membership& members = context_->members();
  char* const mine = element(ChunkBegin());
  std::vector<PairwiseSum::Term> terms;
  for (const int rank : ranks_) {
    const char* const from = rank == members.rank() ? mine : scratch(rank);
    terms.push_back({members.worker_id(rank), from + begin * element_bytes()});
  }
  ElementSum sum(reduction_, static_cast<int>(context_->workers()->members().size()), end - begin);
  sum.Store(terms, end - begin, mine + begin * element_bytes(), [&](int64_t at, int64_t count) {
    if (IsSmall()) return;  // every worker sums a small array itself
    for (const int rank : ranks_) {
      if (rank != members.rank()) Copy(mine, begin + at, begin + at + count, scratch(rank));
    }
  });
}

void LocalAggregation::TakeOthersParts() {
  const char* const from = scratch(context_->members().rank());
  Copy(from, 0, PartBegin(me_), element(ChunkBegin()));
  Copy(from, PartBegin(me_ + 1), ChunkCount(), element(ChunkBegin()));
}

}  // namespace multiverso
