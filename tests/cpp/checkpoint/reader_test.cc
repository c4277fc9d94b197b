#include "checkpoint/reader.h"

#include <gtest/gtest.h>

#include <random>

#include "support/checkpoints.h"
#include "support/limits.h"

namespace multiverso::testing {
namespace {

constexpr char kDataName[] = "shard-00000.mv";

class Reader : public ::testing::Test {
 protected:
  Reader() : tables_(1.0F) {
    EXPECT_TRUE(SaveTo(LocalFileSystem(), folder_.path(), tables_, 5).ok());
    reader_ = ValueOf(CheckpointReader::Open(LocalFileSystem(), path_));
  }

  TemporaryFolder folder_;
  SomeTables tables_;
  std::string path_ = folder_ / "000001-step-5";
  std::string data_path_ = path_ + "/" + kDataName;
  std::unique_ptr<CheckpointReader> reader_;
};

// A table of 500 000 rows, of which it stores every other one; row r contains r and -r.
struct LazyTable {
  LazyTable() {
    for (int64_t row = 1; row < 500'000; row += 2) ids.push_back(row);
    for (const int64_t row : ids) values.insert(values.end(), {double(row), -double(row)});
  }
  Status Save(const std::string& folder) const {
    MemoryTable table;
    table.record.name = "lazy";
    table.record.kind = 1;
    table.record.dtype = 1;
    table.record.num_row = 500'000;
    table.record.num_col = 2;
    table.record.initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
    table.stored_rows = static_cast<int64_t>(ids.size());
    table.areas = {values.data(), ids.data()};
    return SaveMemory(LocalFileSystem(), folder, 7, 0, {table}, "1.2.3");
  }

  std::vector<int64_t> ids;
  std::vector<double> values;
};

TEST(LazyReader, RejectsRowNumbersThatAreNotAscendingOrNotOfTheTable) {
  for (const auto& [place, row] : std::vector<std::pair<size_t, int64_t>>{
           {0, -1}, {0, 3}, {131'072, 262'143}, {200'000, 0}, {249'999, 500'000}}) {
    const TemporaryFolder folder;
    LazyTable table;
    table.ids[place] = row;
    ASSERT_TRUE(table.Save(folder.path()).ok());
    const std::string path = folder / "000001-step-7";
    EXPECT_TRUE(IsError(Verify(path), Code::kCheckpointCorrupt, "expected a row from")) << row;
    const auto reader = ValueOf(CheckpointReader::Open(LocalFileSystem(), path));
    const auto take = [](int64_t, int64_t, const char*) { return Status::Ok(); };
    EXPECT_TRUE(IsError(reader->Read(0, 0, 0, 500'000, kNoLimit, take), Code::kCheckpointCorrupt));
  }
}

TEST_F(Reader, ReadsBlockByBlockAndCanBeInterruptedBetweenBlocks) {
  int64_t elements = 0;
  int blocks = 0;
  const auto take = [&](int64_t first, int64_t count, const char*) {
    EXPECT_EQ(first, elements);
    elements += count;
    ++blocks;
    return Status::Ok();
  };
  EXPECT_TRUE(reader_->Read(0, 0, 0, 300'000, kNoLimit, take).ok());
  EXPECT_EQ(elements, 300'000);
  EXPECT_GT(blocks, 1);
  elements = blocks = 0;
  auto interrupt = InterruptAtOnce();
  interrupt.NoteWait(Clock::now() - Interrupt::kMinInterval);
  const WaitLimit limit = WaitLimit::Until(Instant::max(), &interrupt);
  EXPECT_EQ(reader_->Read(0, 0, 0, 300'000, limit, take).code(), Code::kAborted);
  EXPECT_EQ(blocks, 1);
}

TEST_F(Reader, VerifyEndsAtItsDeadline) {
  EXPECT_TRUE(IsError(reader_->Verify(0, reader_->blocks(), WaitLimit::Until(Instant::min())),
                      Code::kTimeout));
}

TEST_F(Reader, DetectsEveryTruncation) {
  const std::string data = ReadAll(data_path_);
  ASSERT_TRUE(Verify(path_).ok());
  for (size_t size = 0; size < data.size(); size += size < 100 ? 1 : 4096 * 31 + 5) {
    WriteAll(data_path_, data.substr(0, size));
    const Status status = Verify(path_);
    EXPECT_EQ(status.code(), Code::kCheckpointCorrupt) << size << ": " << status.text();
    ASSERT_NE(status.file(), nullptr);
    EXPECT_EQ(status.file()->path, data_path_);
  }
}

TEST_F(Reader, LocatesEveryFlippedBit) {
  const std::string data = ReadAll(data_path_);
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    // Half of the positions are near the ends of the file, where the header and the checksums are.
    const size_t edge = random() % 5000;
    const size_t at = i % 4 == 0   ? edge
                      : i % 4 == 1 ? data.size() - 1 - random() % 40
                                   : random() % data.size();
    std::string flipped = data;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (random() % 8)));
    WriteAll(data_path_, flipped);
    const Status status = Verify(path_);
    ASSERT_EQ(status.code(), Code::kCheckpointCorrupt) << "byte " << at;
    if (at >= 4096 && at < data.size() - 40) {
      EXPECT_LE(status.file()->position, static_cast<int64_t>(at));
      EXPECT_GT(status.file()->position + kBlockBytes, static_cast<int64_t>(at));
    }
  }
}

TEST_F(Reader, RejectsAManifestWithMoreRowsThanTheData) {
  Manifest manifest = DecodeManifest(ReadAll(path_ + "/manifest.mv"), "").value();
  manifest.tables[0].num_row += 1;
  WriteAll(path_ + "/manifest.mv", EncodeManifest(manifest));
  EXPECT_TRUE(IsError(Verify(path_), Code::kCheckpointCorrupt, "row 300000 of table 'w'"));
}

}  // namespace
}  // namespace multiverso::testing
