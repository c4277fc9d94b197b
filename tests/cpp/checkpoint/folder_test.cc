#include "checkpoint/folder.h"

#include <gtest/gtest.h>

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

TEST(CheckpointFolder, NumbersCheckpointsAndFindsTheLast) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(LocalFileSystem(), temporary / "of/them");
  EXPECT_EQ(folder.Resolve().value(), "");
  const SomeTables tables(1.0F, 10);
  for (const int64_t step : {100, 100, 20, -1}) {
    ASSERT_TRUE(IsOk(SaveTo(LocalFileSystem(), folder.path(), tables, step)));
  }
  std::vector<std::string> names;
  for (const CheckpointName& name : ValueOf(folder.List())) names.push_back(name.text());
  EXPECT_EQ(names, (std::vector<std::string>{"000001-step-100", "000002-step-100", "000003-step-20",
                                             "000004-step-21"}));
  EXPECT_EQ(folder.Resolve().value(), folder.path() + "/000004-step-21");
  const std::string second = folder.path() + "/000002-step-100";
  EXPECT_EQ(CheckpointFolder(LocalFileSystem(), second).Resolve().value(), second);
}

TEST(CheckpointFolder, KeepsTheRequestedNumberAndChangesNoOtherFile) {
  const TemporaryFolder folder;
  const SomeTables tables(1.0F, 10);
  WriteAll(folder / "notes.txt", "mine");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), tables, i, /*keep=*/2).ok());
  }
  const auto names = CheckpointFolder(LocalFileSystem(), folder.path()).List().value();
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].number, 4);
  EXPECT_EQ(names[1].step, 4);
  EXPECT_EQ(ReadAll(folder / "notes.txt"), "mine");
  EXPECT_TRUE(Leftovers(folder.path()).empty());
}

TEST(CheckpointFolder, RemovesLeftoversOfKilledSaves) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / ".saving-000009-step-9-00");
  WriteAll(folder / ".saving-000009-step-9-00/shard-00000.mv.part", "half");
  std::filesystem::create_directory(folder / ".removing-000001-step-1");
  ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), SomeTables(1.0F, 10)).ok());
  EXPECT_TRUE(Leftovers(folder.path()).empty());
}

TEST(CheckpointFolder, RejectsAFileInPlaceOfTheFolder) {
  const TemporaryFolder temporary;
  const CheckpointFolder folder(LocalFileSystem(), temporary / "model.pkl");
  WriteAll(folder.path(), std::string("\x80\x04\x95 and so on", 14));
  EXPECT_TRUE(IsError(folder.Resolve(), Code::kCheckpointCorrupt, "a pickle"));
  WriteAll(folder.path(), "");
  EXPECT_TRUE(IsError(folder.Resolve(), Code::kCheckpointCorrupt));
}

}  // namespace
}  // namespace multiverso::testing
