// StalenessGate: a call on a table whose rows lie on several nodes, with bounded staleness: it
// waits for the workers that are too far behind, is made like any other there, and then counts.
#ifndef MULTIVERSO_TABLE_STALENESS_GATE_H_
#define MULTIVERSO_TABLE_STALENESS_GATE_H_

#include <memory>
#include <string>

#include "base/operation.h"
#include "table/table.h"

namespace multiverso {

class StalenessGate final : public Operation {
 public:
  // As the calls of Table::Start.
  StalenessGate(Table* table, Consistency* rounds, const TableRequest& request, Instant deadline)
      : Operation(deadline), table_(table), rounds_(rounds), request_(request) {}

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

 private:
  Table* table_;
  Consistency* rounds_;
  TableRequest request_;
  Progress progress_;
  std::unique_ptr<Operation> call_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_STALENESS_GATE_H_
