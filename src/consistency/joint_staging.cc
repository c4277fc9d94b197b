#include "consistency/joint_staging.h"

namespace multiverso {
namespace {

// Smaller parts cost more messages between nodes than they gain.
constexpr int64_t kLeastBytes = int64_t{64} << 10;

int NumParts(const StagedShape& shape) {
  // Where a piece of a sum is cut depends on which parts were summed in time. What it is rounded to
  // by a format of sums would depend on that, too.
  if (shape.sums != WireFormat::kFloat32) return 1;
  const int64_t most = std::min(shape.layout.rows(), shape.layout.bytes() / kLeastBytes);
  return static_cast<int>(std::clamp(most, int64_t{1}, int64_t{StagedAdd::kParts}));
}

}  // namespace

JointStaging::JointStaging(const StagedShape& shape, const Staging& staging,
                           const std::vector<int>& here, int workers)
    : shape_(shape),
      staging_(staging),
      here_(here),
      workers_(workers),
      parts_(NumParts(shape)),
      reduction_(Reduction::Sum(shape.dtype)),
      sum_(reduction_, workers, kAtATime),
      block_(static_cast<size_t>(kAtATime * shape.element_bytes())) {
  holders_.reserve(here.size());
  terms_.reserve(here.size());
}

int JointStaging::LevelOf(int index, uint64_t round, int part) const {
  const uint64_t word = staging_.add_of(index, round)->parts[part].load(std::memory_order_acquire);
  return word >> 8 == round + 1 ? static_cast<int>(word & 255) - 1 : kAlone;
}

void JointStaging::SetLevel(int index, uint64_t round, int part, int level) const {
  const uint64_t word = (round + 1) << 8 | static_cast<uint64_t>(level + 1);
  staging_.add_of(index, round)->parts[part].store(word, std::memory_order_release);
}

int JointStaging::FindSums(int index, uint64_t round, int part, PairwiseSum::Term** own) {
  const int worker = here_[static_cast<size_t>(index)];
  const int64_t element = FirstRow(part) * shape_.columns;
  holders_.clear();
  terms_.assign(1, {worker, nullptr});
  int level = 0;
  for (; worker >> level != 0 || 1 << level < workers_; ++level) {
    const int sibling = (worker >> level ^ 1) << level;
    if (sibling >= workers_) continue;
    const size_t found = holders_.size();
    for (int i = 0; i < static_cast<int>(here_.size()) && found == holders_.size(); ++i) {
      const bool is_in_sibling = here_[static_cast<size_t>(i)] >> level << level == sibling;
      if (is_in_sibling && LevelOf(i, round, part) >= level) holders_.push_back(i);
    }
    if (found == holders_.size()) break;
    // The terms are in worker order.
    const PairwiseSum::Term sum{sibling, ElementIn(holders_.back(), round, element)};
    terms_.insert(sibling < worker ? terms_.begin() : terms_.end(), sum);
  }
  const auto is_own = [&](const PairwiseSum::Term& term) { return term.worker == worker; };
  *own = &*std::find_if(terms_.begin(), terms_.end(), is_own);
  return level;
}

int64_t JointStaging::Append(uint64_t round, int64_t row, const std::vector<int>& indices,
                             std::vector<DeltaSource>* sources) const {
  int part = 0;
  while (part + 1 < parts_ && row >= FirstRow(part + 1)) ++part;
  for (const int index : indices) {
    const int worker = here_[static_cast<size_t>(index)];
    const int level = LevelOf(index, round, part);
    if (level == kAlone) sources->push_back(staging_.SourceOf(index, worker, round));
    if (level < 0) continue;
    const int first = worker >> level << level;
    sources->push_back(DeltaSource::Whole(first, ElementIn(index, round, 0), 0,
                                          std::min(1 << level, workers_ - first)));
  }
  const auto is_alike = [&](int index) {
    return LevelOf(index, round, part) == LevelOf(index, round, part + 1);
  };
  while (part + 1 < parts_ && std::all_of(indices.begin(), indices.end(), is_alike)) ++part;
  return FirstRow(part + 1);
}

}  // namespace multiverso
