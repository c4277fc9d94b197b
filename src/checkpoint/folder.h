// CheckpointFolder: the folder in which jobs keep their checkpoints, and the names in it.
//
//   000012-step-300         a checkpoint: the twelfth that was saved here
//   .saving-000013-...      a checkpoint being written, or left by a killed save
//   .removing-000002-...    a checkpoint being removed, or left by a killed removal
//
// What a killed job has left is removed by the next save, unless that fails, which is a warning: a
// folder that anyone else has changed does not end the saves of a job. Nothing is removed that no
// save has made.
//
// A checkpoint appears and disappears by one rename, so a reader finds all of it or nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest_file.h"

namespace multiverso {

// One process at a time changes the folder. Any number of processes may call List and Resolve.
class CheckpointFolder {
 public:
  CheckpointFolder(FileSystem* files, std::string path) : files_(files), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string PathOf(const CheckpointName& name) const { return path_ + "/" + name.text(); }

  // Returns all checkpoints, in the order of saving.
  Result<std::vector<CheckpointName>> List() const;
  // Returns path() if it is itself a checkpoint, or the path of the last checkpoint in it, or an
  // empty text without one. Returns CheckpointCorruptError if path() is a file.
  Result<std::string> Resolve() const;
  // Returns the error that there is no checkpoint. It says whether the folder is missing or empty,
  // and ends with the advice.
  Status NotFound(const char* advice = "") const;

  // Removes leftovers of killed saves and removals, creates a folder in which the next checkpoint
  // is written, and returns its path. `step` -1 means the last step plus 1, or 0 without a last
  // step.
  Result<std::string> Begin(int64_t step, uint64_t id, CheckpointName* name);
  // Returns the path that Begin returned for this name and id.
  std::string SavingPath(const CheckpointName& name, uint64_t id) const;
  // Flushes the folder to the disk and renames it to its final name.
  Status Commit(const std::string& partial_folder, const CheckpointName& name);
  // Removes a folder that Begin created, and ignores failures.
  void Abandon(const std::string& partial_folder);
  // Renames all checkpoints except for the last `keep`, so that readers no longer find them, and
  // adds their new names to `retired`. RemoveLeftovers then frees their space, which takes longer.
  // A checkpoint that cannot be renamed stays, with a warning.
  Status Retire(int64_t keep, std::vector<std::string>* retired);
  // Removes entries of the folder that Retire or a killed job has left, when it is certain that no
  // power failure can bring back their earlier names. A failure is a warning.
  void RemoveLeftovers(const std::vector<std::string>& names);

 private:
  // Creates the folder and its parents, one after the other, and flushes each to the disk, so that
  // no power failure takes away the folder of a complete checkpoint.
  Status Make() const;

  FileSystem* files_;
  std::string path_;
};

}  // namespace multiverso
