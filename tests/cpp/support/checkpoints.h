// Checkpoint folders for tests, and tables to save.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/memory_save.h"
#include "checkpoint/reader.h"
#include "support/status.h"

namespace multiverso::testing {

// A folder that is removed with its contents at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "multiverso-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Returns the names in a folder that do not belong to a complete checkpoint.
inline std::vector<std::string> Leftovers(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name[0] == '.') names.push_back(name);
  }
  return names;
}

// An array and a matrix whose values depend on `seed`.
struct SomeTables {
  explicit SomeTables(float seed, int64_t size = 300'000)
      : array(static_cast<size_t>(size)), slot(array.size()), matrix(35), steps{1, 2, 3, 4, 5} {
    for (size_t i = 0; i < array.size(); ++i) {
      array[i] = seed + static_cast<float>(i % 1000);
      slot[i] = -array[i];
    }
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = seed * 2 + static_cast<double>(i);
  }

  std::vector<MemoryTable> tables() const {
    MemoryTable w;
    w.record.name = "w";
    w.record.slots = 1;
    w.record.num_row = static_cast<int64_t>(array.size());
    w.record.num_col = 1;
    w.record.counting = StepCounting::kPerSection;
    w.steps = 17;
    w.areas = {array.data(), slot.data()};
    MemoryTable m;
    m.record.name = "m";
    m.record.kind = 1;
    m.record.dtype = 1;
    m.record.num_row = 5;
    m.record.num_col = 7;
    m.record.counting = StepCounting::kPerRow;
    m.record.hyper[0] = 0.25;
    m.areas = {matrix.data(), steps};
    return {w, m};
  }

  std::vector<float> array;
  std::vector<float> slot;
  std::vector<double> matrix;
  uint32_t steps[5];
};

inline Status SaveTo(FileSystem* files, const std::string& folder, const SomeTables& tables,
                     int64_t step = -1, int64_t keep = 0) {
  return SaveMemory(files, folder, step, keep, tables.tables(), "1.2.3");
}

inline const WaitLimit kNoLimit = WaitLimit::Until(Instant::max());

// Reads a whole checkpoint.
inline Status Verify(const std::string& path, FileSystem* files = LocalFileSystem()) {
  auto reader = CheckpointReader::Open(files, path);
  if (!reader.ok()) return reader.status();
  return reader.value()->Verify(0, reader.value()->blocks(), kNoLimit);
}

// Returns rows `first` to `end` - 1 of an area of a table.
template <class T>
std::vector<T> ReadRows(CheckpointReader* reader, uint32_t table, uint32_t area, int64_t first,
                        int64_t end) {
  const SavedTable& saved = reader->manifest().tables[table];
  const int64_t row_elements = saved.row_bytes(area) / static_cast<int64_t>(sizeof(T));
  std::vector<T> out(static_cast<size_t>((end - first) * row_elements));
  const auto take = [&](int64_t offset, int64_t count, const char* data) {
    const auto* const values = reinterpret_cast<const T*>(data);
    std::copy(values, values + count, out.begin() + (offset - first * row_elements));
    return Status::Ok();
  };
  EXPECT_TRUE(IsOk(reader->Read(table, area, first, end, kNoLimit, take)));
  return out;
}

}  // namespace multiverso::testing
