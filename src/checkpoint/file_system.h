// FileSystem: the files and folders of checkpoints, as an interface, so that a test can make any
// step fail or be the last one.
#ifndef MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_
#define MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace multiverso {

// A file that is written sequentially. Its destructor closes it.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Write(const void* data, int64_t bytes) = 0;
  // Flushes all writes to the disk.
  virtual Status Sync() = 0;
};

// A file that one thread at a time reads.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  // The size when the file was opened.
  virtual int64_t bytes() const = 0;
  // Reads exactly `bytes` bytes. CheckpointCorruptError if the file has become shorter.
  virtual Status Read(int64_t offset, void* out, int64_t bytes) = 0;
};

enum class EntryKind { kNone, kFile, kFolder, kOther };

// Thread-safe. Every failure is CheckpointIOError with the path and errno.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates a file; an error if it exists.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // The kind of the entry, following links; kNone if it does not exist.
  virtual Result<EntryKind> Look(const std::string& path) = 0;
  // The names in a folder, in any order.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Creates a folder and its parents; ok if it exists.
  virtual Status MakeFolders(const std::string& path) = 0;
  // Creates a folder without parents; an error if it exists.
  virtual Status MakeFolder(const std::string& path) = 0;
  // Atomic for other processes.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Flushes the entries of the folder to the disk.
  virtual Status SyncFolder(const std::string& path) = 0;
  // Removes a file or an empty folder. Links are removed, not followed.
  virtual Status Remove(const std::string& path) = 0;
};

// The file system of this machine; never destroyed.
FileSystem* LocalFileSystem();

// "PATH: cannot write: No space left on device (errno 28), after 4096 bytes".
Status IoFailure(const std::string& path, const char* what, int error_number, int64_t bytes = 0);
// "PATH, byte 64: ...".
Status Corrupt(const std::string& path, int64_t offset, const std::string& what);

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_FILE_SYSTEM_H_
