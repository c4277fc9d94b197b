// Saving: the call that writes a checkpoint.
//
// After CheckpointCall::Begin, the master creates the folder in which the ranks write and announces
// it; from then until the call ends, no rank changes the tables. Each rank's SaveJob writes the
// rows that the rank saves directly from the tables, and the call ends when the checkpoint is
// complete. In a background save, each rank first copies its rows to memory. The call ends when all
// ranks have done so, and the jobs write from the copies after that.
#ifndef MULTIVERSO_SESSION_SAVING_H_
#define MULTIVERSO_SESSION_SAVING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "session/checkpoint_call.h"
#include "session/table_snapshot.h"

namespace multiverso {

class Saving : private CheckpointCall {
 public:
  // `mode` is written to the manifest.
  Saving(Checkpointing* state, CheckpointRequest request, Mode mode)
      : CheckpointCall(state, CollectiveKind::kSave, std::move(request)), mode_(mode) {}

  // Called once, after a barrier. `tables` and `num_created` as in Negotiate.
  Status Run(Tables tables, int64_t num_created, const WaitLimit& limit);

 private:
  // The master creates the folder; the others learn its name.
  Status Prepare(const WaitLimit& limit);
  // Lists the rows that this rank saves, with the number of their updates, in sections_.
  Status ListSections(const WaitLimit& limit);
  Status MakeRoomForCopy();
  Status Copy(const WaitLimit& limit);
  Status StartJob(Instant deadline);
  Manifest MakeManifest() const;

  Mode mode_;
  std::vector<int> savers_;  // the ranks that write
  std::string saving_;
  CheckpointName name_;
  uint64_t id_ = 0;
  int64_t created_ = 0;
  std::vector<Section> sections_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_SAVING_H_
