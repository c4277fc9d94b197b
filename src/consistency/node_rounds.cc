#include "consistency/node_rounds.h"

#include <algorithm>
#include <utility>

namespace multiverso {
namespace {

// Larger than the pieces of arrays, which must fit in scratch memory: half as many messages save
// more time than is lost because pieces overlap less.
constexpr int64_t kPieceBytes = 2 * SumPiece::kValueBytes;

}  // namespace

void NodeRounds::Begin(int64_t table, PieceLink* link) {
  if (!sums_rounds_) return;
  const SegmentGrid grid(shape_.layout.rows(), shape_.columns, shape_.element_bytes(), kPieceBytes);
  segments_per_row_ = grid.per_row();
  for (SumPlan::Part& part : plan_.parts) {
    part.first *= grid.per_row();
    part.end *= grid.per_row();
  }
  SumSink sink;
  sink.element_bytes = shape_.element_bytes();
  sink.at = [copy = memory_.copy(), bytes = sink.element_bytes](int64_t element) {
    return copy + element * bytes;
  };
  sink.shard = shard_;
  sink.first_element = first_element_;
  sink.begun = &memory_.words()->begun;
  sink.recorder = context_->memory()->recorder();
  sink.table = table;
  sink.scratch.resize(static_cast<size_t>(RoundSum::kElementsAtATime * sink.element_bytes));
  NodeSum::Terms* const terms = this;
  sum_ = std::make_unique<NodeSum>(
      table, plan_, context_->members().node(), grid, Reduction::Sum(shape_.dtype),
      NodeSum::Formats{shape_.sums, shape_.results}, terms, std::move(sink), link);
  Publish();
}

Status NodeRounds::Receive(PieceLink::Piece piece) {
  if (sum_ == nullptr) return Status::Ok();
  const Status received = sum_->Receive(std::move(piece));
  Publish();
  return received;
}

Status NodeRounds::Poll(bool* any) {
  if (sum_ == nullptr) return Status::Ok();
  const Status polled = sum_->Poll(any);
  // Even without work, since the end of a worker can complete a sum, too.
  Publish();
  return polled;
}

void NodeRounds::Publish() {
  SpanningWords* const words = memory_.words();
  bool is_changed = false;
  const auto publish = [&](std::atomic<uint64_t>* word, uint64_t rounds) {
    if (word->load(std::memory_order_relaxed) == rounds) return;
    word->store(rounds, std::memory_order_release);
    is_changed = true;
  };
  publish(&words->summed, sum_->summed());
  publish(&words->applied, sum_->applied());
  publish(&words->copied, sum_->copied());
  if (is_changed) clocks_.Wake();
}

bool NodeRounds::IsSettled() const {
  if (sum_ == nullptr) return true;
  std::vector<uint64_t> adds;
  for (int worker = 0; worker < clocks_.workers(); ++worker) adds.push_back(clocks_.adds(worker));
  const uint64_t rounds = *std::max_element(adds.begin(), adds.end());
  const uint64_t copied_from = memory_.words()->copied_from.load();
  return sum_->HasSummed(adds) &&
         (copied_from == 0 || copied_from > rounds || sum_->copied() >= rounds);
}

bool NodeRounds::IsReleased() const {
  const Holders* const holders = shard_->holders();
  // The clocks of a worker no longer change after it has departed.
  return holders->ranks_here.load() == 0 &&
         holders->nodes_released.load() >=
             static_cast<uint32_t>(context_->members().num_nodes() - 1) &&
         (sum_ == nullptr || clocks_.AllAt(WorkerClocks::kDeparted));
}

// ---- The deltas that are summed -----------------------------------------------------------------

int64_t NodeRounds::Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) {
  if (!clocks_.AllHereHavePassed(round)) return first;
  std::vector<int> indices;
  for (const int worker : clocks_.here()) {
    // A worker may have finished before the round.
    if (clocks_.adds(worker) > round) indices.push_back(memory_.local_index_of(worker));
  }
  return joint_staging_.Append(round, first / segments_per_row_, indices, sources) *
         segments_per_row_;
}

bool NodeRounds::HaveFinished(const WorkerRange& workers, uint64_t round) const {
  for (int worker = workers.first; worker < workers.end; ++worker) {
    // has_finished is read first, because a worker's clock no longer changes after it finishes.
    if (!clocks_.has_finished(worker) || clocks_.adds(worker) > round) return false;
  }
  return true;
}

uint64_t NodeRounds::CopiedFrom(uint64_t round) {
  SpanningWords* const words = memory_.words();
  if (round >= asked_) {
    asked_ = round + 1;
    const bool is_wanted =
        words->is_copy_wanted.load() != 0 || shape_.results != WireFormat::kFloat32;
    // The other nodes learn from this node's sums that it copies. It sends none for a round before
    // which all of its workers had finished.
    const std::vector<int>& here = clocks_.here();
    const bool sends_sums = std::any_of(here.begin(), here.end(),
                                        [&](int worker) { return clocks_.adds(worker) > round; });
    if (words->copied_from.load() == 0 && is_wanted && sends_sums) {
      words->copied_from.store(round + 1);
    }
  }
  const uint64_t copied_from = words->copied_from.load();
  return copied_from == 0 ? NodeSum::kNever : copied_from - 1;
}

}  // namespace multiverso
