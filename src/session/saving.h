// Saving: the call that writes a checkpoint.
//
// After CheckpointCall::Begin the master creates a folder to write in and announces it; from then
// on no rank changes the tables. Then each rank's SaveJob writes the rows that the rank saves,
// straight from the tables, and the call ends when the checkpoint is complete. In the background,
// each rank copies its rows to memory instead; the call ends when all ranks have done so, while the
// jobs write from the copies.
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
  // Which rows this rank saves, and how often they have been updated.
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
