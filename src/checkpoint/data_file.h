// DataFile: reads one data file of a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/format.h"

namespace multiverso {

// Returns "shard-00002.mv" for index 2.
std::string DataFileName(uint32_t index);
// Returns the name of a file in the folder of checkpoint `number`: "shard-00002.mv", or, if an
// earlier checkpoint wrote the file, "shard-00002-of-000007.mv".
std::string DataFileName(const SavedFile& file, int64_t number);
// Returns whether a save writes a data file of this name.
bool IsDataFileName(const std::string& name);
// Returns the name that a data file has while it is written.
std::string PartialName(const std::string& data_file);

// One thread at a time uses a DataFile. Failures are CheckpointCorruptError or CheckpointIOError.
class DataFile {
 public:
  // Opens file number `index` of the manifest, and verifies its size, its header and the checksum
  // of its checksums.
  static Result<std::unique_ptr<DataFile>> Open(FileSystem* files, const std::string& path,
                                                const Manifest& manifest, size_t index);

  const DataHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  bool is_open() const { return file_ != nullptr; }
  // Closes the file, so that a reader of many files stays within the limit of open files. ReadBlock
  // opens it again.
  void Close() { file_.reset(); }

  // Reads and verifies one block of a section. `out` has room for kBlockBytes. Returns the number
  // of the block's bytes that are data; the other bytes are padding.
  Result<int64_t> ReadBlock(const Section& section, int64_t block, char* out);

 private:
  DataFile(FileSystem* files, std::unique_ptr<ReadableFile> file, DataHeader header,
           std::vector<uint32_t> checksums)
      : files_(files),
        path_(file->path()),
        file_(std::move(file)),
        header_(std::move(header)),
        checksums_(std::move(checksums)) {}

  FileSystem* files_;
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  DataHeader header_;
  std::vector<uint32_t> checksums_;
};

}  // namespace multiverso
