// SaveJob: one rank's part in writing a checkpoint, in a thread of its own.
//
// Every rank that owns rows writes them into a file, `shard-00002.mv.part` while it is not complete
// and `shard-00002.mv` from then on. The rank that commits also waits for the files of the others,
// which it sees come in the folder, writes the manifest and gives the folder its name. So a
// checkpoint is completed without anybody having to meet, and becomes visible in one step.
#ifndef MULTIVERSO_CHECKPOINT_SAVE_JOB_H_
#define MULTIVERSO_CHECKPOINT_SAVE_JOB_H_

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

// Where the bytes of the sections come from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // `bytes` bytes of that section from `offset` on: written to `room`, or pointed to by the result.
  virtual Result<const char*> Fetch(size_t section, int64_t offset, int64_t bytes, char* room) = 0;
};

struct SavePlan {
  std::string folder;  // of all checkpoints
  std::string saving;  // the folder that CheckpointFolder::Begin made
  CheckpointName name;
  Instant deadline;
  // Of this rank's file. No file if it is negative.
  int32_t file_index = -1;
  std::vector<Section> sections;  // with their bytes
  // Of the rank that commits.
  bool commits = false;
  Manifest manifest;  // without the files; of the others, only the id counts
  uint32_t num_files = 0;
  int64_t keep = 0;  // checkpoints to keep; 0 for all
  // Why the rank that writes that file will never have done so; ok while it may.
  std::function<Status(uint32_t file)> why_never;
};

// Thread-safe.
class SaveJob {
 public:
  // MemoryError if no thread can be had. `files` outlives the job.
  static Result<std::unique_ptr<SaveJob>> Start(FileSystem* files, SavePlan plan,
                                                std::unique_ptr<BlockSource> source);
  // Stops.
  ~SaveJob();

  bool commits() const { return plan_.commits; }
  const std::string& saving() const { return plan_.saving; }
  const std::string& folder() const { return plan_.folder; }
  // Of the checkpoint, when it is complete.
  std::string path() const { return StrCat(plan_.folder, "/", plan_.name.text()); }

  // The result of writing this rank's file.
  Status AwaitWritten(const WaitLimit& limit);
  // All ranks have written theirs: there is nothing left to wait for.
  void NoteAllWritten();
  // The same of the whole checkpoint, where this rank commits it; ok on the others.
  Status AwaitCommitted(const WaitLimit& limit);
  // Ends it, after the block that is being written.
  void Stop();

 private:
  SaveJob(FileSystem* files, SavePlan plan, std::unique_ptr<BlockSource> source)
      : files_(files), plan_(std::move(plan)), source_(std::move(source)) {}

  void Run();
  Status WriteFile();
  Status WriteData(WritableFile* file, const DataHeader& header);
  Status CheckGoesOn() const;
  Status CollectFiles();
  // Pending while it is not there.
  Status CollectFile(uint32_t index);
  Status Commit();
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
  std::thread thread_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_SAVE_JOB_H_
