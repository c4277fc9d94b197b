// CheckpointFolder: the folder in which a job's checkpoints stand, and their names.
//
//   000012-step-300         a checkpoint: the twelfth that was saved here
//   .saving-000013-...      one that is being written, or what a killed save has left
//   .removing-000002-...    one that is being removed, or what is left of it
//
// A checkpoint comes and goes by one rename, so that whoever looks finds it whole or not at all.
#ifndef MULTIVERSO_CHECKPOINT_FOLDER_H_
#define MULTIVERSO_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"

namespace multiverso {

struct CheckpointName {
  int64_t number = 0;  // in the order of saving
  int64_t step = 0;    // whatever the user counts

  std::string text() const;
  // False if that is no name of a checkpoint.
  static bool Parse(const std::string& text, CheckpointName* name);
};

// Used by one process of one job at a time, but for Latest and Resolve.
class CheckpointFolder {
 public:
  CheckpointFolder(FileSystem* files, std::string path) : files_(files), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string PathOf(const CheckpointName& name) const { return path_ + "/" + name.text(); }

  // All checkpoints, in the order of saving.
  Result<std::vector<CheckpointName>> List() const;
  // The folder of the checkpoint that `path` means: itself, or the one saved last in it; empty if
  // there is none. CheckpointCorruptError if a file is there.
  Result<std::string> Resolve() const;

  // Makes a folder to write the next checkpoint in, and removes what killed saves have left.
  // `step` -1 stands for the one after the last. Returns the path of the folder.
  Result<std::string> Begin(int64_t step, uint64_t id, CheckpointName* name);
  // That folder.
  std::string SavingPath(const CheckpointName& name, uint64_t id) const;
  // Gives the folder its name.
  Status Commit(const std::string& saving, const CheckpointName& name);
  // Removes a folder that Begin made. As much as can be: nobody can be told what cannot.
  void Abandon(const std::string& saving);
  // Removes all but the newest `keep`.
  Status Prune(int64_t keep);

 private:
  // With the files in it.
  Status RemoveAll(const std::string& path);

  FileSystem* files_;
  std::string path_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_FOLDER_H_
