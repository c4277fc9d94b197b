// RoundSum: sums the staged deltas of a sync round and passes the sum to the updater.
#ifndef MULTIVERSO_CONSISTENCY_ROUND_SUM_H_
#define MULTIVERSO_CONSISTENCY_ROUND_SUM_H_

#include <cstdint>
#include <vector>

#include "consistency/staging.h"
#include "shard/shard.h"

namespace multiverso {

// The delta of one worker in a round.
struct Contribution {
  bool is_rows = false;
  const char* values = nullptr;      // of the whole table, or of the listed rows
  const int64_t* row_ids = nullptr;  // ascending
  int64_t count = 0;                 // the number of row ids
};

// One thread at a time uses an object, because its functions share scratch memory.
class RoundSum {
 public:
  RoundSum(const StagedShape& shape, const Shard* shard);

  // Applies the sum of the contributions over one stripe to the parameters, as one update. The
  // contributions are in worker order, so the bits do not depend on which rank sums. `out`, if not
  // null, spans the whole table and receives the new parameters of the stripe, and no contribution
  // may then be of rows.
  void ApplyStripe(int64_t stripe, const std::vector<Contribution>& contributions, char* out);

 private:
  void ApplyWhole(int64_t stripe, const std::vector<Contribution>& contributions, char* out);
  void ApplyByRow(int64_t stripe, const std::vector<Contribution>& contributions);
  char* Scratch(int64_t count);
  void Add(char* sum, const char* values, int64_t count) const;

  StagedShape shape_;
  const Shard* shard_;
  std::vector<char> sum_;
  std::vector<char> scratch_;
  std::vector<int64_t> next_rows_;  // by contribution of rows: the index of its next row
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_ROUND_SUM_H_
