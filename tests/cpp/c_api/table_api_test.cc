// MV_Table...: arguments that Python does not pass, with one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

using TableApi = AloneTest;

TEST_F(TableApi, CreationRejectsInvalidOptionsAndDoesNotWriteTheHandle) {
  const auto expect_rejected = [this](auto change, int32_t expected) {
    MV_TableOptions options = ArrayOptions(5);
    change(&options);
    MV_Table table = nullptr;
    EXPECT_EQ(MV_TableCreate(session_, &options, &table), expected) << MV_LastError();
    EXPECT_EQ(table, nullptr);
  };
  expect_rejected([](auto* options) { options->struct_size -= 8; }, MV_ERR_VALUE);
  expect_rejected([](auto* options) { options->kind = 7; }, MV_ERR_VALUE);
  expect_rejected([](auto* options) { options->dtype = 7; }, MV_ERR_TYPE);
  expect_rejected([](auto* options) { options->num_row = 0; }, MV_ERR_VALUE);
  expect_rejected([](auto* options) { options->num_row = INT64_MAX; }, MV_ERR_VALUE);
  expect_rejected([](auto* options) { options->num_row = int64_t{1} << 60; }, MV_ERR_MEMORY);
  expect_rejected([](auto* options) { options->num_col = 2; }, MV_ERR_VALUE);
  expect_rejected([](auto* options) { options->updater = 99; }, MV_ERR_VALUE);
  const auto of_updater = [](auto* options, int32_t updater, int32_t hyper, double value) {
    ASSERT_EQ(MV_TableOptionsSetUpdater(options, updater), MV_OK);
    options->hyper[hyper] = value;
  };
  expect_rejected(
      [&](auto* options) {
        of_updater(options, MV_UPDATER_SGD, MV_HYPER_LEARNING_RATE, std::nan(""));
      },
      MV_ERR_VALUE);
  expect_rejected(
      [&](auto* options) {
        of_updater(options, MV_UPDATER_ADAM, MV_HYPER_BETA_1, 0.5);
        options->dtype = MV_INT32;
      },
      MV_ERR_TYPE);
}

TEST_F(TableApi, UnknownOperationsAndFlagsAreRejected) {
  const MV_Table table = CreateMatrix(session_, 2, 1);
  const float delta[] = {1, 2};
  float out[2] = {};
  const auto run = [&](const char* operation, int32_t flags) {
    return MV_TableRun(table, operation, nullptr, 0, delta, out, 2, flags);
  };
  for (const char* unknown : {"", "store", "sync", "gets"}) {
    EXPECT_EQ(run(unknown, 0), MV_ERR_VALUE);
    EXPECT_TRUE(LastErrorHas("expected one of get, add, add_get, get_rows, add_rows, get_keys, "));
  }
  EXPECT_EQ(run(nullptr, 0), MV_ERR_VALUE);
  for (const int32_t flags : {MV_COLLECTIVE, MV_PEEK}) {
    EXPECT_EQ(run("add", flags), MV_ERR_VALUE);
    EXPECT_TRUE(LastErrorHas("flags: expected 0, received"));
    EXPECT_EQ(run("get", flags), MV_OK) << MV_LastError();
  }
  EXPECT_EQ(run("get", MV_PEEK | MV_COLLECTIVE), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("flags: expected 0, MV_COLLECTIVE or MV_PEEK, received 3"));
  const int64_t id = 1;
  EXPECT_EQ(MV_TableGetRows(table, &id, 1, out, 1, -1), MV_ERR_VALUE);
}

TEST_F(TableApi, PartsThatLeaveTheTableChangeNothing) {
  const MV_Table table = CreateMatrix(session_, 4, 3);
  const float ones[] = {1, 1};
  float out[12] = {};
  EXPECT_EQ(MV_TableGetPart(table, 3, 2, 0, 1, out, 0), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, INT64_MAX, 0, INT64_MAX, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, 2, 2, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, -1, 2, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, 0, 1, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableCompareSwap(table, 0, 0, nullptr, ones, out), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableCompareSwap(table, 0, 3, ones, ones, out), MV_ERR_INDEX);
  ASSERT_EQ(MV_TableGet(table, out, 12, 0), MV_OK);
  EXPECT_EQ(std::count(out, out + 12, 0.0F), 12);
}

TEST_F(TableApi, UnknownUpdatersAndHyperParametersAreRejected) {
  MV_TableOptions options = ArrayOptions(1);
  EXPECT_EQ(MV_TableOptionsSetUpdater(&options, 99), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableOptionsSetUpdater(nullptr, MV_UPDATER_ADAM), MV_ERR_VALUE);
  ASSERT_EQ(MV_TableOptionsSetUpdater(&options, MV_UPDATER_MOMENTUM), MV_OK);
  const MV_Table table = CreateTable(session_, options);
  for (const int32_t hyper : {-1, MV_HYPER_RHO, MV_HYPER_COUNT}) {
    EXPECT_EQ(MV_TableCheckHyper(table, hyper, 0.5), MV_ERR_VALUE) << hyper;
    EXPECT_EQ(MV_TableSetHyper(table, hyper, 0.5), MV_ERR_VALUE) << hyper;
  }
}

TEST_F(TableApi, HandlesAreStaleOnceFreed) {
  const MV_Table freed = CreateArray(session_, 3);
  const MV_Table kept = CreateArray(session_, 3);
  ASSERT_EQ(MV_TableFree(freed), MV_OK);
  float data[3] = {};
  EXPECT_EQ(MV_TableGet(kept, data, 3, 0), MV_OK);
  // A finalizer may free a table between a failing call and MV_LastError.
  EXPECT_EQ(MV_TableGet(kept, data, 4, 0), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableFree(freed), MV_ERR_HANDLE);
  EXPECT_TRUE(LastErrorHas("received 4"));
}

}  // namespace
}  // namespace multiverso::testing
