// Saving: the call that writes a checkpoint.
//
// The ranks agree on what is to be saved; the master makes a folder to write in, and the workers
// apply what has been added; they meet: from here on the tables stand still. Then each rank's
// SaveJob writes the rows that the rank owns, straight from the tables, and the call ends when the
// checkpoint is complete. In the background, each rank copies its rows to memory instead and the
// ranks meet again, which ends the call, while the jobs write from the copies.
#ifndef MULTIVERSO_SESSION_SAVING_H_
#define MULTIVERSO_SESSION_SAVING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "session/checkpoint_call.h"
#include "session/table_snapshot.h"

namespace multiverso {

class Saving final : public CheckpointCall {
 public:
  // `mode` goes into the manifest.
  Saving(Checkpointing* state, std::unique_ptr<Operation> fence, CheckpointRequest request,
         Tables tables, int64_t num_created, Mode mode, Instant deadline);

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

 private:
  enum class Phase { kBegin, kPrepared, kCopy, kStarted, kEnd };

  // Makes the folder, on the master, and says so.
  void PrepareAndArrive();
  // Takes over what the master has decided.
  Status TakePreparations();
  // Which rows this rank saves, and how often they have been updated.
  Status ListSections(const WaitLimit& limit);
  Status MakeRoomForCopy();
  Status Copy(const WaitLimit& limit);
  Status StartJob();
  Manifest MakeManifest() const;

  SaveEnd end_;
  Mode mode_;
  Phase phase_ = Phase::kBegin;
  std::vector<int> savers_;  // who write
  std::string saving_;
  CheckpointName name_;
  uint64_t id_ = 0;
  int64_t created_ = 0;
  std::vector<Section> sections_;
  bool has_sections_ = false;
  bool has_room_ = false;
  TableSnapshot copy_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_SAVING_H_
