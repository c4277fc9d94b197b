#include "sum/aggregation.h"

#include <algorithm>

#include "base/checked.h"
#include "base/copy_bytes.h"
#include "base/text.h"
#include "sum/element_sum.h"

namespace multiverso {
namespace {

// On one node, for smaller arrays a second collective would cost more than summing all shares on
// every worker.
constexpr int64_t kSmallBytes = int64_t{16} << 10;

// The payload with which a worker announces an aggregate.
struct Call {
  int64_t count;
  int32_t dtype;
  int32_t op;
  uint64_t ranks_digest;  // of the ranks whose arrays the sender sums

  static Call Of(const Group& workers, int rank) { return workers.payload(rank).Read<Call>(); }
  bool IsLike(const Call& other) const {
    return count == other.count && dtype == other.dtype && op == other.op;
  }
  std::string Describe() const {
    const bool is_sum = op == static_cast<int32_t>(ReduceOp::kSum);
    return StrCat(count, " ", NameOf(static_cast<DType>(dtype)), is_sum ? "" : ", op ",
                  is_sum ? "" : NameOf(static_cast<ReduceOp>(op)));
  }
};

Status CheckSameCall(const Group& workers) {
  const std::vector<int> ranks = workers.participants();
  const Call first = Call::Of(workers, ranks.front());
  for (const int rank : ranks) {
    const Call call = Call::Of(workers, rank);
    if (call.IsLike(first)) continue;
    return workers.Mismatch(StrCat("the ranks did not make the same call: rank ", ranks.front(),
                                   " called aggregate of ", first.Describe(), ", rank ", rank,
                                   " of ", call.Describe()));
  }
  return Status::Ok();
}

uint64_t DigestOf(const std::vector<int>& ranks) {
  uint64_t digest = ranks.size();
  for (const int rank : ranks) digest = (digest + static_cast<uint64_t>(rank)) * 0x9e3779b97f4a7c15;
  return digest;
}

// Returns the operation that combines staged values: a mean is a sum until it is stored.
ReduceOp StagedOp(ReduceOp op) { return op == ReduceOp::kMean ? ReduceOp::kSum : op; }

}  // namespace

Aggregation::Aggregation(RankContext* context, AggregationState* state, const Array& array,
                         bool over_nodes)
    : context_(context),
      state_(state),
      over_nodes_(over_nodes),
      array_(array),
      reduction_(array.op, array.dtype),
      staged_reduction_(StagedOp(array.op), ValueType(array.dtype)),
      watch_(&context->members(), context->peers(), context->state()) {
  std::vector<int> remaining;
  for (const int rank : context->workers()->members()) {
    // Over several nodes, a session does not continue without a lost rank.
    if (over_nodes_ || !context->peers()->IsExcluded(rank)) remaining.push_back(rank);
  }
  SumOver(std::move(remaining));
  MakePlan();
}

void Aggregation::SumOver(std::vector<int> ranks) {
  ranks_ = std::move(ranks);
  here_.clear();
  for (const int rank : ranks_) {
    if (rank == context_->members().rank()) me_ = here_.size();
    if (context_->members().is_local(rank)) here_.push_back(rank);
  }
}

bool Aggregation::IsSmall() const {
  if (!over_nodes_) return array_.count * staged_bytes() <= kSmallBytes;
  // Leaders attach nothing if all workers are on one node.
  return here_.size() < ranks_.size() && array_.count * staged_bytes() <= kMaxAttachedBytes;
}

void Aggregation::MakePlan() {
  const int64_t area = context_->memory()->scratch_area_bytes() / staged_bytes();
  if (!over_nodes_) {
    plan_.parts.push_back({0, array_.count, 0});
    piece_ = area;
    chunks_ = std::max(DivideUp(array_.count, piece_), int64_t{1});
    return;
  }
  watch_.Begin();
  plan_ = SumPlan::Of(context_->members());
  workers_ = plan_.WorkersByNode();
  const std::vector<int> nodes = plan_.WorkerNodes();
  const auto num_nodes = static_cast<int>(nodes.size());
  const bool is_one_part = SumPlan::PrefersOnePart(num_nodes, array_.count * staged_bytes());
  plan_.is_tree = is_one_part && SumPlan::PrefersTree(num_nodes);
  const int64_t parts = is_one_part ? 1 : num_nodes;
  const int64_t line = 64 / staged_bytes();
  int64_t end = 0;
  int64_t largest = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = end;
    end = i + 1 == parts ? array_.count : array_.count / line * (i + 1) / parts * line;
    if (first < end || is_one_part) {
      plan_.parts.push_back({first, end, nodes[static_cast<size_t>(i)]});
    }
    largest = std::max(largest, end - first);
  }
  // The pieces are the same on all nodes, so they depend on whether some node stages.
  const bool is_any_staged = ranks_.size() > nodes.size() || !is_staged_as_it_is();
  is_staged_ = here_.size() > 1 || !is_staged_as_it_is();
  piece_ = SumPiece::kValueBytes / staged_bytes();
  if (is_any_staged) piece_ = std::min(piece_, area / parts / line * line);
  if (is_staged_) chunks_ = std::max(DivideUp(largest, piece_), int64_t{1});
}

Status Aggregation::Run(const WaitLimit& limit) {
  for (; done_ < chunks_; ++done_) {
    MV_RETURN_IF_NOT_OK(StageTogether(limit));
    if (ranks_.size() == 1 || array_.count == 0) break;
    if (IsSmall()) {
      if (over_nodes_) {
        StoreChunk();
      } else {
        SumElements(here_, 0, array_.count);
      }
      continue;
    }
    if (is_staged_) {
      SumShare();
      MV_RETURN_IF_NOT_OK(WaitHere(limit));
    }
    if (over_nodes_) {
      if (IsLeader()) {
        MV_RETURN_IF_NOT_OK(SumWithNodes(limit));
      } else if (done_ + 1 < chunks_) {
        StageChunk(done_ + 1);
      }
      MV_RETURN_IF_NOT_OK(WaitHere(limit));
    }
    StoreChunk();
  }
  state_->area = (state_->area + static_cast<int>(over_nodes_ ? chunks_ % 2 : 1)) % 2;
  return Status::Ok();
}

// ---- Memory -------------------------------------------------------------------------------------

template <class Use>
void Aggregation::ForPieces(int64_t chunk, Use use) const {
  for (const SumPlan::Part& part : plan_.parts) {
    const int64_t first = part.first + chunk * piece_;
    if (first < part.end) use(first, std::min(part.end - first, piece_));
  }
}

const SumPlan::Part& Aggregation::PartOf(int64_t element) const {
  const auto found = std::find_if(plan_.parts.begin(), plan_.parts.end() - 1,
                                  [&](const SumPlan::Part& part) { return element < part.end; });
  return *found;
}

int64_t Aggregation::ShareBegin(int64_t count, size_t place) const {
  // Shares begin at cache lines, so that no two workers write to the same cache line.
  const int64_t line = 64 / staged_bytes();
  const auto workers = static_cast<int64_t>(here_.size());
  if (place == here_.size()) return count;
  return count / line * static_cast<int64_t>(place) / workers * line;
}

char* Aggregation::Staged(int rank, int64_t element) const {
  const SumPlan::Part& part = PartOf(element);
  const int64_t offset = element - part.first;
  const int64_t at = (&part - plan_.parts.data()) * piece_ + offset % piece_;
  const auto passed = static_cast<int>(over_nodes_ ? offset / piece_ % 2 : 0);
  return context_->memory()->scratch(context_->members().local_rank_of(rank),
                                     (state_->area + passed) % 2) +
         at * staged_bytes();
}

std::vector<int> Aggregation::RanksIn(const WorkerRange& range) const {
  std::vector<int> ranks;
  for (const int rank : here_) {
    if (range.Contains(context_->members().worker_id(rank))) ranks.push_back(rank);
  }
  return ranks;
}

// ---- Steps of a chunk ---------------------------------------------------------------------------

void Aggregation::StageChunk(int64_t chunk) {
  const auto stage = [&](int64_t first, int64_t count) {
    char* const to = Staged(here_[me_], first);
    if (is_staged_as_it_is()) {
      CopyBytes(to, element(first), static_cast<size_t>(count * staged_bytes()));
    } else {
      reduction_.Load(element(first), count, to);
    }
  };
  ForPieces(chunk, [&](int64_t first, int64_t count) {
    if (IsSmall() || !is_staged_as_it_is()) return stage(first, count);
    const int64_t begin = ShareBegin(count, me_);
    const int64_t end = ShareBegin(count, me_ + 1);
    if (begin > 0) stage(first, begin);
    if (end < count) stage(first + end, count - end);
  });
}

Status Aggregation::StageTogether(const WaitLimit& limit) {
  if (over_nodes_ && done_ > 0) {
    if (IsLeader()) StageChunk(done_);
    return WaitHere(limit);
  }
  if (over_nodes_) {
    MV_RETURN_IF_NOT_OK(context_->workers()->CheckCanBegin(CollectiveKind::kAggregate));
    if (is_staged_ || IsSmall()) StageChunk(0);
    MV_RETURN_IF_NOT_OK(Meet(limit));
    return Status::Ok();
  }
  for (;;) {
    StageChunk(chunk());
    if (done_ > 0) return WaitHere(limit);
    MV_RETURN_IF_NOT_OK(Meet(limit));
    if (AllStagedForThese()) return Status::Ok();
    SumOver(context_->workers()->participants());
  }
}

Status Aggregation::Meet(const WaitLimit& limit) {
  Group* const workers = context_->workers();
  const Call call{array_.count, static_cast<int32_t>(array_.dtype), static_cast<int32_t>(array_.op),
                  DigestOf(ranks_)};
  workers->BeginAllgather(CollectiveKind::kAggregate, &call, sizeof(call));
  MV_RETURN_IF_NOT_OK(workers->Wait(limit, over_nodes_ && IsSmall() ? this : nullptr));
  return CheckSameCall(*workers);
}

bool Aggregation::AllStagedForThese() const {
  const std::vector<int> present = context_->workers()->participants();
  const uint64_t digest = DigestOf(present);
  return std::all_of(present.begin(), present.end(), [&](int rank) {
    return Call::Of(*context_->workers(), rank).ranks_digest == digest;
  });
}

Status Aggregation::WaitHere(const WaitLimit& limit) {
  if (!over_nodes_) {
    MV_RETURN_IF_NOT_OK(
        context_->workers()->Allgather(CollectiveKind::kAggregate, Status::Ok(), limit));
    return context_->workers()->CheckTookPart(
        ranks_, " in the middle of aggregate: a part of the array has been summed");
  }
  if (here_.size() == 1) return Status::Ok();
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

Status Aggregation::CheckForLosses() {
  const int silenced_by = watch_.LossThatSilences();
  if (silenced_by >= 0) return context_->workers()->GiveUp(silenced_by);
  for (const int rank : ranks_) {
    if (context_->peers()->IsLost(rank)) return context_->workers()->GiveUp(rank);
  }
  return Status::Ok();
}

void Aggregation::SumShare() {
  std::vector<std::vector<int>> groups;
  if (over_nodes_) {
    for (const WorkerRange& range : RangesOf(context_->members().node())) {
      groups.push_back(RanksIn(range));
    }
  } else {
    groups.push_back(here_);
  }
  ForPieces(chunk(), [&](int64_t first, int64_t count) {
    const int64_t begin = ShareBegin(count, me_);
    const int64_t end = ShareBegin(count, me_ + 1);
    for (const std::vector<int>& ranks : groups) SumElements(ranks, first + begin, end - begin);
  });
}

void Aggregation::SumElements(const std::vector<int>& ranks, int64_t first, int64_t count) {
  const Membership& members = context_->members();
  std::vector<PairwiseSum::Term> terms;
  for (const int rank : ranks) {
    // This worker's own share is not staged, unless it had to be converted.
    const bool is_own = rank == members.rank() && is_staged_as_it_is();
    terms.push_back({members.worker_id(rank), is_own ? element(first) : Staged(rank, first)});
  }
  const auto workers = static_cast<int>(context_->workers()->members().size());
  if (over_nodes_) {
    return ElementSum(staged_reduction_, workers, count)
        .Store(terms, count, Staged(ranks.front(), first), [](int64_t, int64_t) {});
  }
  ElementSum(reduction_, workers, count)
      .Store(terms, count, element(first), [&](int64_t done, int64_t part) {
        if (IsSmall()) return;  // every worker sums a small array itself
        for (const int rank : here_) {
          if (rank == members.rank()) continue;
          CopyBytes(Staged(rank, first + done), element(first + done),
                    static_cast<size_t>(part * staged_bytes()));
        }
      });
}

void Aggregation::StoreChunk() {
  const auto terms = static_cast<int64_t>(ranks_.size());
  if (!is_staged_ && !IsSmall()) {  // The only chunk is the array, whose pieces came in place.
    return reduction_.Store(element(0), terms, array_.count, element(0));
  }
  ForPieces(chunk(), [&](int64_t first, int64_t count) {
    if (over_nodes_) {
      return reduction_.Store(Staged(here_.front(), first), terms, count, element(first));
    }
    // The other workers' shares; this worker has written its own one.
    const int64_t end = ShareBegin(count, me_ + 1);
    const auto take = [&](int64_t from, int64_t end_of_share) {
      CopyBytes(element(from), Staged(here_[me_], from),
                static_cast<size_t>((end_of_share - from) * staged_bytes()));
    };
    take(first, first + ShareBegin(count, me_));
    take(first + end, first + count);
  });
}

}  // namespace multiverso
