// FileSystem: access to the files and folders of checkpoints. It is an interface so that a test can
// make any step fail or be the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/status.h"

namespace multiverso {

// A file that is written sequentially. The destructor closes the file.
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
  // Returns the size that the file had when it was opened.
  virtual int64_t bytes() const = 0;
  // Reads exactly `bytes` bytes. Returns CheckpointCorruptError if the file has become shorter.
  virtual Status Read(int64_t offset, void* out, int64_t bytes) = 0;
};

enum class EntryKind { kNone, kFile, kFolder, kOther };

// A FileSystem is thread-safe. Every failure is CheckpointIOError with the path and errno, except
// for a file that ends too early (ReadableFile::Read).
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates a file, or returns an error if the file exists.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Returns the kind of the entry, following links, or kNone if the entry does not exist.
  virtual Result<EntryKind> KindOf(const std::string& path) = 0;
  // Returns the names in a folder, in any order.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Creates a folder and its parents. Returns ok if the folder exists.
  virtual Status EnsureFolders(const std::string& path) = 0;
  // Creates a folder without parents, or returns an error if the folder exists.
  virtual Status CreateFolder(const std::string& path) = 0;
  // Renames an entry, atomically for other processes.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Makes `to` a second name of the file `from`, whose content stays until both are removed.
  virtual Status Link(const std::string& from, const std::string& to) = 0;
  // Flushes the entries of the folder to the disk.
  virtual Status SyncFolder(const std::string& path) = 0;
  // Removes a file. A link itself is removed, and its target stays.
  virtual Status Remove(const std::string& path) = 0;
  // Removes the folder and the files in it whose names may_remove() accepts. Fails if it contains
  // any other entry. Follows no link: removes the link itself, also one in the place of the folder.
  // Returns ok if nothing exists.
  virtual Status RemoveFolder(const std::string& path,
                              bool (*may_remove)(const std::string& name)) = 0;
};

// Returns the file system of this machine, which is never destroyed.
FileSystem* LocalFileSystem();

// Returns "PATH: cannot write: No space left on device, after 4096 bytes"; the last part
// only if `bytes_done` > 0.
Status IoFailure(const std::string& path, const char* action, int error_number,
                 int64_t bytes_done = 0);
Status IoFailure(const std::string& path, const char* action, const std::error_code& error);
// Returns that the folder `path` cannot be removed because of its entry `name`.
Status ForeignEntryFailure(const std::string& path, const std::string& name);
// Returns MemoryError if so many bytes are not free, for what a file is going to be read into: a
// file with holes is small on the disk, however large it is.
Status CheckRoomFor(int64_t bytes, const std::string& path);
// Returns "PATH, byte 64: ...".
Status CorruptionFailure(const std::string& path, int64_t offset, const std::string& problem);

}  // namespace multiverso
