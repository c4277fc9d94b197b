#include "sum/spanning_aggregation.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/copy_bytes.h"
#include "base/text.h"
#include "memory/futex.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(2);
// A leader polls for this long before it sleeps, because a short wait takes about as long.
constexpr std::chrono::microseconds kEager{1000};

}  // namespace

SpanningAggregation::SpanningAggregation(RankContext* context, AggregationState* state,
                                         const Array& array)
    : Aggregation(context, state, array, SizeOf(ValueType(array.dtype))),
      watch_(&context->members(), context->peers(), context->state()) {
  watch_.Begin();
  for (const int rank : ranks_) {
    if (context_->members().is_local(rank)) ranks_here_.push_back(rank);
  }
}

Status SpanningAggregation::Run(const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(context_->workers()->CheckCanBegin(CollectiveKind::kAggregate));
  if (!IsLeader()) Stage(0, ChunkCount(), scratch(context_->members().rank()));
  MV_RETURN_IF_NOT_OK(Meet(limit, IsSmall() ? this : nullptr));
  if (IsSmall()) {
    StoreChunk();
    state_->area ^= 1;
    return Status::Ok();
  }
  for (; done_ < chunks_ && ranks_.size() > 1; ++done_) {
    MV_RETURN_IF_NOT_OK(SumChunk(limit));
    state_->area ^= 1;
  }
  return Status::Ok();
}

bool SpanningAggregation::IsSmall() const {
  // Leaders attach nothing if all workers are on one node.
  return ranks_here_.size() < ranks_.size() && count_ * value_bytes() <= kMaxAttachedBytes;
}

int64_t SpanningAggregation::ChunkCount() const {
  return std::min(count_ - ChunkBegin(), in_chunk_);
}

Status SpanningAggregation::SumChunk(const WaitLimit& limit) {
  if (IsLeader()) {
    MV_RETURN_IF_NOT_OK(SumAsLeader(limit));
  } else if (done_ + 1 < chunks_) {
    const int64_t next = ChunkBegin() + in_chunk_;
    Stage(next, std::min(in_chunk_, count_ - next),
          scratch(context_->members().rank(), state_->area ^ 1));
  }
  MV_RETURN_IF_NOT_OK(WaitHere(limit));
  StoreChunk();
  return Status::Ok();
}

void SpanningAggregation::StoreChunk() {
  const bool is_in_place = IsLeader() && !IsSmall();
  reduction_.Store(is_in_place ? value(0) : scratch(ranks_here_.front()),
                   static_cast<int64_t>(ranks_.size()), ChunkCount(), element(ChunkBegin()));
}

char* SpanningAggregation::value(int64_t number) const {
  if (is_summed_as_it_is()) return element(ChunkBegin() + number);
  return scratch(context_->members().rank()) + number * value_bytes();
}

Status SpanningAggregation::WaitHere(const WaitLimit& limit) {
  Group* const here = context_->node_workers();
  here->BeginAllgather(CollectiveKind::kAggregate);
  for (;;) {
    const Status met =
        here->Wait(WaitLimit{limit.deadline, limit.NextCheck(Clock::now()), limit.interrupt});
    if (!met.pending()) return met;
    // This node's leader may be waiting for a lost rank of another node.
    MV_RETURN_IF_NOT_OK(CheckForLosses());
  }
}

Status SpanningAggregation::CheckForLosses() {
  const int silenced_by = watch_.LossThatSilences();
  if (silenced_by >= 0) return context_->workers()->GiveUp(silenced_by);
  for (const int rank : ranks_) {
    if (context_->peers()->IsLost(rank)) return context_->workers()->GiveUp(rank);
  }
  return Status::Ok();
}

SumPlan SpanningAggregation::PlanOf(int64_t count) const {
  const Membership& members = context_->members();
  SumPlan plan;
  plan.node_of.resize(static_cast<size_t>(members.num_workers()));
  plan.leader_of.assign(static_cast<size_t>(members.num_nodes()), -1);
  for (const int rank : ranks_) {
    const int node = members.node_of(rank);
    plan.node_of[static_cast<size_t>(members.worker_id(rank))] = node;
    int* const leader = &plan.leader_of[static_cast<size_t>(node)];
    if (*leader < 0) *leader = rank;
  }
  const std::vector<int> nodes = plan.WorkerNodes();
  const auto num_nodes = static_cast<int>(nodes.size());
  const bool is_one_part = SumPlan::PrefersOnePart(num_nodes, count * value_bytes());
  plan.is_tree = is_one_part && SumPlan::PrefersTree(num_nodes);
  const int64_t parts = is_one_part ? 1 : num_nodes;
  const int64_t line = 64 / value_bytes();
  int64_t end = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = end;
    end = i + 1 == parts ? count : count / line * (i + 1) / parts * line;
    if (first < end) plan.parts.push_back({first, end, nodes[static_cast<size_t>(i)]});
  }
  return plan;
}

Status SpanningAggregation::SumAsLeader(const WaitLimit& limit) {
  const Membership& members = context_->members();
  if (ChunkCount() == 0) return Status::Ok();
  if (!is_summed_as_it_is()) Stage(ChunkBegin(), ChunkCount(), value(0));
  if (state_->link == nullptr) {
    state_->link =
        std::make_unique<PieceLink>(context_->control_channel()->messenger(), kAggregateTag);
  }
  if (sum_ == nullptr || sum_count_ != ChunkCount()) {
    sum_count_ = ChunkCount();
    rounds_ = 0;
    // No other call has the number of this call's first collective. Twice that number leaves
    // another one for the last chunk, which may be shorter and then needs a sum of its own.
    sum_number_ = sum_ == nullptr ? static_cast<int64_t>(context_->workers()->sequence() * 2)
                                  : sum_number_ + 1;
    NodeSum::Values* const values = this;
    sum_ =
        std::make_unique<NodeSum>(sum_number_, PlanOf(sum_count_), members.node(),
                                  SegmentGrid(sum_count_, 1, value_bytes(), SumPiece::kValueBytes),
                                  reduction_, NodeSum::Formats(), values, state_->link.get());
  }
  ++rounds_;
  Backoff backoff(kLongestNap);
  Instant next_check = limit.NextCheck(Clock::now());
  while (!IsSummed()) {
    bool any = false;
    const Status stepped =
        failure_.is_set() ? failure_.Get() : failure_.Defer(ExchangePieces(&any));
    if (!stepped.ok() && !stepped.pending()) {
      // The other workers of this node wait for this one, so the session is aborted, unless a rank
      // is lost, which they notice themselves.
      const bool is_known_loss = MayMeanLoss(stepped) && context_->peers()->AnyLost();
      if (!is_known_loss) context_->state()->Abort(stepped);
      return stepped;
    }
    const Instant now = Clock::now();
    if (now >= next_check) {
      next_check = limit.NextCheck(now);
      MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
      MV_RETURN_IF_NOT_OK(CheckForLosses());
    }
    if (any) {
      backoff.Reset();
      continue;
    }
    const bool is_over = now >= limit.deadline;
    if (is_over || watch_.IsLineDue(now)) {
      const std::vector<int> awaited = sum_->Awaited();
      PeerWatch::Late whom{" in aggregate", "its messages to leave"};
      if (!awaited.empty()) {
        whom.awaited = StrCat("the sums of ", NameRanks(awaited));
        whom.first = awaited[0];
      }
      if (is_over) return watch_.AbortTimedOut(whom);
      watch_.LogLate(whom, limit.deadline);
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

bool SpanningAggregation::IsSummed() const {
  // The link keeps the pieces that are still in flight.
  return sum_->summed() >= rounds_ && sum_->copied() >= rounds_;
}

Status SpanningAggregation::ExchangePieces(bool* any) {
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

// ---- Small sums ---------------------------------------------------------------------------------

std::vector<WorkerRange> SpanningAggregation::RangesOf(int node) const {
  const Membership& members = context_->members();
  std::vector<bool> is_on_node(static_cast<size_t>(members.num_workers()));
  for (const int rank : ranks_) {
    if (members.node_of(rank) == node) {
      is_on_node[static_cast<size_t>(members.worker_id(rank))] = true;
    }
  }
  return SubtreesOf(is_on_node);
}

std::string SpanningAggregation::Pack() {
  const Membership& members = context_->members();
  if (!is_summed_as_it_is()) Stage(0, count_, value(0));
  std::string bytes;
  PairwiseSum sum(reduction_, members.num_workers(), count_);
  for (const WorkerRange& range : RangesOf(members.node())) {
    std::vector<PairwiseSum::Term> terms;
    for (const int rank : ranks_here_) {
      if (!range.Contains(members.worker_id(rank))) continue;
      terms.push_back(
          {members.worker_id(rank), rank == ranks_here_.front() ? value(0) : scratch(rank)});
    }
    bytes.append(sum.Of(terms, count_), static_cast<size_t>(count_ * value_bytes()));
  }
  attached_.assign(1, {members.node(), bytes});
  return bytes;
}

bool SpanningAggregation::Take(const NodeContribution& theirs) {
  const ExchangeSlot& mine = context_->workers()->payload(context_->members().rank());
  const RankContribution& leader = theirs.ranks.front();
  // A node whose leader has failed or makes another call may attach anything: all ranks learn of
  // it.
  if (mine.is_failure() || leader.kind != mine.kind() || leader.data != mine.Bytes()) return true;
  const size_t sums = RangesOf(theirs.node).size();
  if (theirs.attached.size() != sums * static_cast<size_t>(count_ * value_bytes())) return false;
  attached_.emplace_back(theirs.node, theirs.attached);
  return true;
}

void SpanningAggregation::Finish() {
  const auto sum_bytes = static_cast<size_t>(count_ * value_bytes());
  std::vector<PairwiseSum::Term> terms;
  for (const auto& [node, sums] : attached_) {
    const char* values = sums.data();
    for (const WorkerRange& range : RangesOf(node)) {
      terms.push_back({range.first, values});
      values += sum_bytes;
    }
  }
  std::sort(terms.begin(), terms.end(), [](const PairwiseSum::Term& a, const PairwiseSum::Term& b) {
    return a.worker < b.worker;
  });
  // If a node's sums are missing, the call fails on all ranks.
  PairwiseSum sum(reduction_, context_->members().num_workers(), count_);
  CopyBytes(scratch(context_->members().rank()), sum.Of(terms, count_), sum_bytes);
}

bool SpanningAggregation::Open(uint64_t round, std::vector<DeltaSource>* sources) {
  if (round >= rounds_) return false;
  for (const int rank : ranks_here_) {
    const char* const values = rank == ranks_here_.front() ? value(0) : scratch(rank);
    sources->push_back(DeltaSource::Whole(context_->members().worker_id(rank), values));
  }
  return true;
}

void SpanningAggregation::Apply(int64_t element, int64_t count, const char* sum, int64_t /*terms*/,
                                char* out) {
  Store(element, count, sum);
  if (out != nullptr) CopyBytes(out, sum, static_cast<size_t>(count * value_bytes()));
}

void SpanningAggregation::Read(int64_t element, int64_t count, char* out) const {
  CopyBytes(out, value(element), static_cast<size_t>(count * value_bytes()));
}

void SpanningAggregation::Store(int64_t element, int64_t count, const char* values) {
  const auto bytes = static_cast<size_t>(count * value_bytes());
  // An element of the sum is stored after the leader's summand, which is at the same place, has
  // been added or sent.
  CopyBytes(value(element), values, bytes);
  if (ranks_here_.size() == 1 || !is_summed_as_it_is()) return;
  CopyBytes(scratch(ranks_here_.front()) + element * value_bytes(), values, bytes);
}

}  // namespace multiverso
