#include "checkpoint/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

TEST(CheckpointName, RoundTripsAndRejectsOtherTexts) {
  for (const CheckpointName name : {CheckpointName{1, 0}, CheckpointName{1234567, 99}}) {
    CheckpointName read;
    ASSERT_TRUE(CheckpointName::Parse(name.text(), &read)) << name.text();
    EXPECT_EQ(read.number, name.number);
    EXPECT_EQ(read.step, name.step);
  }
  for (const char* text : {"", "-step-", "000001-step-", "-step-1", "1-step-1", "000001-step--1",
                           "000001-step-01", "000001-step-1x", ".saving-000001-step-1",
                           "000001-step-99999999999999999999", "+00001-step-1"}) {
    CheckpointName read;
    EXPECT_FALSE(CheckpointName::Parse(text, &read)) << text;
  }
}

TEST(CheckpointFolder, RemovesNothingThatNoSaveHasMade) {
  const TemporaryFolder outside;
  std::filesystem::create_directory(outside / "kept");
  WriteAll(outside / "kept/manifest.mv", "theirs");
  WriteAll(outside / "shard-00000.mv", "theirs");
  const TemporaryFolder folder;
  const SomeTables tables(1.0F, 10);
  ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), tables, 1).ok());
  // Links in the place of a leftover, of an old checkpoint, and of the files of both.
  const std::string leftover = folder / ".saving-000007-step-7-00c0ffee00c0ffee";
  std::filesystem::create_directory(leftover);
  std::filesystem::create_directory(folder / "000002-step-2");
  for (const std::string& link :
       {folder / ".removing-000005-step-5", folder / ".saving-000006-step-6-0123456789abcdef",
        folder / "000000-step-0", leftover + "/manifest.mv",
        folder / "000002-step-2/manifest.mv"}) {
    std::filesystem::create_directory_symlink(outside / "kept", link);
  }
  std::filesystem::create_symlink(outside / "shard-00000.mv", leftover + "/shard-00000.mv.part");
  std::filesystem::create_directory_symlink(outside / "nowhere",
                                            folder / ".removing-000008-step-8");
  // What only looks like a leftover, or is not only the work of a save.
  std::filesystem::create_directory_symlink(outside / "kept", folder / ".removing-x");
  std::filesystem::create_directory(folder / ".saving-000007-step-7-c0ffee");
  WriteAll(folder / ".saving-note", "theirs");
  WriteAll(folder / ".removing-000003-step-3", "theirs");
  std::filesystem::create_directories(folder / ".removing-000004-step-4/.ipynb_checkpoints/x");
  std::filesystem::create_directory(folder / ".removing-000004-step-4/shard-00001.mv");
  WriteAll(folder / ".removing-000004-step-4/shard-00000.mv", "ours");
  WriteAll(folder / ".removing-000004-step-4/shard-0.mv", "theirs");
  const std::string fifo = folder / ".removing-000009-step-9";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);

  ::testing::internal::CaptureStderr();
  for (int64_t step = 10; step < 13; ++step) {
    ASSERT_TRUE(IsOk(SaveTo(LocalFileSystem(), folder.path(), tables, step, /*keep=*/1)));
  }
  const std::string warnings = ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(ReadAll(outside / "kept/manifest.mv"), "theirs");
  EXPECT_EQ(ReadAll(outside / "shard-00000.mv"), "theirs");
  std::vector<std::string> left = Leftovers(folder.path());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{".removing-000003-step-3", ".removing-000004-step-4",
                                            ".removing-000009-step-9", ".removing-x",
                                            ".saving-000007-step-7-c0ffee", ".saving-note"}));
  for (const std::string& name : left) EXPECT_TRUE(Contains(warnings, "/" + name)) << warnings;
  std::vector<std::string> foreign;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / ".removing-000004-step-4")) {
    foreign.push_back(entry.path().filename().string());
  }
  std::sort(foreign.begin(), foreign.end());
  EXPECT_EQ(foreign,
            (std::vector<std::string>{".ipynb_checkpoints", "shard-0.mv", "shard-00001.mv"}));
  const auto names = ValueOf(CheckpointFolder(LocalFileSystem(), folder.path()).List());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].step, 12);
}

TEST(CheckpointFolder, RetiresOthersWhenOneCannotBeRenamed) {
  const TemporaryFolder folder;
  const SomeTables tables(1.0F, 10);
  for (int64_t step = 1; step < 4; ++step) {
    ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), tables, step).ok());
  }
  // A folder with something in it, which a rename cannot replace.
  std::filesystem::create_directories(folder / ".removing-000002-step-2/theirs");
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(IsOk(SaveTo(LocalFileSystem(), folder.path(), tables, 4, /*keep=*/1)));
  EXPECT_TRUE(Contains(::testing::internal::GetCapturedStderr(), "an old checkpoint stays"));
  const auto names = ValueOf(CheckpointFolder(LocalFileSystem(), folder.path()).List());
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].step, 2);
  EXPECT_EQ(names[1].step, 4);
}

TEST(CheckpointFolder, RefusesToCountBeyondTheLargestNumber) {
  const SomeTables tables(1.0F, 10);
  for (const char* name : {"9223372036854775807-step-1", "000001-step-9223372036854775807"}) {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / name);
    const Status status = SaveTo(LocalFileSystem(), folder.path(), tables);
    EXPECT_TRUE(IsError(status, Code::kCheckpointIo, name));
  }
}

TEST(CheckpointFolder, RejectsACheckpointWithTheNameOfAnother) {
  const TemporaryFolder folder;
  const SomeTables tables(1.0F, 10);
  for (int64_t step = 1; step < 3; ++step) {
    ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), tables, step).ok());
  }
  const std::string first = folder / "000001-step-1";
  const std::string second = folder / "000002-step-2";
  std::filesystem::rename(first, folder / "best");
  std::filesystem::rename(second, first);
  std::filesystem::rename(folder / "best", second);
  for (const std::string& path : {first, second, second + "//"}) {
    EXPECT_TRUE(IsError(Verify(path), Code::kCheckpointCorrupt, "manifest.mv, byte 32",
                        "000002-step-2", "000001-step-1"));
  }
  std::filesystem::rename(second, folder / "best");
  EXPECT_TRUE(IsOk(Verify(folder / "best")));
}

}  // namespace
}  // namespace multiverso::testing
