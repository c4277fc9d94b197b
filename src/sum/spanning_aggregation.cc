#include "sum/spanning_aggregation.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/checked.h"
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
    : Aggregation(context, state, array),
      watch_(&context->members(), context->peers(), context->state()) {
  watch_.Begin();
  for (const int rank : ranks_) {
    if (context_->members().is_local(rank)) ranks_here_.push_back(rank);
  }
  MakePlan();
}

Status SpanningAggregation::Run(const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(context_->workers()->CheckCanBegin(CollectiveKind::kAggregate));
  if (!IsLeader()) StageChunk(0);
  MV_RETURN_IF_NOT_OK(Meet(limit, IsSmall() ? this : nullptr));
  if (IsSmall()) {
    StoreChunk(0);
    return Status::Ok();
  }
  for (; done_ < chunks_ && ranks_.size() > 1 && count_ > 0; ++done_) {
    if (IsLeader()) {
      MV_RETURN_IF_NOT_OK(SumAsLeader(limit));
      // The others take the sum from there.
      if (is_summed_as_it_is() && ranks_here_.size() > 1) StageChunk(done_);
    } else if (done_ + 1 < chunks_) {
      StageChunk(done_ + 1);
    }
    MV_RETURN_IF_NOT_OK(WaitHere(limit));
    StoreChunk(done_);
  }
  return Status::Ok();
}

bool SpanningAggregation::IsSmall() const {
  // Leaders attach nothing if all workers are on one node.
  return ranks_here_.size() < ranks_.size() && count_ * value_bytes() <= kMaxAttachedBytes;
}

void SpanningAggregation::MakePlan() {
  plan_ = SumPlan::Of(context_->members());
  workers_ = plan_.WorkersByNode();
  const std::vector<int> nodes = plan_.WorkerNodes();
  const auto num_nodes = static_cast<int>(nodes.size());
  const bool is_one_part = SumPlan::PrefersOnePart(num_nodes, count_ * value_bytes());
  plan_.is_tree = is_one_part && SumPlan::PrefersTree(num_nodes);
  const int64_t parts = is_one_part ? 1 : num_nodes;
  const int64_t line = 64 / value_bytes();
  int64_t end = 0;
  int64_t largest = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = end;
    end = i + 1 == parts ? count_ : count_ / line * (i + 1) / parts * line;
    if (first < end || is_one_part)
      plan_.parts.push_back({first, end, nodes[static_cast<size_t>(i)]});
    largest = std::max(largest, end - first);
  }
  // The pieces are the same on all nodes, so they depend on whether some node stages.
  const auto is_staged = [&](size_t workers, int on_nodes) {
    return workers > static_cast<size_t>(on_nodes) || !is_summed_as_it_is();
  };
  piece_ = SumPiece::kValueBytes / value_bytes();
  if (is_staged(ranks_.size(), num_nodes)) {
    piece_ = std::min(
        piece_, context_->memory()->scratch_area_bytes() / value_bytes() / parts / line * line);
  }
  if (is_staged(ranks_here_.size(), 1)) chunks_ = std::max(DivideUp(largest, piece_), int64_t{1});
}

template <class Use>
void SpanningAggregation::ForPieces(int64_t chunk, Use use) const {
  for (const SumPlan::Part& part : plan_.parts) {
    const int64_t first = part.first + chunk * piece_;
    if (first < part.end) use(first, std::min(part.end - first, piece_));
  }
}

const SumPlan::Part& SpanningAggregation::PartOf(int64_t element) const {
  const auto found = std::find_if(plan_.parts.begin(), plan_.parts.end() - 1,
                                  [&](const SumPlan::Part& part) { return element < part.end; });
  return *found;
}

char* SpanningAggregation::Staged(int rank, int64_t element) const {
  const SumPlan::Part& part = PartOf(element);
  const int64_t offset = element - part.first;
  const int64_t at = (&part - plan_.parts.data()) * piece_ + offset % piece_;
  return scratch(rank, static_cast<int>(offset / piece_ % 2)) + at * value_bytes();
}

char* SpanningAggregation::value(int64_t number) const {
  return is_summed_as_it_is() ? element(number) : Staged(context_->members().rank(), number);
}

void SpanningAggregation::StageChunk(int64_t chunk) {
  ForPieces(chunk, [&](int64_t first, int64_t count) {
    reduction_.Load(element(first), count, Staged(context_->members().rank(), first));
  });
}

void SpanningAggregation::StoreChunk(int64_t chunk) {
  const bool is_in_place = IsLeader() && !IsSmall() && is_summed_as_it_is();
  const auto terms = static_cast<int64_t>(ranks_.size());
  if (is_in_place && chunks_ == 1) return reduction_.Store(element(0), terms, count_, element(0));
  ForPieces(chunk, [&](int64_t first, int64_t count) {
    reduction_.Store(is_in_place ? element(first) : Staged(ranks_here_.front(), first), terms,
                     count, element(first));
  });
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

void SpanningAggregation::TakeNextChunk() {
  // When they wait for the end of this chunk, the others have copied the last one, whose memory the
  // next chunk uses.
  if (staged_ > done_ + 1 || staged_ == chunks_) return;
  if (!context_->node_workers()->OthersHaveBegunNext()) return;
  if (!is_summed_as_it_is()) StageChunk(staged_);
  ++staged_;
}

Status SpanningAggregation::SumAsLeader(const WaitLimit& limit) {
  if (sum_ == nullptr) {
    if (!is_summed_as_it_is()) StageChunk(0);
    if (state_->link == nullptr) {
      state_->link =
          std::make_unique<PieceLink>(context_->control_channel()->messenger(), kAggregateTag);
    }
    // No other call has the number of this call's first collective.
    sum_number_ = static_cast<int64_t>(context_->workers()->sequence());
    NodeSum::Terms* const terms = this;
    sum_ = std::make_unique<NodeSum>(
        sum_number_, plan_, context_->members().node(),
        SegmentGrid(count_, 1, value_bytes(), piece_ * value_bytes()), reduction_,
        NodeSum::Formats(), terms,
        SumSink{value_bytes(), [this](int64_t element) { return value(element); }},
        state_->link.get());
  }
  Backoff backoff(kLongestNap);
  Instant next_check = limit.NextCheck(Clock::now());
  while (!sum_->HasSummedParts(chunks_ == 1 ? count_ : (done_ + 1) * piece_)) {
    bool any = false;
    TakeNextChunk();
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
  return SubtreesOf(workers_[static_cast<size_t>(node)], static_cast<int>(plan_.node_of.size()));
}

std::string SpanningAggregation::Pack() {
  const Membership& members = context_->members();
  if (!is_summed_as_it_is()) StageChunk(0);
  std::string bytes;
  PairwiseSum sum(reduction_, members.num_workers(), count_);
  for (const WorkerRange& range : RangesOf(members.node())) {
    std::vector<PairwiseSum::Term> terms;
    for (const int rank : ranks_here_) {
      if (!range.Contains(members.worker_id(rank))) continue;
      terms.push_back(
          {members.worker_id(rank), rank == ranks_here_.front() ? value(0) : Staged(rank, 0)});
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
  CopyBytes(Staged(context_->members().rank(), 0), sum.Of(terms, count_), sum_bytes);
}

int64_t SpanningAggregation::Open(uint64_t round, int64_t first,
                                  std::vector<DeltaSource>* sources) {
  if (round > 0) return first;
  int64_t end = count_;
  if (chunks_ > 1) {
    const SumPlan::Part& part = PartOf(first);
    if ((first - part.first) / piece_ >= staged_) return first;
    end = std::min(first + piece_, part.end);
  }
  for (const int rank : ranks_here_) {
    const char* const values = rank == ranks_here_.front() ? value(first) : Staged(rank, first);
    sources->push_back(DeltaSource::Whole(context_->members().worker_id(rank), values, first));
  }
  return end;
}

}  // namespace multiverso
