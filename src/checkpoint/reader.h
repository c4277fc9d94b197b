// CheckpointReader: reads a checkpoint. Opening a checkpoint verifies everything except the data.
//
// The files of an increment were written by several saves. Each row of each area has the content of
// the newest save that wrote it.
#pragma once

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

// One thread at a time uses a reader. A failure of a file is CheckpointCorruptError or
// CheckpointIOError.
class CheckpointReader {
 public:
  // Opens the checkpoint in folder `path`, and verifies that its files hold each row of each area
  // of each table: those of one save at most once, and those of the oldest save exactly once.
  static Result<std::unique_ptr<CheckpointReader>> Open(FileSystem* files, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t file_bytes() const;  // bytes of all files

  int64_t blocks() const { return blocks_; }
  // Reads and verifies blocks first to end - 1, which include those that newer ones replace.
  Status Verify(int64_t first, int64_t end, const WaitLimit& limit);

  // Reads and verifies the blocks with rows first_row to end_row - 1 of an area, and calls
  // take(first element, number of elements, data) for the part of these rows in each block, or for
  // each run of consecutive rows that a section stores, in ascending order.
  using TakeBlock = std::function<Status(int64_t first, int64_t count, const char* data)>;
  Status Read(uint32_t table, uint32_t area, int64_t first_row, int64_t end_row,
              const WaitLimit& limit, const TakeBlock& take);
  // Returns the number of rows that are stored of a table with an initializer.
  Result<int64_t> StoredRowsOf(uint32_t table);
  // Returns the largest Section::steps among the sections with any of these rows' parameters.
  uint64_t StepsOf(uint32_t table, int64_t first_row, int64_t end_row);

 private:
  // The most data files that are open at a time.
  static constexpr size_t kMaxOpenFiles = 64;

  // A section and the file that holds it.
  struct StoredSection {
    DataFile* file;
    const Section* section;
    std::shared_ptr<const StoredRows> list;  // of a section that lists rows and has been read
  };
  // What one save wrote.
  struct Save {
    std::vector<std::unique_ptr<DataFile>> files;
    std::vector<StoredSection> sections;  // sorted by table, area and first row
    // The block that was read last.
    std::vector<char> buffer;
    const Section* section = nullptr;
    int64_t block = 0;
    int64_t bytes = 0;
  };
  // Rows of a section, or rows that have lost their keys, which no section has.
  struct Part {
    Save* save;
    const StoredSection* stored;
    RowRange rows;
  };

  CheckpointReader(FileSystem* files, std::string path) : files_(files), path_(std::move(path)) {}

  Status OpenFiles();
  // Opens the data files `first` to `end` - 1 of the manifest, which one save wrote.
  Status OpenSave(size_t first, size_t end);
  // Returns an error unless a save has each row at most once, and the oldest save each row.
  Status CheckCoverage(Save* save, bool is_oldest) const;
  // Returns the section of an area that begins with a row, or null.
  static StoredSection* Find(Save* save, uint32_t table, uint32_t area, int64_t first_row);
  // Returns the section that lists the rows that a section stores, or null if it stores all.
  StoredSection* ListOf(Save* save, const Section& section) const;
  // Reads the rows in a section that lists some, unless it has been read, and checks them.
  Status ReadList(Save* save, StoredSection* stored);
  // Appends what a save has in some rows of an area, in ascending order.
  Status AppendParts(Save* save, uint32_t table, uint32_t area, RowRange rows,
                     std::vector<Part>* parts);
  // Returns the parts in `below` that newer ones do not replace, and these.
  static std::vector<Part> Overlay(const std::vector<Part>& below, const std::vector<Part>& newer);
  // Calls body(part) for the rows of an area that are stored, in ascending order.
  template <class Body>
  Status ForEachPart(uint32_t table, uint32_t area, RowRange rows, const Body& body);
  // Reads a block to the save's buffer, and returns the number of its bytes that are data.
  Result<int64_t> ReadBlock(Save* save, const StoredSection& stored, int64_t block);
  // Closes another file if `file` is one too many that is open.
  void LimitOpenFiles(DataFile* file);
  // Checks that each key of a section is in a row of its stripe, and in one row only.
  Status CheckKeys(Save* save, const StoredSection& stored, const WaitLimit& limit);
  // Does what Read does for a part.
  Status ReadPart(const Part& part, const WaitLimit& limit, const TakeBlock& take);

  FileSystem* files_;
  std::string path_;
  Manifest manifest_;
  int64_t manifest_bytes_ = 0;
  std::vector<std::unique_ptr<Save>> saves_;  // the newest first
  std::vector<DataFile*> open_files_;
  size_t next_to_close_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace multiverso
