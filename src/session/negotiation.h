// Negotiation: the beginning of a save or a load. All ranks say what they ask for, which must be
// the same, and which tables they have. Ranks release tables each at its own time, so the call is
// about those that all of them have.
#ifndef MULTIVERSO_SESSION_NEGOTIATION_H_
#define MULTIVERSO_SESSION_NEGOTIATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/group.h"
#include "table/table.h"

namespace multiverso {

// What must be the same on all ranks.
struct CheckpointRequest {
  std::string folder;
  int64_t step = -1;   // of a save; -1 for the one after the last
  int64_t keep = 0;    // of a save; 0 for all
  bool flag = false;   // a save in the background; a load of what may be missing
  int64_t table = -1;  // its number, if it is about one table
};

using Tables = std::vector<std::shared_ptr<Table>>;

class Negotiation {
 public:
  // `tables` are those that this rank has, of `num_created` that there have been.
  Negotiation(RankContext* group, CollectiveKind kind, CheckpointRequest request, Tables tables,
              int64_t num_created);

  // Ok when everybody has been heard. MismatchError if somebody asked for something else.
  Status Step(const WaitLimit& limit);
  // In the order of their creation.
  const Tables& tables() const { return tables_; }

 private:
  void Arrive();
  Status Compare() const;

  RankContext* group_;
  CollectiveKind kind_;
  CheckpointRequest request_;
  Tables tables_;
  int64_t num_created_;
  int64_t base_ = 0;  // number of the first table that this meeting is about
  bool arrived_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_NEGOTIATION_H_
