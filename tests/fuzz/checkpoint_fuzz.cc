// Reads a checkpoint, or an increment on it, with one of their files replaced by the input.
//
// The first byte of the input holds options: bit 0 replaces a data file instead of a manifest,
// bit 1 corrects the checksums, as an attacker would, bit 2 reads the increment and replaces one of
// its files, and bit 3 replaces the file in it that the checkpoint wrote. The rest is the file's
// content.
#include <atomic>
#include <cstring>
#include <new>

#include "base/checked.h"
#include "base/crc.h"
#include "checkpoint/memory_save.h"
#include "checkpoint/reader.h"
#include "memory_files.h"
#include "support/increments.h"
#include "target.h"

namespace {

std::atomic<size_t> largest_allocation{0};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__has_feature)
// These operators replace those of the whole program and record the largest allocation.
void* operator new(size_t bytes) {
  size_t largest = largest_allocation.load();
  while (largest < bytes && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
#endif

namespace multiverso::fuzz {
namespace {

// The folder of the checkpoint, and that of the increment on it.
constexpr char kFolders[][24] = {"/saved/000001-step-3", "/saved/000002-step-4"};
constexpr char kNames[][32] = {"manifest.mv", "shard-00000.mv", "shard-00000-of-000001.mv"};

// Where the header of a data file has the id of its checkpoint.
constexpr size_t kPlaceOfId = 24;

std::string PathOf(size_t folder, size_t file) {
  return std::string(kFolders[folder]) + "/" + kNames[file];
}

// Return the indices of the folder that is read, and of the file that is replaced.
size_t FolderOf(char options) { return (options & 12) != 0 ? 1 : 0; }
size_t FileOf(char options) { return (options & 8) != 0 ? 2 : options & 1; }

// Writes the checksum of the first `size` - 4 bytes into the 4 bytes that follow.
void PutCrc(std::string* bytes, size_t size) {
  if (size < 4 || size > bytes->size()) return;
  const uint32_t crc = Crc32c(bytes->data(), static_cast<int64_t>(size) - 4);
  std::memcpy(bytes->data() + size - 4, &crc, 4);
}

// Corrects the checksums of a file with any contents, as an attacker would.
void CorrectChecksums(MemoryFiles* files, size_t folder, size_t file) {
  std::string* const bytes = files->Find(PathOf(folder, file));
  if (file == 0) {
    PutCrc(bytes, bytes->size());
    return;
  }
  // The fixed part of a data file's header has 64 bytes, with the header's size at byte 40.
  int64_t header_bytes = 4096;
  if (bytes->size() >= 48) std::memcpy(&header_bytes, bytes->data() + 40, 8);
  if (header_bytes < 64 || header_bytes > static_cast<int64_t>(bytes->size())) return;
  PutCrc(bytes, static_cast<size_t>(header_bytes));
  std::string* const manifest = files->Find(PathOf(folder, 0));
  Result<Manifest> decoded = DecodeManifest(*manifest, "");
  SavedFile* const saved = &decoded->files[file - 1];
  saved->bytes = static_cast<int64_t>(bytes->size());
  saved->header_crc = HeaderCrcOf(bytes->substr(0, static_cast<size_t>(header_bytes)));
  *manifest = EncodeManifest(decoded.value());
}

// Returns the files of a valid checkpoint, which has three small tables, and of an increment.
const MemoryFiles& Original() {
  static const MemoryFiles* const files = [] {
    auto* made = new MemoryFiles;
    static const float weights[5] = {1, 2, 3, 4, 5};
    static const double rows[6] = {1, 2, 3, 4, 5, 6};
    static const uint32_t steps[3] = {7, 8, 9};
    std::vector<MemoryTable> tables(3);
    static const int64_t row_ids[3] = {2, 3, 7};
    tables[0].record.name = "w";
    tables[0].record.slots = 1;
    tables[0].record.num_row = 5;
    tables[0].record.num_col = 1;
    tables[0].record.counting = StepCounting::kPerSection;
    tables[0].steps = 4;
    tables[0].areas = {weights, weights};
    tables[1].record.name = "m";
    tables[1].record.kind = 1;
    tables[1].record.dtype = 1;
    tables[1].record.num_row = 3;
    tables[1].record.num_col = 2;
    tables[1].record.counting = StepCounting::kPerRow;
    tables[1].areas = {rows, steps};
    tables[2].record.name = "l";
    tables[2].record.kind = 1;
    tables[2].record.dtype = 1;
    tables[2].record.num_row = 9;
    tables[2].record.num_col = 2;
    tables[2].record.counting = StepCounting::kPerRow;
    tables[2].record.initializer.kind = static_cast<int32_t>(InitializerKind::kNormal);
    tables[2].record.initializer.second = 1;
    tables[2].stored_rows = 3;
    tables[2].areas = {rows, steps, row_ids};
    const Status status = SaveMemory(made, "/saved", 3, 0, tables, "1.2.3");
    Require(status.ok(), "a checkpoint", status.text());
    // A save draws its id and notes the time, by which the files of the corpus would not fit.
    std::string* const manifest = made->Find(PathOf(0, 0));
    Manifest fixed = DecodeManifest(*manifest, "").value();
    fixed.id = fixed.files[0].id = 7;
    fixed.created = 0;
    *manifest = EncodeManifest(fixed);
    std::memcpy(made->Find(PathOf(0, 1))->data() + kPlaceOfId, &fixed.id, sizeof(fixed.id));
    CorrectChecksums(made, 0, 1);
    const Result<Manifest> base = ReadManifest(made, kFolders[0]);
    Require(base.ok(), "a manifest", base.status().text());
    const Result<Manifest> increment =
        testing::SaveIncrement(made, "/saved", CheckpointName{2, 4}, base.value(),
                               {{0, 0, 1, 2, weights, -1, 5},
                                {0, 1, 1, 2, weights, -1, 5},
                                {1, 0, 2, 1, rows},
                                {1, kStepsArea, 2, 1, steps},
                                {2, 0, 1, 4, rows, 2},
                                {2, kStepsArea, 1, 4, steps, 2},
                                {2, kRowIdsArea, 1, 4, row_ids, 2}});
    Require(increment.ok(), "an increment", increment.status().text());
    return made;
  }();
  return *files;
}

Status ReadAll(MemoryFiles* files, const char* folder) {
  auto reader = CheckpointReader::Open(files, folder);
  if (!reader.ok()) return reader.status();
  const WaitLimit limit = WaitLimit::Until(Instant::max());
  MV_RETURN_IF_NOT_OK(reader.value()->Verify(0, reader.value()->blocks(), limit));
  const auto& tables = reader.value()->manifest().tables;
  for (uint32_t i = 0; i < tables.size(); ++i) {
    for (uint32_t index = 0; index < tables[i].num_areas(); ++index) {
      const uint32_t area = tables[i].area(index);
      // A caller has a buffer of that size.
      int64_t bytes = 0;
      Require(CheckedMultiply(tables[i].num_row, tables[i].row_bytes(area), &bytes),
              "areas whose sizes are numbers", tables[i].name);
      const int64_t elements = bytes / tables[i].element_bytes(area);
      int64_t sum = 0;
      const auto take = [&](int64_t first, int64_t count, const char* data) {
        Require(first >= 0 && count >= 0 && first <= elements - count, "elements of the area",
                tables[i].name);
        sum += count + data[0];
        return Status::Ok();
      };
      MV_RETURN_IF_NOT_OK(reader.value()->Read(i, area, 0, tables[i].num_row, limit, take));
    }
  }
  return Status::Ok();
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](char options) {
    seeds.push_back(options + *Original().Find(PathOf(FolderOf(options), FileOf(options))));
  };
  for (const char options : {'\0', '\1', '\2', '\3'}) add(options);
  // These seeds end within the header of the data file.
  for (const size_t length : {13, 20, 63, 100}) {
    seeds.push_back('\1' + Original().Find(PathOf(0, 1))->substr(0, length));
  }
  for (const char options : {'\4', '\5', '\6', '\7', '\10', '\12'}) add(options);
  return seeds;
}

}  // namespace multiverso::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace multiverso;        // NOLINT
  using namespace multiverso::fuzz;  // NOLINT
  if (size == 0) return 0;
  MemoryFiles files = Original();
  const auto options = static_cast<char>(data[0]);
  const size_t file = FileOf(options);
  const size_t folder = FolderOf(options);
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  *files.Find(PathOf(folder, file)) = bytes;
  if ((data[0] & 2) != 0) CorrectChecksums(&files, folder, file);
  const bool is_original =
      *files.Find(PathOf(folder, file)) == *Original().Find(PathOf(folder, file));
  size_t total_bytes = bytes.size();
  for (size_t i = 0; i < 2 + folder; ++i) {
    if (i != file) total_bytes += Original().Find(PathOf(folder, i))->size();
  }
  largest_allocation = 0;
  const Status status = ReadAll(&files, kFolders[folder]);
  // The text of an error may be larger than the files of a small checkpoint.
  Require(largest_allocation <= total_bytes + 1024, "no allocation larger than the files",
          std::to_string(largest_allocation) + " bytes");
  if (is_original) Require(status.ok(), "the original to be valid", status.text());
  const bool refused = status.code() == Code::kCheckpointCorrupt;
  // With correct checksums the input may be another valid checkpoint, for example of another step.
  Require(refused || (status.ok() && (is_original || (data[0] & 2) != 0)), "CheckpointCorruptError",
          status.text());
  return 0;
}
