// The part of a node's leader in an aggregate over nodes.
#include <algorithm>
#include <thread>

#include "base/backoff.h"
#include "base/copy_bytes.h"
#include "base/text.h"
#include "memory/futex.h"
#include "sum/aggregation.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(2);
// A leader polls for this long before it sleeps, because a short wait takes about as long.
constexpr std::chrono::microseconds kEager{1000};

}  // namespace

Status Aggregation::SumWithNodes(const WaitLimit& limit) {
  if (sum_ == nullptr) {
    if (state_->link == nullptr) {
      state_->link =
          std::make_unique<PieceLink>(context_->control_channel()->messenger(), kAggregateTag);
    }
    // No other call has the number of this call's first collective.
    sum_number_ = static_cast<int64_t>(context_->workers()->sequence());
    const int me = context_->members().rank();
    NodeSum::Terms* const terms = this;
    sum_ = std::make_unique<NodeSum>(
        sum_number_, plan_, context_->members().node(),
        SegmentGrid(array_.count, 1, staged_bytes(), piece_ * staged_bytes()), staged_reduction_,
        NodeSum::Formats(), terms,
        SumSink{staged_bytes(),
                [this, me](int64_t at) { return is_staged_ ? Staged(me, at) : element(at); }},
        state_->link.get());
  }
  Backoff backoff(kLongestNap);
  Instant next_check = limit.NextCheck(Clock::now());
  while (!sum_->HasSummedParts(chunks_ == 1 ? array_.count : (done_ + 1) * piece_)) {
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

// ---- Small sums ---------------------------------------------------------------------------------

std::vector<WorkerRange> Aggregation::RangesOf(int node) const {
  return SubtreesOf(workers_[static_cast<size_t>(node)], static_cast<int>(plan_.node_of.size()));
}

std::string Aggregation::Pack() {
  StageChunk(0);  // again if the last collective has begun again
  std::string bytes;
  PairwiseSum sum(staged_reduction_, context_->members().num_workers(), array_.count);
  for (const WorkerRange& range : RangesOf(context_->members().node())) {
    std::vector<PairwiseSum::Term> terms;
    for (const int rank : RanksIn(range)) {
      terms.push_back({context_->members().worker_id(rank), Staged(rank, 0)});
    }
    bytes.append(sum.Of(terms, array_.count), static_cast<size_t>(array_.count * staged_bytes()));
  }
  attached_.assign(1, {context_->members().node(), bytes});
  return bytes;
}

bool Aggregation::Take(int leader, const std::string& attached) {
  const Group& workers = *context_->workers();
  const ExchangeSlot& mine = workers.payload(context_->members().rank());
  const ExchangeSlot& theirs = workers.payload(leader);
  // A node whose leader has failed or makes another call may attach anything: all ranks learn of
  // it.
  if (mine.is_failure() || theirs.marked_kind() != mine.kind() || theirs.Bytes() != mine.Bytes()) {
    return true;
  }
  const int node = context_->members().node_of(leader);
  const size_t sums = RangesOf(node).size();
  if (attached.size() != sums * static_cast<size_t>(array_.count * staged_bytes())) return false;
  attached_.emplace_back(node, attached);
  return true;
}

void Aggregation::Finish() {
  const auto sum_bytes = static_cast<size_t>(array_.count * staged_bytes());
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
  PairwiseSum sum(staged_reduction_, context_->members().num_workers(), array_.count);
  CopyBytes(Staged(context_->members().rank(), 0), sum.Of(terms, array_.count), sum_bytes);
}

int64_t Aggregation::Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) {
  const SumPlan::Part& part = PartOf(first);
  if (round > 0 || (is_staged_ && (first - part.first) / piece_ > done_)) return first;
  for (const WorkerRange& range : RangesOf(context_->members().node())) {
    const std::vector<int> ranks = RanksIn(range);
    sources->push_back(
        DeltaSource::Whole(range.first, is_staged_ ? Staged(ranks.front(), first) : element(first),
                           first, static_cast<int64_t>(ranks.size())));
  }
  return is_staged_ ? std::min(first + piece_, part.end) : array_.count;
}

}  // namespace multiverso
