#include "sum/aggregation.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/checked.h"
#include "base/text.h"
#include "memory/futex.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// For smaller arrays a second collective would cost more than summing all parts on every worker.
constexpr int64_t kSmallBytes = int64_t{16} << 10;
// The number of bytes summed at a time. A sum of this size stays in the first-level cache until it
// has been copied to every worker.
constexpr int64_t kBytesAtATime = int64_t{8} << 10;
constexpr auto kLongestNap = std::chrono::milliseconds(2);
// A leader polls for this long before it sleeps, because a short wait takes about as long.
constexpr std::chrono::microseconds kEager{1000};
// Follows the end of a lost rank in an error.
constexpr char kCutOff[] = " in the middle of aggregate: a part of the array has been summed";

// The payload with which a worker announces an aggregate.
struct Call {
  int64_t count;
  int32_t dtype;
  int32_t unused;
  uint64_t ranks_digest;  // of the ranks whose arrays the sender sums

  static Call Of(const Group& workers, int rank) { return workers.payload(rank).Read<Call>(); }
  std::string Describe() const { return StrCat(count, " ", NameOf(static_cast<DType>(dtype))); }
};

Status CheckSameCall(const Group& workers) {
  const std::vector<int> ranks = workers.participants();
  const Call first = Call::Of(workers, ranks.front());
  for (const int rank : ranks) {
    const Call call = Call::Of(workers, rank);
    if (call.count == first.count && call.dtype == first.dtype) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ",
                                          ranks.front(), " called aggregate of ", first.Describe(),
                                          ", rank ", rank, " of ", call.Describe()));
  }
  return Status::Ok();
}

uint64_t DigestOf(const std::vector<int>& ranks) {
  uint64_t digest = ranks.size();
  for (const int rank : ranks) digest = (digest + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15;
  return digest;
}

}  // namespace

Aggregation::Aggregation(RankContext* context, AggregationState* state, DType dtype, void* data,
                         int64_t count)
    : context_(context),
      state_(state),
      dtype_(dtype),
      data_(static_cast<char*>(data)),
      count_(count),
      in_chunk_(NodeMemory::kScratchAreaBytes / SizeOf(dtype)),
      chunks_(std::max(DivideUp(count, in_chunk_), int64_t{1})),
      watch_(&context->members(), context->peers(), context->state()) {
  watch_.Begin();
  std::vector<int> ranks;
  for (const int rank : context_->workers()->members()) {
    if (!context_->peers()->IsExcluded(rank)) ranks.push_back(rank);
  }
  SumOver(std::move(ranks));
}

Status Aggregation::Run(const WaitLimit& limit) {
  for (; done_ < chunks_ && lost_ < 0; ++done_) {
    if (done_ == 0 || !spans_nodes()) MV_RETURN_IF_NOT_OK(StageTogether(limit));
    if (ranks_.size() == 1) break;
    MV_RETURN_IF_NOT_OK(spans_nodes() ? SumChunkOverNodes(limit) : SumChunk(limit));
    if (spans_nodes()) state_->area ^= 1;
  }
  if (!spans_nodes()) state_->area ^= 1;
  const bool may_lose_ranks = spans_nodes() && context_->members().survives_losses();
  return may_lose_ranks ? AgreeOnLosses(limit) : Status::Ok();
}

// ---- Staging ------------------------------------------------------------------------------------

void Aggregation::SumOver(std::vector<int> ranks) {
  ranks_ = std::move(ranks);
  me_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), context_->members().rank()) -
                         ranks_.begin());
  ranks_here_.clear();
  for (const int rank : ranks_) {
    if (context_->members().is_local(rank)) ranks_here_.push_back(rank);
  }
}

int64_t Aggregation::ChunkBegin() const {
  return (spans_nodes() || state_->area == 0 ? done_ : chunks_ - 1 - done_) * in_chunk_;
}

int64_t Aggregation::ChunkCount() const { return std::min(count_ - ChunkBegin(), in_chunk_); }

bool Aggregation::IsSmall() const { return count_ * SizeOf(dtype_) <= kSmallBytes; }

char* Aggregation::scratch(int rank, int area) const {
  return context_->memory()->scratch(context_->members().local_rank_of(rank), area);
}

Status Aggregation::StageTogether(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  for (;;) {
    StageChunk();
    const Call call{count_, static_cast<int32_t>(dtype_), 0, DigestOf(ranks_)};
    workers->BeginAllgather(CollectiveKind::kAggregate, &call, sizeof(call));
    MV_RETURN_IF_NOT_OK(workers->Wait(limit));
    const std::vector<int> present = workers->participants();
    if (done_ > 0) MV_RETURN_IF_NOT_OK(CheckAllCame());
    MV_RETURN_IF_NOT_OK(CheckSameCall(*workers));
    if (done_ > 0 || AllStagedFor(present)) return Status::Ok();
    SumOver(present);
  }
}

void Aggregation::StageChunk() {
  const int64_t begin = ChunkBegin();
  char* const to = scratch(context_->members().rank());
  if (spans_nodes()) {
    if (!IsLeader()) Stage(begin, ChunkCount(), to);
  } else if (IsSmall()) {
    Stage(begin, ChunkCount(), to);
  } else {
    Stage(begin, PartBegin(me_), to);
    const int64_t next = PartBegin(me_ + 1);
    Stage(begin + next, ChunkCount() - next, to + next * SizeOf(dtype_));
  }
}

void Aggregation::Stage(int64_t first, int64_t count, char* to) const {
  if (count == 0) return;  // an empty array may have no memory
  const int64_t size = SizeOf(dtype_);
  std::memcpy(to, data_ + first * size, static_cast<size_t>(count * size));
}

bool Aggregation::AllStagedFor(const std::vector<int>& present) const {
  const uint64_t digest = DigestOf(present);
  return std::all_of(present.begin(), present.end(), [&](int rank) {
    return Call::Of(*context_->workers(), rank).ranks_digest == digest;
  });
}

Status Aggregation::CheckAllCame() const {
  return context_->workers()->CheckTookPart(ranks_, kCutOff);
}

// ---- On one node --------------------------------------------------------------------------------

Status Aggregation::SumChunk(const WaitLimit& limit) {
  if (IsSmall()) {
    SumPart(0, ChunkCount());
    return Status::Ok();
  }
  SumPart(PartBegin(me_), PartBegin(me_ + 1));
  Group* const workers = context_->workers();
  workers->BeginAllgather(CollectiveKind::kAggregate);
  MV_RETURN_IF_NOT_OK(workers->Wait(limit));
  MV_RETURN_IF_NOT_OK(CheckAllCame());
  CopyOthersParts();
  return Status::Ok();
}

int64_t Aggregation::PartBegin(int place) const {
  // Parts begin at cache lines, so that no two workers write to the same cache line.
  const int64_t line = 64 / SizeOf(dtype_);
  const auto workers = static_cast<int64_t>(ranks_.size());
  if (place == workers) return ChunkCount();
  return ChunkCount() / line * place / workers * line;
}

void Aggregation::SumPart(int64_t begin, int64_t end) {
  const int64_t size = SizeOf(dtype_);
  const int64_t at_a_time = std::min(kBytesAtATime / size, end - begin);
  const Membership& members = context_->members();
  char* const mine = data_ + ChunkBegin() * size;
  const auto workers = static_cast<int>(context_->workers()->members().size());
  PairwiseSum sum(dtype_, workers, at_a_time);
  std::vector<PairwiseSum::Term> terms(ranks_.size());
  for (; begin < end; begin += at_a_time) {
    const int64_t count = std::min(at_a_time, end - begin);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const bool is_me = static_cast<int>(i) == me_;
      terms[i] = {members.worker_id(ranks_[i]), (is_me ? mine : scratch(ranks_[i])) + begin * size};
    }
    const char* const total = sum.Of(terms, count);
    const auto bytes = static_cast<size_t>(count * size);
    std::memcpy(mine + begin * size, total, bytes);
    if (IsSmall()) continue;  // every worker sums a small array itself
    for (const int rank : ranks_) {
      if (rank != members.rank()) std::memcpy(scratch(rank) + begin * size, total, bytes);
    }
  }
}

void Aggregation::CopyOthersParts() {
  const int64_t size = SizeOf(dtype_);
  char* const to = data_ + ChunkBegin() * size;
  const char* const from = scratch(context_->members().rank());
  const auto copy = [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin * size, from + begin * size, static_cast<size_t>((end - begin) * size));
  };
  copy(0, PartBegin(me_));
  copy(PartBegin(me_ + 1), ChunkCount());
}

// ---- Over several nodes -------------------------------------------------------------------------

Status Aggregation::SumChunkOverNodes(const WaitLimit& limit) {
  if (IsLeader()) {
    MV_RETURN_IF_NOT_OK(SumAsLeader(limit));
  } else if (done_ + 1 < chunks_) {
    const int64_t next = ChunkBegin() + in_chunk_;
    Stage(next, std::min(in_chunk_, count_ - next),
          scratch(context_->members().rank(), state_->area ^ 1));
  }
  MV_RETURN_IF_NOT_OK(WaitHere(limit));
  if (lost_ >= 0 || count_ == 0 || IsLeader()) return Status::Ok();
  const int64_t size = SizeOf(dtype_);
  std::memcpy(data_ + ChunkBegin() * size, scratch(ranks_here_.front()),
              static_cast<size_t>(ChunkCount() * size));
  return Status::Ok();
}

Status Aggregation::WaitHere(const WaitLimit& limit) {
  Group* const here = context_->node_workers();
  here->BeginAllgather(CollectiveKind::kAggregate, &lost_, sizeof(lost_));
  for (;;) {
    const Status met =
        here->Wait(WaitLimit{limit.deadline, limit.NextCheck(Clock::now()), limit.interrupt});
    if (met.pending()) {
      // This node's leader may be waiting for a lost rank of another node.
      if (!context_->members().survives_losses()) MV_RETURN_IF_NOT_OK(CheckForLosses());
      continue;
    }
    MV_RETURN_IF_NOT_OK(met);
    break;
  }
  const std::vector<int> present = here->participants();
  for (const int rank : ranks_here_) {
    if (lost_ >= 0) break;
    const bool is_present = std::find(present.begin(), present.end(), rank) != present.end();
    lost_ = is_present ? here->payload(rank).Read<int>() : rank;
  }
  return Status::Ok();
}

Status Aggregation::CheckForLosses() {
  for (const int rank : ranks_) {
    if (!context_->peers()->IsLost(rank)) continue;
    if (!context_->members().survives_losses()) {
      return watch_.Lost({rank}, watch_.WhileWaiting("aggregate"));
    }
    lost_ = rank;
    return Status::Ok();
  }
  return Status::Ok();
}

Status Aggregation::AgreeOnLosses(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  workers->BeginAllgather(CollectiveKind::kAggregate, &lost_, sizeof(lost_));
  MV_RETURN_IF_NOT_OK(workers->Wait(limit));
  for (const int rank : workers->participants()) {
    const int lost = workers->payload(rank).Read<int>();
    if (lost >= 0) return context_->peers()->LossOf(lost, kCutOff);
  }
  return Status::Ok();
}

SumPlan Aggregation::PlanOf(int64_t count) const {
  const Membership& members = context_->members();
  SumPlan plan;
  plan.node_of.assign(static_cast<size_t>(members.num_workers()), SumPlan::kNoNode);
  plan.leader_of.assign(static_cast<size_t>(members.num_nodes()), -1);
  for (const int rank : ranks_) {
    const int node = members.node_of(rank);
    plan.node_of[static_cast<size_t>(members.worker_id(rank))] = node;
    int* const leader = &plan.leader_of[static_cast<size_t>(node)];
    if (*leader < 0) *leader = rank;
  }
  const std::vector<int> nodes = plan.WorkerNodes();
  const auto num_nodes = static_cast<int>(nodes.size());
  const bool is_one_part = SumPlan::PrefersOnePart(num_nodes, count * SizeOf(dtype_));
  plan.is_tree = is_one_part && SumPlan::PrefersTree(num_nodes);
  const int64_t parts = is_one_part ? 1 : num_nodes;
  const int64_t line = 64 / SizeOf(dtype_);
  int64_t end = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = end;
    end = i + 1 == parts ? count : count / line * (i + 1) / parts * line;
    if (first < end) plan.parts.push_back({first, end, nodes[static_cast<size_t>(i)]});
  }
  return plan;
}

Status Aggregation::SumAsLeader(const WaitLimit& limit) {
  const Membership& members = context_->members();
  if (ChunkCount() == 0) return Status::Ok();
  const int tag = AggregateTag(members.num_workers() - static_cast<int>(ranks_.size()));
  if (state_->link == nullptr || state_->link_tag != tag) {
    state_->link = std::make_unique<PieceLink>(context_->control_channel()->messenger(), tag);
    state_->link_tag = tag;
  }
  if (sum_ == nullptr || sum_count_ != ChunkCount()) {
    sum_count_ = ChunkCount();
    rounds_ = 0;
    // The first collective of the call is that of no other call. The last chunk may be shorter.
    sum_number_ = sum_ == nullptr ? static_cast<int64_t>(context_->workers()->sequence() * 2)
                                  : sum_number_ + 1;
    NodeSum::Values* const values = this;
    sum_ =
        std::make_unique<NodeSum>(sum_number_, PlanOf(sum_count_), members.node(),
                                  SegmentGrid(sum_count_, 1, SizeOf(dtype_), SumPiece::kValueBytes),
                                  dtype_, NodeSum::Formats(), values, state_->link.get());
  }
  ++rounds_;
  Backoff backoff(kLongestNap);
  Instant next_check = limit.NextCheck(Clock::now());
  while (!IsSummed()) {
    bool any = false;
    const Status stepped =
        failure_.is_set() ? failure_.Get() : failure_.Defer(ExchangePieces(&any));
    // A failure that may mean a loss is ignored, because the check below finds the lost rank.
    const bool is_loss = members.survives_losses() && MayMeanLoss(stepped);
    if (!stepped.ok() && !stepped.pending() && !is_loss) return stepped;
    const Instant now = Clock::now();
    if (now >= next_check) {
      next_check = limit.NextCheck(now);
      MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
      MV_RETURN_IF_NOT_OK(CheckForLosses());
      if (lost_ >= 0) return Status::Ok();
    }
    if (any) {
      backoff.Reset();
      continue;
    }
    if (now >= limit.deadline) {
      const std::vector<int> awaited = sum_->Awaited();
      return watch_.AbortLate(" in aggregate", StrCat("the sums of ", NameRanks(awaited)),
                              awaited.empty() ? -1 : awaited[0]);
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    const auto nap = backoff.Next(now, kEager);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
  return Status::Ok();
}

bool Aggregation::IsSummed() const {
  // The link keeps the pieces that are still in flight; one to a lost rank would never arrive.
  return sum_->summed() >= rounds_ && sum_->copied() >= rounds_;
}

Status Aggregation::ExchangePieces(bool* any) {
  MV_RETURN_IF_NOT_OK(state_->link->Advance());
  for (;;) {
    PieceLink::Piece piece;
    MV_RETURN_IF_NOT_OK(state_->link->Take(&piece));
    if (piece == nullptr) break;
    state_->early.push_back(std::move(piece));
  }
  for (auto piece = state_->early.begin(); piece != state_->early.end();) {
    const bool has_header = (*piece)->bytes.size() >= sizeof(PieceHeader);
    const int64_t number = has_header ? (*piece)->header()->table : -1;
    if (number > sum_number_) {
      ++piece;
      continue;
    }
    const PieceLink::Piece taken = *piece;
    piece = state_->early.erase(piece);
    *any = true;
    // Pieces of an earlier aggregate may remain if that aggregate failed.
    if (number == sum_number_) MV_RETURN_IF_NOT_OK(sum_->Receive(taken));
  }
  return sum_->Poll(any);
}

bool Aggregation::Open(uint64_t round, std::vector<DeltaSource>* sources) {
  if (round >= rounds_) return false;
  for (const int rank : ranks_here_) {
    const char* const values =
        rank == ranks_here_.front() ? data_ + ChunkBegin() * SizeOf(dtype_) : scratch(rank);
    sources->push_back(DeltaSource::Whole(context_->members().worker_id(rank), values));
  }
  return true;
}

bool Aggregation::HaveFinished(const WorkerRange& /*workers*/, uint64_t /*round*/) const {
  return false;
}

uint64_t Aggregation::CopiedFrom(uint64_t /*round*/) { return 0; }

void Aggregation::BeginChange(uint64_t /*round*/) {}

void Aggregation::Apply(int64_t element, int64_t count, const char* sum, int64_t /*terms*/,
                        char* out) {
  Store(element, count, sum);
  if (out != nullptr) std::memcpy(out, sum, static_cast<size_t>(count * SizeOf(dtype_)));
}

void Aggregation::Read(int64_t element, int64_t count, char* out) const {
  const int64_t size = SizeOf(dtype_);
  std::memcpy(out, data_ + (ChunkBegin() + element) * size, static_cast<size_t>(count * size));
}

void Aggregation::Store(int64_t element, int64_t count, const char* values) {
  const int64_t size = SizeOf(dtype_);
  const auto bytes = static_cast<size_t>(count * size);
  // An element of the sum is stored after the leader's summand, which is at the same place, has
  // been added or sent.
  std::memcpy(data_ + (ChunkBegin() + element) * size, values, bytes);
  if (ranks_here_.size() == 1) return;
  std::memcpy(scratch(ranks_here_.front()) + element * size, values, bytes);
}

}  // namespace multiverso
