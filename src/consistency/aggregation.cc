#include "consistency/aggregation.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "consistency/aggregate_call.h"
#include "shard/kernels.h"

namespace multiverso {
namespace {

// For smaller arrays a second collective would cost more than summing all parts on every worker.
constexpr int64_t kSmallBytes = int64_t{16} << 10;

// The number of bytes summed at a time. A sum of this size stays in the first-level cache until it
// has been copied to every worker.
constexpr int64_t kPieceBytes = int64_t{8} << 10;

uint64_t DigestOf(const std::vector<int>& ranks) {
  uint64_t digest = ranks.size();
  for (const int rank : ranks) digest = (digest + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15;
  return digest;
}

}  // namespace

Aggregation::Aggregation(RankContext* context, NextScratchArea* next, DType dtype, void* data,
                         int64_t count)
    : context_(context),
      next_(next),
      dtype_(dtype),
      data_(static_cast<char*>(data)),
      count_(count),
      in_chunk_(NodeMemory::kScratchAreaBytes / SizeOf(dtype)),
      chunks_(std::max(DivideUp(count, in_chunk_), int64_t{1})) {
  std::vector<int> ranks;
  for (const int rank : context_->workers()->members()) {
    if (!context_->peers()->IsExcluded(rank)) ranks.push_back(rank);
  }
  SumOver(std::move(ranks));
}

Status Aggregation::Run(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  for (; done_ < chunks_; ++done_) {
    MV_RETURN_IF_NOT_OK(StageTogether(limit));
    if (workers_ == 1) break;
    if (IsSmall()) {
      SumPart(0, ChunkCount());
      break;
    }
    SumPart(PartBegin(me_), PartBegin(me_ + 1));
    workers->BeginAllgather(CollectiveKind::kAggregate);
    MV_RETURN_IF_NOT_OK(workers->Wait(limit));
    MV_RETURN_IF_NOT_OK(CheckAllCame(workers->participants()));
    CopyOthersParts();
  }
  next_->area ^= 1;
  return Status::Ok();
}

Status Aggregation::StageTogether(const WaitLimit& limit) {
  for (;;) {
    StageChunk();
    MV_RETURN_IF_NOT_OK(context_->workers()->Wait(limit));
    const std::vector<int> present = context_->workers()->participants();
    if (done_ > 0) MV_RETURN_IF_NOT_OK(CheckAllCame(present));
    MV_RETURN_IF_NOT_OK(AggregateCall::CheckSame(*context_->workers()));
    if (done_ > 0 || AllStagedFor(present)) return Status::Ok();
    SumOver(present);
  }
}

void Aggregation::SumOver(std::vector<int> ranks) {
  ranks_ = std::move(ranks);
  workers_ = static_cast<int>(ranks_.size());
  me_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), context_->members().rank()) -
                         ranks_.begin());
}

char* Aggregation::scratch(int worker) const {
  return context_->memory()->scratch(ranks_[static_cast<size_t>(worker)], next_->area);
}

int64_t Aggregation::ChunkBegin() const {
  return (next_->area == 0 ? done_ : chunks_ - 1 - done_) * in_chunk_;
}

int64_t Aggregation::ChunkCount() const { return std::min(count_ - ChunkBegin(), in_chunk_); }

int64_t Aggregation::PartBegin(int worker) const {
  // Parts begin at cache lines, so that no two workers write to the same cache line.
  const int64_t line = 64 / SizeOf(dtype_);
  if (worker == workers_) return ChunkCount();
  return ChunkCount() / line * worker / workers_ * line;
}

bool Aggregation::IsSmall() const { return count_ * SizeOf(dtype_) <= kSmallBytes; }

void Aggregation::StageChunk() {
  const int64_t size = SizeOf(dtype_);
  const char* const from = data_ + ChunkBegin() * size;
  const auto stage = [&](int64_t begin, int64_t end) {
    if (begin == end) return;  // an empty array may have no memory
    std::memcpy(scratch(me_) + begin * size, from + begin * size,
                static_cast<size_t>((end - begin) * size));
  };
  if (IsSmall()) {
    stage(0, ChunkCount());
  } else {
    stage(0, PartBegin(me_));
    stage(PartBegin(me_ + 1), ChunkCount());
  }
  AggregateCall{count_, static_cast<int32_t>(dtype_), 0, DigestOf(ranks_)}.Announce(
      context_->workers());
}

bool Aggregation::AllStagedFor(const std::vector<int>& present) const {
  const uint64_t digest = DigestOf(present);
  return std::all_of(present.begin(), present.end(), [&](int rank) {
    return AggregateCall::Of(*context_->workers(), rank).ranks_digest == digest;
  });
}

Status Aggregation::CheckAllCame(const std::vector<int>& present) const {
  for (const int rank : ranks_) {
    if (std::find(present.begin(), present.end(), rank) != present.end()) continue;
    return context_->peers()->About(
        rank,
        Status(Code::kPeerLost,
               StrCat(context_->members().NameRank(rank), " ", context_->peers()->ExitReason(rank),
                      " in the middle of aggregate: a part of the array has been summed")));
  }
  return Status::Ok();
}

void Aggregation::SumPart(int64_t begin, int64_t end) {
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
    T* const mine = reinterpret_cast<T*>(data_) + ChunkBegin();
    T sum[kPiece];
    for (; begin < end; begin += kPiece) {
      const int64_t count = std::min(kPiece, end - begin);
      const auto bytes = static_cast<size_t>(count) * sizeof(T);
      const auto staged = [&](int worker) { return reinterpret_cast<T*>(scratch(worker)) + begin; };
      const auto part = [&](int worker) { return worker == me_ ? mine + begin : staged(worker); };
      kernels::Sum(sum, part(0), part(1), count);
      for (int worker = 2; worker < workers_; ++worker) kernels::Add(sum, part(worker), count);
      std::memcpy(mine + begin, sum, bytes);
      if (IsSmall()) continue;  // every worker sums a small array itself
      for (int worker = 0; worker < workers_; ++worker) {
        if (worker != me_) std::memcpy(staged(worker), sum, bytes);
      }
    }
  });
}

void Aggregation::CopyOthersParts() {
  const int64_t size = SizeOf(dtype_);
  char* const to = data_ + ChunkBegin() * size;
  const auto copy = [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin * size, scratch(me_) + begin * size,
                static_cast<size_t>((end - begin) * size));
  };
  copy(0, PartBegin(me_));
  copy(PartBegin(me_ + 1), ChunkCount());
}

}  // namespace multiverso
