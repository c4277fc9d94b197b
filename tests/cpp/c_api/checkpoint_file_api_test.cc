// MV_Checkpoint...: checkpoints that are written and read without a session.
#include <gtest/gtest.h>

#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"
#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

class CheckpointFileApi : public ::testing::Test {
 protected:
  CheckpointFileApi() {
    options_.struct_size = sizeof(options_);
    EXPECT_EQ(MV_SaveOptionsInit(&options_), MV_OK);
    options_.directory = folder_.path().c_str();
    table_.struct_size = sizeof(table_);
    table_.num_row = 3;
    table_.num_col = 1;
    table_.name = "w";
  }

  int32_t Write(const std::vector<const void*>& areas) {
    return MV_CheckpointWrite(&options_, &table_, 1, areas.data());
  }
  MV_Checkpoint Open() {
    MV_Checkpoint checkpoint = nullptr;
    EXPECT_EQ(MV_CheckpointOpen(folder_.path().c_str(), &checkpoint), MV_OK) << MV_LastError();
    return checkpoint;
  }

  const float values_[3] = {1, 2, 3};
  TemporaryFolder folder_;
  MV_SaveOptions options_{};
  MV_CheckpointTable table_{};
};

TEST_F(CheckpointFileApi, RejectsAreasThatTheTableDoesNotHave) {
  ASSERT_EQ(Write({values_}), MV_OK) << MV_LastError();
  const MV_Checkpoint checkpoint = Open();
  float out[3] = {};
  constexpr int64_t kCut = int64_t{1} << 32;  // has no low bits
  constexpr int64_t kRowIds = 0x10001;
  for (const int64_t area : {int64_t{-1}, int64_t{1}, kRowIds, kCut, kCut + kRowIds, INT64_MAX}) {
    EXPECT_EQ(MV_CheckpointRead(checkpoint, 0, area, out, sizeof(out)), MV_ERR_INDEX) << area;
  }
  EXPECT_EQ(MV_CheckpointRead(checkpoint, 0, 0, out, sizeof(out)), MV_OK) << MV_LastError();
  EXPECT_EQ(out[2], 3);
  EXPECT_EQ(MV_CheckpointClose(checkpoint), MV_OK);
}

TEST_F(CheckpointFileApi, WritesNothingThatNoReaderOpens) {
  const auto rejects = [&](int32_t MV_CheckpointTable::* field, int32_t value) {
    const MV_CheckpointTable before = table_;
    table_.*field = value;
    const int32_t status = Write(std::vector<const void*>(70000, values_));
    table_ = before;
    return status;
  };
  EXPECT_EQ(rejects(&MV_CheckpointTable::slots, 65536), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("at most 65535 state slots"));
  EXPECT_EQ(rejects(&MV_CheckpointTable::row_slots, 65536), MV_ERR_VALUE);
  EXPECT_EQ(rejects(&MV_CheckpointTable::counting, 3), MV_ERR_VALUE);
  EXPECT_EQ(Write({nullptr}), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("areas[0]"));
  MV_Checkpoint checkpoint = nullptr;
  EXPECT_NE(MV_CheckpointOpen(folder_.path().c_str(), &checkpoint), MV_OK);
}

TEST_F(CheckpointFileApi, IsUsableInAForkedChild) {
  ASSERT_EQ(Write({values_}), MV_OK) << MV_LastError();
  const MV_Checkpoint checkpoint = Open();
  const auto read_and_close = [&] {
    float out[3] = {};
    if (MV_CheckpointRead(checkpoint, 0, 0, out, sizeof(out)) != MV_OK) return 1;
    return MV_CheckpointClose(checkpoint) == MV_OK ? 0 : 2;
  };
  EXPECT_EQ(Child(read_and_close).Wait(), 0);
  EXPECT_EQ(read_and_close(), 0);
}

}  // namespace
}  // namespace multiverso::testing
