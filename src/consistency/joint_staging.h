// JointStaging: how the workers of a node sum their deltas of the whole table while they stage
// them, in a session that spans nodes.
//
// The table is divided into parts. A worker that stages a part looks whether this node has staged
// the sum over the worker's sibling in the tree of the canonical sum (pairwise_sum.h). If so, it
// adds its delta to that sum, where the sum is, and goes on up the tree. Otherwise it stages a
// copy. So nobody waits, and a sum fetches no more memory than a copy, but the leader finds fewer
// terms. If a worker dies meanwhile, its add is never counted, and the round never complete.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/copy_bytes.h"
#include "consistency/staging.h"
#include "sum/pairwise_sum.h"
#include "sum/reduction.h"

namespace multiverso {

// One thread at a time uses an object.
class JointStaging {
 public:
  // `here` are the workers of this node, in the order of their staging memory, and `workers` is the
  // number of all workers.
  JointStaging(const StagedShape& shape, const Staging& staging, const std::vector<int>& here,
               int workers);

  // Stages a delta of here[index], whose StagedAdd has the buffer already. take(first, count, room)
  // returns where `count` elements of it from element `first` on are: in `room`, perhaps. Each
  // element is taken once.
  template <class Take>
  void Stage(int index, uint64_t round, const Take& take);
  // Appends the sources from that row on that have the deltas of the workers here[indices[i]].
  // Returns one past the last row for which they are right.
  int64_t Append(uint64_t round, int64_t row, const std::vector<int>& indices,
                 std::vector<DeltaSource>* sources) const;

 private:
  // The elements summed at a time stay in the first-level cache.
  static constexpr int64_t kAtATime = 2048;
  // What the buffer of a worker has of a part, besides the level of a sum: nothing but the worker's
  // delta, which nobody adds to, or nothing, since the delta is in the sum in another buffer.
  static constexpr int kAlone = -2;
  static constexpr int kElsewhere = -1;

  int64_t FirstRow(int part) const { return shape_.layout.rows() * part / parts_; }
  // Returns the level of the sum that the buffer of here[index] has of a part: the worker's subtree
  // of 2^level workers, or as many as there are.
  int LevelOf(int index, uint64_t round, int part) const;
  void SetLevel(int index, uint64_t round, int part, int level) const;
  // Finds the sums on this node to which a delta of here[index] can be added, in holders_ and
  // terms_, where *own is the delta. Returns the level of the sum with them.
  int FindSums(int index, uint64_t round, int part, PairwiseSum::Term** own);
  char* ElementIn(int index, uint64_t round, int64_t element) const {
    return staging_.values(index, staging_.add_of(index, round)->buffer) +
           element * shape_.element_bytes();
  }

  StagedShape shape_;
  Staging staging_;
  std::vector<int> here_;
  int workers_;
  int parts_;
  Reduction reduction_;
  PairwiseSum sum_;
  // Nothing may fail after a delta has been added to another one, so the memory is there before.
  std::vector<int> holders_;  // the indices of the workers in whose buffers the sums are
  std::vector<PairwiseSum::Term> terms_;
  std::vector<char> block_;  // of the delta
};

template <class Take>
void JointStaging::Stage(int index, uint64_t round, const Take& take) {
  for (int i = 0; i < parts_; ++i) {
    // Each worker begins with another part, so that workers which stage at once find sums, too.
    const int part = (i + parts_ * index / static_cast<int>(here_.size())) % parts_;
    const int64_t first = FirstRow(part) * shape_.columns;
    const int64_t end = FirstRow(part + 1) * shape_.columns;
    PairwiseSum::Term* own = nullptr;
    const int level = FindSums(index, round, part, &own);
    if (holders_.empty()) {
      char* const room = ElementIn(index, round, first);
      const char* const taken = take(first, end - first, room);
      const int64_t bytes = (end - first) * shape_.element_bytes();
      if (taken != room) CopyBytes(room, taken, static_cast<size_t>(bytes));
      SetLevel(index, round, part, level);
      continue;
    }
    for (int64_t at = first; at < end; at += kAtATime) {
      const int64_t count = std::min(kAtATime, end - at);
      own->values = take(at, count, block_.data());
      const PairwiseSum::Halves halves = sum_.HalvesOf(terms_, count);
      reduction_.Combine(ElementIn(holders_[0], round, at), halves.left, halves.right, count);
      for (PairwiseSum::Term& term : terms_) term.values += count * shape_.element_bytes();
    }
    SetLevel(index, round, part, kElsewhere);
    for (const int holder : holders_) SetLevel(holder, round, part, kElsewhere);
    SetLevel(holders_[0], round, part, level);
  }
}

}  // namespace multiverso
