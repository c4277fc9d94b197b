// Format: the bytes of a checkpoint's files, which docs/checkpoint-format.md describes one by one.
//
// A checkpoint is a folder with a manifest and data files, one for each rank that saves rows. A
// data file has a header, sections of rows in blocks, and a checksum for each block. An increment
// is a checkpoint that wrote only the rows that had changed. Its folder also has the data files of
// earlier checkpoints with the other rows, as hard links, so every folder is complete. All numbers
// are little-endian, and every offset follows from the counts before it, so a reader computes the
// offsets and compares them. A checksum covers every byte. A reader trusts no value before
// comparing it with the size of the file and with the checksum.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/stored_rows.h"
#include "numbers/initializer.h"

namespace multiverso {

constexpr uint32_t kFormatVersion = 1;
constexpr uint32_t kLazyFormatVersion = 2;         // of a checkpoint with a table of lazy rows
constexpr uint32_t kChainFormatVersion = 3;        // of the increments of 0.2.0; not read
constexpr uint32_t kStripesFormatVersion = 4;      // of an increment without kRunsArea
constexpr uint32_t kIncrementFormatVersion = 5;    // of an increment, with tables of any kind
constexpr int64_t kBlockBytes = int64_t{1} << 20;  // bytes of a section with one checksum
constexpr int64_t kDataAlignment = 4096;
constexpr int64_t kRunsAlignment = 64;  // in data files with kRunsArea
constexpr int64_t kIdOffset = 24;       // of the checkpoint's id in manifests and data files
constexpr int64_t kNumberOffset = 32;   // of its number in manifests
constexpr int kSavedHypers = 16;
constexpr int64_t kSavedNameBytes = 64;
// Larger manifests and headers are rejected as corrupt.
constexpr int64_t kMaxHeaderBytes = int64_t{256} << 20;

// The areas of a table: its parameters, and what its updater stores beside them.
constexpr uint32_t kParameterArea = 0;
constexpr uint32_t kFirstSlotArea = 1;    // state slot k is area 1 + k
constexpr uint32_t kStepsArea = 0x10000;  // the update count of each row, a uint32
constexpr uint32_t kMaxSlots = 0x10000 - 1;
// The numbers of the rows that the other areas have, an int64 each, in ascending order. Only tables
// with an initializer have this area; the other tables have all rows.
constexpr uint32_t kRowIdsArea = 0x10001;
constexpr int64_t kRowIdBytes = 8;
constexpr uint32_t kRowStateArea = 0x10002;  // SavedTable::row_slots numbers for each row
constexpr uint32_t kKeysArea = 0x10003;      // KeyIndex::SavedCell of each row of a hash table
// The rows that sections of an increment replace, in runs (StoredRows::Encode): those that the
// other areas have in their place, and those that have lost their keys. Earlier saves have the
// others.
constexpr uint32_t kRunsArea = 0x10004;
constexpr uint32_t kFreedRunsArea = 0x10005;
constexpr int64_t kRunBytes = 8;
constexpr uint32_t kHashKind = 2;
constexpr int64_t kKeyBytes = 16;
constexpr int64_t kRowsPerStripeOfKeys = 512;

// The way in which a table counts its updates.
enum class StepCounting : uint32_t { kNone = 0, kPerRow = 1, kPerSection = 2 };

struct SavedTable {
  uint32_t kind = 0;  // 0 array, 1 matrix, 2 hash table
  uint32_t dtype = 0;
  uint32_t updater = 0;
  uint32_t slots = 0;  // arrays of the parameters' size that the updater keeps
  int64_t num_row = 0;
  int64_t num_col = 0;
  StepCounting counting = StepCounting::kNone;
  uint32_t row_slots = 0;  // numbers of the table's type that the updater keeps for each row
  std::string name;        // at most 63 bytes
  double hyper[kSavedHypers] = {};
  std::vector<uint64_t> clocks;  // adds of each of the Manifest::workers workers
  InitializerSpec initializer;   // of the rows that are not stored

  DType type() const { return static_cast<DType>(dtype); }
  // Returns whether only rows that have been changed are stored.
  bool is_lazy() const { return initializer.kind != static_cast<int32_t>(InitializerKind::kNone); }
  // Returns the bytes of an element of an area: state has the value type of the parameters.
  int64_t element_bytes(uint32_t area) const {
    if (area == kRowIdsArea || IsOfRuns(area)) return kRowIdBytes;
    if (area == kKeysArea) return kKeyBytes;
    if (area == kStepsArea) return 4;
    return SizeOf(area == kParameterArea ? type() : ValueType(type()));
  }
  // Returns the bytes of one row of an area.
  int64_t row_bytes(uint32_t area) const { return elements_per_row(area) * element_bytes(area); }
  int64_t elements_per_row(uint32_t area) const {
    if (area >= kStepsArea && area != kRowStateArea) return 1;
    return area == kRowStateArea ? row_slots : num_col;
  }
  // num_areas() and area() list the areas that have sections, in ascending order.
  uint32_t num_areas() const {
    uint32_t count = 1 + slots;
    for (const uint32_t area : kOtherAreas) count += has_area(area) ? 1 : 0;
    return count;
  }
  uint32_t area(uint32_t index) const {
    uint32_t place = slots;
    for (const uint32_t area : kOtherAreas) {
      if (index > slots && has_area(area) && ++place == index) return area;
    }
    return index;
  }
  bool has_area(uint32_t area) const {
    return area <= slots || (area == kStepsArea && counting == StepCounting::kPerRow) ||
           (area == kRowIdsArea && is_lazy()) || (area == kRowStateArea && row_slots > 0) ||
           (area == kKeysArea && is_hash());
  }
  bool is_hash() const { return kind == kHashKind; }
  static bool IsOfRuns(uint32_t area) { return area == kRunsArea || area == kFreedRunsArea; }
  // Returns whether an increment may have the area. Rows that share a count are written together.
  bool may_have_area(uint32_t area) const {
    return has_area(area) || (area == kRunsArea && counting != StepCounting::kPerSection) ||
           (area == kFreedRunsArea && is_hash());
  }

 private:
  static constexpr uint32_t kOtherAreas[] = {kStepsArea, kRowIdsArea, kRowStateArea, kKeysArea};
};

struct SavedFile {
  int64_t bytes = 0;
  uint32_t header_crc = 0;
  uint32_t index = 0;  // among the files of the checkpoint that wrote it
  // The id and number of the checkpoint that wrote the file.
  uint64_t id = 0;
  int64_t number = 0;
};

struct Manifest {
  uint64_t id = 0;  // random, and equal in all files of a checkpoint
  int64_t number = 0;
  int64_t step = 0;
  uint32_t mode = 0;
  uint32_t workers = 0;
  int64_t created = 0;  // seconds since 1970 UTC
  std::string library;  // version of the writer, at most 23 bytes
  std::vector<SavedTable> tables;
  // The files that this checkpoint wrote come first, then those of earlier ones, the newest first.
  // Where two files have the same row, the first counts.
  std::vector<SavedFile> files;

  bool is_increment() const { return !files.empty() && files.back().number != number; }
};

// Returns what is wrong with a table's description, or an empty text.
std::string ProblemOf(const SavedTable& table);

// The first bytes of a file, which name its format.
constexpr int64_t kFormatOffset = 8;
constexpr int64_t kFormatBytes = 12;
// Returns the version of the format of a manifest that begins with these bytes, or 0 if they are
// not those of a manifest.
uint32_t FormatOf(const std::string& manifest);

std::string EncodeManifest(const Manifest& manifest);
// Decodes a manifest. `bytes` is the whole file, and `path` is for messages.
Result<Manifest> DecodeManifest(const std::string& bytes, const std::string& path);

// Consecutive rows of one area of one table, or those of them that are stored.
struct Section {
  uint32_t table = 0;  // index in Manifest::tables
  uint32_t area = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  uint64_t steps = 0;  // updates of the rows, if the table counts per section
  int64_t bytes = 0;   // bytes without the padding
  // Of a section that is saved and does not store all rows, those that it stores; and in the areas
  // of runs, what it contains.
  std::shared_ptr<const StoredRows> stored;
  std::shared_ptr<const std::vector<uint64_t>> runs;
  // Computed from the fields above.
  int64_t offset = 0;
  int64_t first_checksum = 0;
  int64_t alignment = kDataAlignment;

  int64_t padded_bytes() const;
  int64_t blocks() const;
};

// Returns the oldest version that can describe the tables, and for increments the newest one.
uint32_t VersionOf(const Manifest& manifest);
// Returns the oldest version of a data file that can have such sections.
uint32_t VersionOfData(const Manifest& manifest, const std::vector<Section>& sections);

// The header of a data file.
struct DataHeader {
  uint32_t version = kFormatVersion;
  uint64_t id = 0;
  uint32_t index = 0;  // index of the file
  std::vector<Section> sections;
  // Computed from the sections.
  int64_t header_bytes = 0;
  int64_t checksums_offset = 0;
  int64_t checksums = 0;
  int64_t file_bytes = 0;
};

// Computes all offsets from the sections' `bytes`. Returns false if an offset exceeds 2^62.
bool LayOut(DataHeader* header);
// Encodes a header after LayOut. The bytes end with their checksum.
std::string EncodeDataHeader(const DataHeader& header);
// The first bytes of a data file, which contain the length of its header.
constexpr int64_t kDataPreludeBytes = 64;
Result<int64_t> HeaderBytesOf(const std::string& prelude, int64_t file_bytes,
                              const std::string& path);
// Decodes a header, which must match file `index` of the manifest. `bytes` is the whole header.
Result<DataHeader> DecodeDataHeader(const std::string& bytes, int64_t file_bytes,
                                    const Manifest& manifest, size_t index,
                                    const std::string& path);
// Returns the checksum at the end of a header.
uint32_t HeaderCrcOf(const std::string& header);

}  // namespace multiverso
