// Checkpoints with increments, as CheckpointReader and CheckpointFolder see them.
#include "support/increments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

class Increments : public ::testing::Test {
 protected:
  Increments() {
    EXPECT_TRUE(SaveTo(LocalFileSystem(), folder_.path(), tables_, 0).ok());
    last_ = ValueOf(ReadManifest(LocalFileSystem(), PathOf(1)));
  }

  // Returns the path of checkpoint `number`, whose step is the number minus 1.
  std::string PathOf(int64_t number) const {
    return folder_ / CheckpointName{number, number - 1}.text();
  }
  void Add(const std::vector<IncrementPart>& parts) {
    const CheckpointName name{last_.number + 1, last_.number};
    last_ = ValueOf(SaveIncrement(LocalFileSystem(), folder_.path(), name, last_, parts));
  }
  // Adds an increment with rows `first` to `end` - 1 of the array, all of which become `value`.
  void AddRows(int64_t first, int64_t end, float value) {
    const std::vector<float> values(static_cast<size_t>(end - first), value);
    Add({{0, 0, first, end - first, values.data(), -1, 18},
         {0, 1, first, end - first, values.data(), -1, 18}});
    std::fill(tables_.array.begin() + first, tables_.array.begin() + end, value);
  }
  std::unique_ptr<CheckpointReader> Open() {
    return ValueOf(CheckpointReader::Open(LocalFileSystem(), PathOf(last_.number)));
  }

  TemporaryFolder folder_;
  SomeTables tables_{1.0F};
  Manifest last_;
};

TEST_F(Increments, CountTheUpdatesOfTheirSections) {
  AddRows(100, 200, 5.0F);
  const auto reader = Open();
  EXPECT_EQ(reader->StepsOf(0, 0, 100), 17U);
  EXPECT_EQ(reader->StepsOf(0, 150, 160), 18U);
  EXPECT_EQ(reader->StepsOf(0, 0, 300'000), 18U);
  EXPECT_EQ(reader->manifest().step, 1);
}

TEST_F(Increments, MayBeEmpty) {
  Add({});
  Add({});
  const auto reader = Open();
  EXPECT_TRUE(IsOk(reader->Verify(0, reader->blocks(), kNoLimit)));
  EXPECT_EQ(ReadRows<float>(reader.get(), 0, 0, 0, 300'000), tables_.array);
}

TEST_F(Increments, AreReadWithFewOpenFiles) {
  constexpr int64_t kMany = 100;  // more files than the reader keeps open
  for (int64_t i = 0; i < kMany; ++i) AddRows(i, i + 2, static_cast<float>(i));
  const auto reader = Open();
  EXPECT_EQ(reader->manifest().files.size(), kMany + 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ReadRows<float>(reader.get(), 0, 0, 0, 300'000), tables_.array);
  }
  EXPECT_TRUE(IsOk(reader->Verify(0, reader->blocks(), kNoLimit)));
}

TEST_F(Increments, AreCorruptIfOneOfTheirFilesIsDamagedOrMissing) {
  AddRows(100, 200, 5.0F);
  AddRows(150, 400, 6.0F);
  ASSERT_TRUE(Verify(PathOf(3)).ok());
  for (const char* name :
       {"manifest.mv", "shard-00000.mv", "shard-00000-of-000001.mv", "shard-00000-of-000002.mv"}) {
    const std::string path = PathOf(3) + "/" + name;
    const std::string bytes = ReadAll(path);
    for (const size_t at : {bytes.size() / 3, bytes.size() - 3}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      WriteAll(path, damaged);
      const Status status = Verify(PathOf(3));
      EXPECT_EQ(status.code(), Code::kCheckpointCorrupt) << path << status.text();
      ASSERT_NE(status.file(), nullptr);
      EXPECT_EQ(status.file()->path, path);
    }
    std::filesystem::remove(path);
    const Status status = Verify(PathOf(3));
    const bool is_manifest = std::string(name) == "manifest.mv";
    EXPECT_EQ(status.code(), is_manifest ? Code::kCheckpointIo : Code::kCheckpointCorrupt);
    ASSERT_NE(status.file(), nullptr);
    EXPECT_EQ(status.file()->path, path);
    WriteAll(path, bytes);
  }
  EXPECT_TRUE(Verify(PathOf(3)).ok());
}

TEST_F(Increments, RejectSectionsThatOverlap) {
  const std::vector<float> values(1000);
  Add({{0, 0, 100, 300, values.data()}, {0, 0, 399, 10, values.data()}});
  EXPECT_TRUE(IsError(Verify(PathOf(2)), Code::kCheckpointCorrupt, "is in no file or in two"));
}

TEST_F(Increments, AreFoundUnderRelativeAndOtherNames) {
  AddRows(100, 200, 5.0F);
  EXPECT_TRUE(IsOk(Verify(PathOf(2) + "/")));
  EXPECT_TRUE(IsOk(Verify(PathOf(2) + "/.")));
  std::filesystem::create_symlink(PathOf(2), folder_ / "best");
  EXPECT_TRUE(IsOk(Verify(folder_ / "best")));
}

TEST_F(Increments, OfVersion3AreRefusedWithTheNameOfACompleteOne) {
  AddRows(1, 2, 1.0F);
  for (const int64_t number : {2, 3}) {
    const std::string path = PathOf(number);
    if (number == 3) std::filesystem::copy(PathOf(2), path);
    std::string manifest = ReadAll(path + "/manifest.mv");
    manifest[8] = 3;
    std::filesystem::remove(path + "/manifest.mv");
    WriteAll(path + "/manifest.mv", manifest);
    EXPECT_TRUE(IsError(Verify(path), Code::kCheckpointCorrupt,
                        "load " + PathOf(1) + ", the newest complete checkpoint"));
  }
  std::filesystem::remove_all(PathOf(1));
  EXPECT_TRUE(IsError(Verify(PathOf(3)), Code::kCheckpointCorrupt, "no complete checkpoint"));
}

// A table of 1000 rows, of which the base stores every third.
class LazyIncrements : public ::testing::Test {
 protected:
  LazyIncrements() {
    table_.record.name = "lazy";
    table_.record.kind = 1;
    table_.record.num_row = 1000;
    table_.record.num_col = 1;
    table_.record.initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
    for (int64_t row = 0; row < 1000; row += 3) ids_.push_back(row);
    values_.assign(ids_.size(), 1.0F);
    table_.stored_rows = static_cast<int64_t>(ids_.size());
    table_.areas = {values_.data(), ids_.data()};
    EXPECT_TRUE(SaveMemory(LocalFileSystem(), folder_.path(), 0, 0, {table_}, "1.2.3").ok());
    base_ = ValueOf(ReadManifest(LocalFileSystem(), folder_ / "000001-step-0"));
  }

  Status Save(const std::vector<IncrementPart>& parts) {
    const CheckpointName name{2, 1};
    return SaveIncrement(LocalFileSystem(), folder_.path(), name, base_, parts).status();
  }

  TemporaryFolder folder_;
  MemoryTable table_;
  std::vector<int64_t> ids_;
  std::vector<float> values_;
  Manifest base_;
  std::string path_ = folder_ / "000002-step-1";
};

TEST_F(LazyIncrements, ReplaceTheRowsThatAreStored) {
  const std::vector<int64_t> ids = {500, 501, 599};
  const std::vector<float> values = {2, 3, 4};
  StoredRows in_runs;
  in_runs.Append(800, 3);  // of which row 801 was stored before
  const std::vector<uint64_t> runs = in_runs.Encode(750);
  ASSERT_TRUE(IsOk(Save({{0, 0, 500, 100, values.data(), 3},
                         {0, 0, 750, 200, values.data(), 3},
                         {0, kRunsArea, 750, 200, runs.data(), 1},
                         {0, kRowIdsArea, 500, 100, ids.data(), 3},
                         {0, 0, 700, 50, nullptr, 0},
                         {0, kRowIdsArea, 700, 50, nullptr, 0}})));
  ASSERT_TRUE(IsOk(Verify(path_)));
  const auto reader = ValueOf(CheckpointReader::Open(LocalFileSystem(), path_));
  std::vector<float> expected(1000);
  int64_t stored = 3 + 2;
  for (int64_t row = 0; row < 1000; row += 3) {
    const bool is_replaced = (row >= 500 && row < 600) || (row >= 700 && row < 750);
    if (!is_replaced) expected[static_cast<size_t>(row)] = 1;
    stored += is_replaced ? 0 : 1;
  }
  for (size_t i = 0; i < ids.size(); ++i) expected[static_cast<size_t>(ids[i])] = values[i];
  std::copy(values.begin(), values.end(), expected.begin() + 800);
  EXPECT_EQ(ReadRows<float>(reader.get(), 0, 0, 0, 1000), expected);
  EXPECT_EQ(ValueOf(reader->StoredRowsOf(0)), stored);
}

TEST_F(LazyIncrements, RejectRunsBesideTheirRange) {
  for (const uint64_t run : {uint64_t{399} << 16 | 1, uint64_t{1} << 60}) {
    const float values[2] = {2, 3};
    ASSERT_TRUE(IsOk(Save({{0, 0, 300, 400, values, 2}, {0, kRunsArea, 300, 400, &run, 1}})));
    EXPECT_TRUE(IsError(Verify(path_), Code::kCheckpointCorrupt, "expected rows from 300 to 699"));
    std::filesystem::remove_all(path_);
  }
}

TEST_F(LazyIncrements, RejectSectionsWithoutTheNumbersOfTheirRows) {
  const float value = 2;
  ASSERT_TRUE(IsOk(Save({{0, 0, 500, 100, &value, 1}})));
  EXPECT_TRUE(IsError(Verify(path_), Code::kCheckpointCorrupt, "the area with their numbers"));
}

}  // namespace
}  // namespace multiverso::testing
