// CollectiveGet: get(sync=True). All workers get the same bits, with every add before it in.
#ifndef MULTIVERSO_TABLE_COLLECTIVE_GET_H_
#define MULTIVERSO_TABLE_COLLECTIVE_GET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/operation.h"
#include "table/table.h"

namespace multiverso {

// The workers meet, read, and meet again: nobody adds between the two meetings. Arguments have
// been checked. `row_ids` is null for the whole table.
class CollectiveGet final : public Operation {
 public:
  CollectiveGet(Table* table, const int64_t* row_ids, int64_t num_ids, void* out, Instant deadline);

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

 private:
  enum class Phase { kBefore, kRead, kAfter };

  // A call on one table is not the same call on another.
  void Arrive();
  Status CheckSameTable() const;
  Status Read(const WaitLimit& limit);

  Table* table_;
  const int64_t* row_ids_;
  int64_t num_ids_;
  void* out_;
  Phase phase_ = Phase::kBefore;
  Progress progress_;
  std::unique_ptr<Operation> reading_;  // if the table's rows lie on several nodes
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_COLLECTIVE_GET_H_
