#include "checkpoint/reader.h"

#include <gtest/gtest.h>

#include <random>

#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

constexpr char kDataName[] = "shard-00000.mv";

class Reader : public ::testing::Test {
 protected:
  Reader() : tables_(1.0F) {
    EXPECT_TRUE(SaveTo(PosixFileSystem(), folder_.path(), tables_, 5).ok());
    path_ = folder_ / "000001-step-5";
  }

  TemporaryFolder folder_;
  SomeTables tables_;
  std::string path_;
};

TEST_F(Reader, GivesWhatWasSaved) {
  auto opened = CheckpointReader::Open(PosixFileSystem(), path_);
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  CheckpointReader* const reader = opened.value().get();
  EXPECT_EQ(reader->manifest().step, 5);
  EXPECT_EQ(reader->manifest().number, 1);
  const int64_t size = static_cast<int64_t>(tables_.array.size());
  EXPECT_EQ(ReadRows<float>(reader, 0, 0, 0, size), tables_.array);
  EXPECT_EQ(ReadRows<float>(reader, 0, 1, 0, size), tables_.slot);
  EXPECT_EQ(ReadRows<double>(reader, 1, 0, 0, 5), tables_.matrix);
  EXPECT_EQ(ReadRows<uint32_t>(reader, 1, kStepsArea, 1, 4), (std::vector<uint32_t>{2, 3, 4}));
  EXPECT_EQ(reader->StepsOf(0, 0, size), 17U);
}

TEST_F(Reader, GivesAnyRangeOfRows) {
  auto opened = CheckpointReader::Open(PosixFileSystem(), path_);
  ASSERT_TRUE(opened.ok());
  // Around the end of the first block, of 1 MiB.
  for (const int64_t first : {0, 1, 262'143, 262'144, 262'145}) {
    for (const int64_t end : {262'144, 262'146, 300'000}) {
      if (end <= first) continue;
      EXPECT_EQ(ReadRows<float>(opened.value().get(), 0, 0, first, end),
                std::vector<float>(tables_.array.begin() + first, tables_.array.begin() + end));
    }
  }
}

TEST_F(Reader, ComesBackAtTheEndOfASliceAndGoesOn) {
  auto opened = CheckpointReader::Open(PosixFileSystem(), path_);
  ASSERT_TRUE(opened.ok());
  BlockProgress progress;
  int64_t elements = 0;
  int slices = 0;
  Status status;
  do {
    ++slices;
    status = opened.value()->Read(0, 0, 0, 300'000, &progress,
                                  WaitLimit{Instant::max(), Instant::min()},
                                  [&](int64_t first, int64_t count, const char*) {
                                    EXPECT_EQ(first, elements);
                                    elements += count;
                                    return Status::Ok();
                                  });
  } while (status.pending());
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(elements, 300'000);
  EXPECT_GT(slices, 1);
}

TEST_F(Reader, DeadlineEndsIt) {
  auto opened = CheckpointReader::Open(PosixFileSystem(), path_);
  ASSERT_TRUE(opened.ok());
  BlockProgress progress;
  const Status status = opened.value()->Verify(opened.value()->blocks(), &progress,
                                               WaitLimit::Until(Instant::min()));
  EXPECT_EQ(status.code(), Code::kTimeout);
}

TEST_F(Reader, EveryTruncationIsSeen) {
  const std::string data = ReadAll(path_ + "/" + kDataName);
  ASSERT_TRUE(Verify(path_).ok());
  for (size_t size = 0; size < data.size(); size += size < 100 ? 1 : 4096 * 31 + 5) {
    WriteAll(path_ + "/" + kDataName, data.substr(0, size));
    const Status status = Verify(path_);
    EXPECT_EQ(status.code(), Code::kCheckpointCorrupt) << size << ": " << status.text();
    ASSERT_NE(status.file(), nullptr);
    EXPECT_EQ(status.file()->path, path_ + "/" + kDataName);
  }
}

TEST_F(Reader, EveryFlippedBitIsSeenWhereItIs) {
  const std::string data = ReadAll(path_ + "/" + kDataName);
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    // Half of them in the header and in the checksums.
    const size_t edge = random() % 5000;
    const size_t at = i % 4 == 0   ? edge
                      : i % 4 == 1 ? data.size() - 1 - random() % 40
                                   : random() % data.size();
    std::string flipped = data;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (random() % 8)));
    WriteAll(path_ + "/" + kDataName, flipped);
    const Status status = Verify(path_);
    ASSERT_EQ(status.code(), Code::kCheckpointCorrupt) << "byte " << at;
    if (at >= 4096 && at < data.size() - 40) {
      EXPECT_LE(status.file()->position, static_cast<int64_t>(at));
      EXPECT_GT(status.file()->position + kBlockBytes, static_cast<int64_t>(at));
    }
  }
}

TEST_F(Reader, WhatElseCanBeWrongWithTheFilesIsSeen) {
  const std::string data_path = path_ + "/" + kDataName;
  const std::string data = ReadAll(data_path);
  const auto verify = [&] {
    const Status status = Verify(path_);
    EXPECT_EQ(status.code(), Code::kCheckpointCorrupt) << status.text();
    return status.text();
  };
  WriteAll(data_path, data + "x");
  EXPECT_NE(verify().find("expected a file of"), std::string::npos);
  WriteAll(data_path, std::string("\x80\x04\x95", 3) + std::string(5000, 'x'));
  EXPECT_NE(verify().find("a pickle"), std::string::npos);
  std::filesystem::remove(data_path);
  EXPECT_NE(verify().find("the file is missing"), std::string::npos);
  // That of another checkpoint, equal in all but the id.
  ASSERT_TRUE(SaveTo(PosixFileSystem(), folder_.path(), tables_, 5).ok());
  WriteAll(data_path, ReadAll(folder_ / ("000002-step-5/" + std::string(kDataName))));
  EXPECT_NE(verify().find("of another"), std::string::npos);
  WriteAll(data_path, data);
  EXPECT_TRUE(Verify(path_).ok());
}

TEST_F(Reader, ManifestWithoutRowsIsRefused) {
  // Both are right in themselves, but the manifest promises a row more.
  Manifest manifest = DecodeManifest(ReadAll(path_ + "/manifest.mv"), "").value();
  manifest.tables[0].num_row += 1;
  WriteAll(path_ + "/manifest.mv", EncodeManifest(manifest));
  const Status status = Verify(path_);
  EXPECT_EQ(status.code(), Code::kCheckpointCorrupt);
  EXPECT_NE(status.text().find("row 300000 of table 'w'"), std::string::npos) << status.text();
}

TEST_F(Reader, RandomChangesNeverPassAndNeverCrash) {
  const std::string small = folder_ / "small";
  ASSERT_TRUE(SaveTo(PosixFileSystem(), small, SomeTables(2.0F, 40), 1).ok());
  const std::string path = small + "/000001-step-1";
  const std::string originals[] = {ReadAll(path + "/manifest.mv"),
                                   ReadAll(path + "/" + kDataName)};
  const std::string names[] = {path + "/manifest.mv", path + "/" + kDataName};
  std::mt19937_64 random(11);
  for (int i = 0; i < 1500; ++i) {
    const size_t which = random() % 2;
    std::string bytes = originals[which];
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.resize(at + 1);
          break;
        case 2:
          bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
          break;
        default:
          std::rotate(bytes.begin(), bytes.begin() + static_cast<int64_t>(at), bytes.end());
      }
    }
    if (bytes == originals[which]) continue;
    WriteAll(names[which], bytes);
    EXPECT_EQ(Verify(path).code(), Code::kCheckpointCorrupt);
    WriteAll(names[which], originals[which]);
  }
  EXPECT_TRUE(Verify(path).ok());
}

}  // namespace
}  // namespace multiverso::testing
