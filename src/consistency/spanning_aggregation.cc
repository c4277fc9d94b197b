#include "consistency/spanning_aggregation.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "consistency/aggregate_call.h"
#include "memory/futex.h"
#include "shard/kernels.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564147;
// A chunk consists of several pieces, so that all links are busy at once.
constexpr int64_t kPieceBytes = int64_t{64} << 10;
constexpr auto kCheckInterval = std::chrono::milliseconds(50);
constexpr auto kLongestNap = std::chrono::milliseconds(2);
// A leader polls for this long before it sleeps, because a short wait takes about as long even on
// machines with more threads than cores.
constexpr std::chrono::microseconds kEager{1000};

}  // namespace

std::unique_ptr<ChainLink> SpanningAggregation::MakeLink(RankContext* context) {
  const std::vector<int> chain = context->members().worker_leaders();
  const auto me = static_cast<size_t>(
      std::find(chain.begin(), chain.end(), context->members().rank()) - chain.begin());
  if (me == chain.size()) return nullptr;
  return std::make_unique<ChainLink>(
      context->control_channel()->messenger(), me == 0 ? -1 : chain[me - 1],
      me + 1 == chain.size() ? -1 : chain[me + 1], kAggregateTag, ChainPiece::RoomFor(kPieceBytes));
}

SpanningAggregation::SpanningAggregation(RankContext* context, ChainLink* link, DType dtype,
                                         void* data, int64_t count)
    : context_(context),
      link_(link),
      dtype_(dtype),
      data_(static_cast<char*>(data)),
      count_(count),
      in_chunk_(NodeMemory::kScratchAreaBytes / SizeOf(dtype)),
      chunks_((count + in_chunk_ - 1) / in_chunk_),
      ranks_here_(context->node_workers()->members()),
      leader_(context->members().leader_of(context->members().node())),
      began_(Clock::now()) {}

char* SpanningAggregation::scratch(int rank, int64_t chunk) const {
  return context_->memory()->scratch(context_->members().local_rank_of(rank),
                                     static_cast<int>(chunk % 2));
}

int64_t SpanningAggregation::ChunkEnd(int64_t chunk) const {
  return std::min(count_, (chunk + 1) * in_chunk_);
}

void SpanningAggregation::Stage(int64_t chunk) {
  // The leader sums from its own array, so it does not stage a chunk.
  if (chunk >= chunks_ || context_->members().rank() == leader_) return;
  const int64_t begin = chunk * in_chunk_;
  std::memcpy(scratch(context_->members().rank(), chunk), data_ + Bytes(begin),
              static_cast<size_t>(Bytes(ChunkEnd(chunk) - begin)));
}

void SpanningAggregation::CopyTotal(int64_t chunk) {
  if (chunk < 0 || context_->members().rank() == leader_) return;
  const int64_t begin = chunk * in_chunk_;
  std::memcpy(data_ + Bytes(begin), scratch(leader_, chunk),
              static_cast<size_t>(Bytes(ChunkEnd(chunk) - begin)));
}

Status SpanningAggregation::Run(const WaitLimit& limit) {
  Stage(0);
  AggregateCall{count_, static_cast<int32_t>(dtype_), 0, 0}.Announce(context_->workers());
  for (;; ++chunk_) {
    MV_RETURN_IF_NOT_OK(Meet(limit));
    if (chunk_ == 0) MV_RETURN_IF_NOT_OK(AggregateCall::CheckSame(*context_->workers()));
    CopyTotal(chunk_ - 1);
    if (chunk_ == chunks_) return Status::Ok();
    Stage(chunk_ + 1);
    backoff_.emplace(kLongestNap);
    if (context_->members().rank() == leader_) MV_RETURN_IF_NOT_OK(SumAsLeader(limit));
    context_->node_workers()->BeginAllgather(CollectiveKind::kAggregate);
  }
}

Status SpanningAggregation::Meet(const WaitLimit& limit) {
  Group* const group = chunk_ == 0 ? context_->workers() : context_->node_workers();
  for (;;) {
    const Status met =
        group->Wait(WaitLimit{limit.deadline, Clock::now() + kCheckInterval, limit.interrupt});
    if (!met.pending()) return met;
    // This node's leader may be waiting for a lost rank of another node.
    if (chunk_ > 0) MV_RETURN_IF_NOT_OK(CheckForLosses());
  }
}

Status SpanningAggregation::CheckForLosses() const {
  for (const int rank : context_->workers()->members()) {
    const std::string reason = context_->peers()->ExitReason(rank);
    if (reason.empty()) continue;
    return context_->state()->ReportLost(
        rank, StrCat(context_->members().NameRank(rank), " ", reason, " while rank ",
                     context_->members().rank(), " waited for it in aggregate"));
  }
  return Status::Ok();
}

// ---- The leader ---------------------------------------------------------------------------------

Status SpanningAggregation::StepLink(bool* any) {
  MV_RETURN_IF_NOT_OK(link_->Advance());
  MV_RETURN_IF_NOT_OK(StepDown(any));
  return StepUp(any);
}

Status SpanningAggregation::SumAsLeader(const WaitLimit& limit) {
  Instant next_check = Clock::now() + kCheckInterval;
  while (summed_ < ChunkEnd(chunk_)) {
    bool any = false;
    const Status stepped = failure_.is_set() ? failure_.Get() : failure_.Defer(StepLink(&any));
    if (!stepped.ok() && !stepped.pending()) return stepped;
    const Instant now = Clock::now();
    if (now >= next_check) {
      next_check = now + kCheckInterval;
      MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
      MV_RETURN_IF_NOT_OK(CheckForLosses());
    }
    if (any) {
      backoff_->Reset();
      continue;
    }
    if (now >= limit.deadline) {
      const std::vector<int> awaited = Awaited();
      Status timeout(
          Code::kTimeout,
          StrCat("rank ", context_->members().rank(), " waited ", SecondsBetween(began_, now),
                 " s in aggregate for the sums of ", NameRanks(awaited),
                 awaited.empty() ? "" : context_->peers()->Trace(awaited[0])));
      if (!awaited.empty()) timeout = context_->peers()->About(awaited[0], timeout);
      context_->state()->Abort(timeout);
      return timeout;
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    const auto nap = backoff_->Next(now, kEager);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
  return Status::Ok();
}

std::vector<int> SpanningAggregation::Awaited() const {
  const std::vector<int> chain = context_->members().worker_leaders();
  const auto me = std::find(chain.begin(), chain.end(), context_->members().rank());
  const bool from_before = link_->has(ChainLink::kPrevious) && sent_ < ChunkEnd(chunk_);
  return from_before ? std::vector<int>(chain.begin(), me) : std::vector<int>(me + 1, chain.end());
}

Status SpanningAggregation::StepDown(bool* any) {
  const bool is_last = !link_->has(ChainLink::kNext);
  const auto to = is_last ? ChainLink::kPrevious : ChainLink::kNext;
  if (sent_ == ChunkEnd(chunk_) || (link_->has(to) && !link_->CanSend(to))) return Status::Ok();
  std::unique_ptr<ChainPiece> piece;
  if (link_->has(ChainLink::kPrevious)) {
    MV_RETURN_IF_NOT_OK(link_->Take(ChainLink::kPrevious, &piece));
    if (piece == nullptr) return Status::Ok();
    MV_RETURN_IF_NOT_OK(Check(*piece, ChainLink::kPrevious, sent_));
  } else {
    piece = link_->NewPiece();
    const int64_t end = std::min(ChunkEnd(chunk_), sent_ + kPieceBytes / SizeOf(dtype_));
    *piece->header() = PieceHeader{kMagic, 0, 0, 0, -1, 0, sent_, end, 0};
    piece->bytes = static_cast<int64_t>(sizeof(PieceHeader)) + Bytes(end - sent_);
  }
  AddOwn(piece.get());
  sent_ = piece->header()->end;
  *any = true;
  return is_last ? PassBack(std::move(piece)) : link_->Send(ChainLink::kNext, std::move(piece));
}

void SpanningAggregation::AddOwn(ChainPiece* piece) {
  const int64_t first = piece->header()->first;
  const int64_t count = piece->header()->end - first;
  bool is_begun = link_->has(ChainLink::kPrevious);
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    T* const sum = reinterpret_cast<T*>(piece->values());
    for (const int rank : ranks_here_) {
      const T* const part = rank == leader_ ? reinterpret_cast<const T*>(data_) + first
                                            : reinterpret_cast<const T*>(scratch(rank, chunk_)) +
                                                  (first - chunk_ * in_chunk_);
      if (is_begun) {
        kernels::Add(sum, part, count);
      } else {
        // The first term is copied, because a sum that starts at 0 would turn -0 into 0.
        std::memcpy(sum, part, static_cast<size_t>(count) * sizeof(T));
      }
      is_begun = true;
    }
  });
}

Status SpanningAggregation::StepUp(bool* any) {
  if (!link_->has(ChainLink::kNext) || summed_ == sent_) return Status::Ok();
  if (link_->has(ChainLink::kPrevious) && !link_->CanSend(ChainLink::kPrevious)) {
    return Status::Ok();
  }
  std::unique_ptr<ChainPiece> piece;
  MV_RETURN_IF_NOT_OK(link_->Take(ChainLink::kNext, &piece));
  if (piece == nullptr) return Status::Ok();
  *any = true;
  MV_RETURN_IF_NOT_OK(Check(*piece, ChainLink::kNext, summed_));
  return PassBack(std::move(piece));
}

Status SpanningAggregation::PassBack(std::unique_ptr<ChainPiece> piece) {
  const int64_t first = piece->header()->first;
  const auto bytes = static_cast<size_t>(Bytes(piece->header()->end - first));
  std::memcpy(data_ + Bytes(first), piece->values(), bytes);
  if (ranks_here_.size() > 1) {
    std::memcpy(scratch(leader_, chunk_) + Bytes(first - chunk_ * in_chunk_), piece->values(),
                bytes);
  }
  summed_ = piece->header()->end;
  if (link_->has(ChainLink::kPrevious)) return link_->Send(ChainLink::kPrevious, std::move(piece));
  link_->Recycle(std::move(piece));
  return Status::Ok();
}

Status SpanningAggregation::Check(const ChainPiece& piece, ChainLink::Side from,
                                  int64_t first) const {
  const PieceHeader& header = *piece.header();
  const auto header_bytes = static_cast<int64_t>(sizeof(PieceHeader));
  if (piece.bytes > header_bytes && header.magic == kMagic && header.first == first &&
      header.end > first && header.end <= ChunkEnd(chunk_) && header.count == 0 &&
      piece.bytes == header_bytes + Bytes(header.end - first)) {
    return Status::Ok();
  }
  return Status(Code::kTransport, StrCat("rank ", link_->rank(from), " sent ", piece.bytes,
                                         " bytes that are not a valid piece of an aggregate"));
}

}  // namespace multiverso
