// CheckpointReader: reads a checkpoint. Opening a checkpoint verifies everything except the data.
#ifndef MULTIVERSO_CHECKPOINT_READER_H_
#define MULTIVERSO_CHECKPOINT_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/data_file.h"
#include "checkpoint/file_system.h"
#include "checkpoint/format.h"

namespace multiverso {

constexpr char kManifestName[] = "manifest.mv";

// One thread at a time uses a reader. A failure of a file is CheckpointCorruptError or
// CheckpointIOError.
class CheckpointReader {
 public:
  // Opens the checkpoint in folder `path` and verifies that its files hold each row of each area of
  // each table exactly once.
  static Result<std::unique_ptr<CheckpointReader>> Open(FileSystem* files, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t file_bytes() const;  // bytes of all files

  int64_t blocks() const { return blocks_; }
  // Reads and verifies blocks first to end - 1.
  Status Verify(int64_t first, int64_t end, const WaitLimit& limit);

  // Reads and verifies the blocks with rows first_row to end_row - 1 of an area, and calls
  // take(first element, number of elements, data) for the part of these rows in each block, or, of
  // a table with an initializer, for each run of consecutive rows that are stored.
  using TakeBlock = std::function<Status(int64_t first, int64_t count, const char* data)>;
  Status Read(uint32_t table, uint32_t area, int64_t first_row, int64_t end_row,
              const WaitLimit& limit, const TakeBlock& take);
  // Returns the largest Section::steps among the sections with any of these rows' parameters.
  // Returns the number of rows that are stored of a table with an initializer.
  int64_t StoredRowsOf(uint32_t table) const;
  uint64_t StepsOf(uint32_t table, int64_t first_row, int64_t end_row) const;

 private:
  // A section and the file that holds it.
  struct StoredSection {
    const DataFile* file;
    const Section* section;
    std::vector<int64_t> row_ids;  // of a section of kRowIdsArea that has been read
    bool has_row_ids = false;
  };

  CheckpointReader(FileSystem* files, std::string path) : files_(files), path_(std::move(path)) {}

  Status ReadManifest();
  Status OpenDataFiles();
  Status CheckCoverage();
  // Returns the section with the row ids of a section of another area, or null.
  StoredSection* RowIdsOf(const Section& section);
  // Reads the row ids of a section of kRowIdsArea, unless they have been read, and checks them.
  Status ReadRowIds(StoredSection* stored);
  // Checks that each key of a section is in a row of its stripe, and in one row only.
  Status CheckKeys(const StoredSection& stored);
  // Does what Read does for the part of a section from offset `from` to `to`, whose rows are
  // `row_ids` from the section's first stored row on, or consecutive if `row_ids` is null.
  Status ReadPart(const StoredSection& stored, int64_t from, int64_t to, const int64_t* row_ids,
                  const WaitLimit& limit, const TakeBlock& take);

  FileSystem* files_;
  std::string path_;
  Manifest manifest_;
  int64_t manifest_bytes_ = 0;
  std::vector<std::unique_ptr<DataFile>> data_files_;
  std::vector<StoredSection> sections_;  // sorted by table, area and first row
  int64_t blocks_ = 0;
  std::vector<char> buffer_;  // room for a block
};

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_READER_H_
