// SaveJob: one rank's part in writing a checkpoint, in a separate thread.
//
// Every rank that owns rows writes them to a file, named `shard-00002.mv.part` until it is complete
// and `shard-00002.mv` afterwards. The rank that commits polls the folder for the files of the
// other ranks, writes the manifest and renames the folder. So a checkpoint is completed without a
// barrier and becomes visible atomically. After that, the same rank frees the space of checkpoints
// that are no longer kept, for which no other rank waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/file_system.h"
#include "checkpoint/folder.h"
#include "checkpoint/format.h"

namespace multiverso {

// Where a job gets the bytes of its sections.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // Returns `bytes` bytes of a section from `offset` on, in `buffer` or in memory of the source,
  // which stays valid until the source is destroyed.
  virtual Result<const char*> Fetch(size_t section, int64_t offset, int64_t bytes,
                                    char* buffer) = 0;
};

// A source whose sections are in memory that outlives it.
class MemorySource final : public BlockSource {
 public:
  explicit MemorySource(std::vector<const char*> sections) : sections_(std::move(sections)) {}
  Result<const char*> Fetch(size_t section, int64_t offset, int64_t /*bytes*/,
                            char* /*buffer*/) override {
    return sections_[section] + offset;
  }

 private:
  std::vector<const char*> sections_;
};

struct SavePlan {
  std::string folder;  // the folder of all checkpoints
  std::string saving;  // the folder that CheckpointFolder::Begin made
  CheckpointName name;
  Instant deadline;
  int32_t file_index = -1;        // of this rank's file; -1 if this rank saves no rows
  std::vector<Section> sections;  // of this rank's file, with Section::bytes set
  bool commits = false;           // whether this rank commits the checkpoint
  // With the files of earlier checkpoints only, which the folder has already. Ranks that do not
  // commit use only its id and its tables.
  Manifest manifest;
  // Only the rank that commits uses the following fields.
  uint32_t num_files = 0;
  int64_t keep = 0;  // number of checkpoints to keep; 0 for all
  // Returns why the file will never be written, or ok while its rank may still write the file.
  std::function<Status(uint32_t file)> why_never;
};

// A SaveJob is thread-safe.
class SaveJob {
 public:
  // Returns MemoryError if the thread cannot be started. `files` outlives the job.
  static Result<std::unique_ptr<SaveJob>> Start(FileSystem* files, SavePlan plan,
                                                std::unique_ptr<BlockSource> source);
  // Stops the thread and waits until the thread has ended.
  ~SaveJob();

  bool commits() const { return plan_.commits; }
  const std::string& saving() const { return plan_.saving; }
  const std::string& folder() const { return plan_.folder; }
  // Returns the path of the complete checkpoint.
  std::string path() const { return StrCat(plan_.folder, "/", plan_.name.text()); }

  // Waits for this rank's file and returns the result of writing the file.
  Status AwaitWritten(const WaitLimit& limit);
  // Tells the job that all ranks have written their files, so an invisible file is an error.
  void NoteAllWritten();
  // Waits for the commit on the rank that commits, and for this rank's file on the others, and
  // returns the result.
  Status AwaitCommitted(const WaitLimit& limit);
  // Makes the thread stop after the current block.
  void Stop();

 private:
  SaveJob(FileSystem* files, SavePlan plan, std::unique_ptr<BlockSource> source)
      : files_(files), plan_(std::move(plan)), source_(std::move(source)) {}

  // Runs change() under the mutex and wakes all waits.
  template <class Change>
  void ChangeAndWake(Change change);
  void Run();
  Status WriteFile();
  Status WriteData(WritableFile* file, const DataHeader& header);
  Status CheckMayContinue() const;
  Status CollectFiles();
  // Returns pending while the file does not exist.
  Status CollectFile(uint32_t index);
  Status Commit();
  void RemoveOld();
  Status Await(const bool* done, const Status* status, const WaitLimit& limit);

  FileSystem* files_;
  SavePlan plan_;
  std::unique_ptr<BlockSource> source_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool written_ = false;
  Status written_status_;
  bool committed_ = false;
  Status committed_status_;
  bool all_written_ = false;
  std::vector<std::string> retired_;  // names of folders that the thread removes at its end
  std::thread thread_;
};

}  // namespace multiverso
