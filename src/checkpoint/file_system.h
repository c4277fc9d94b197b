// FileSystem: the files and folders of checkpoints, as an interface, so that a test can let any
// step fail or be the last.
#ifndef MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_
#define MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace multiverso {

// A file that is being written, from its beginning to its end. Closed at the end of its life.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Write(const void* data, int64_t bytes) = 0;
  // What has been written is on the disk.
  virtual Status Sync() = 0;
};

// A file that is read, by one thread at a time.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  // Its size when it was opened.
  virtual int64_t bytes() const = 0;
  // Exactly as many bytes: fewer are CheckpointCorruptError, since the file was longer before.
  virtual Status Read(int64_t offset, void* out, int64_t bytes) = 0;
};

enum class EntryKind { kNone, kFile, kFolder, kOther };

// Thread-safe. Every failure is CheckpointIOError with the path and errno.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new file; it is an error if there is one.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // What is there, through links; kNone if nothing is.
  virtual Result<EntryKind> Look(const std::string& path) = 0;
  // The names in a folder, in no order.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // With the folders above it; ok if it is there.
  virtual Status MakeFolders(const std::string& path) = 0;
  // It alone; it is an error if it is there.
  virtual Status MakeFolder(const std::string& path) = 0;
  // In one step that others see done or not done.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // What was created or renamed in the folder is on the disk.
  virtual Status SyncFolder(const std::string& path) = 0;
  // A file, or an empty folder. Links are removed, not followed.
  virtual Status Remove(const std::string& path) = 0;
};

// The one of this machine; lives as long as the process.
FileSystem* LocalFileSystem();

// "PATH: cannot write: No space left on device (errno 28), after 4096 bytes".
Status IoFailure(const std::string& path, const char* what, int error_number, int64_t bytes = 0);
// "PATH, byte 64: ...".
Status Corrupt(const std::string& path, int64_t offset, const std::string& what);

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_
