// MV_Table...: creation, description and operations, with one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

using TableApi = AloneTest;

TEST_F(TableApi, OptionsHaveTheDefaultsOfTheHeader) {
  MV_TableOptions options;
  ASSERT_EQ(MV_TableOptionsInit(&options), MV_OK);
  EXPECT_EQ(options.struct_size, static_cast<int64_t>(sizeof(options)));
  EXPECT_EQ(options.kind, MV_TABLE_ARRAY);
  EXPECT_EQ(options.dtype, MV_FLOAT32);
  EXPECT_EQ(options.num_row, 0);
  EXPECT_EQ(options.num_col, 1);
  EXPECT_EQ(options.updater, MV_UPDATER_ADD);
  EXPECT_EQ(options.hyper[MV_HYPER_LEARNING_RATE], 0.01);
  EXPECT_EQ(options.name, nullptr);
  EXPECT_EQ(MV_TableOptionsInit(nullptr), MV_ERR_VALUE);
}

TEST_F(TableApi, MemoryOfADeltaAndAViewOutlivesTheTable) {
  MV_Table table = CreateArray(session_, 3);
  void* buffer = &table;
  const void* values = &table;
  EXPECT_EQ(MV_TableDeltaBuffer(table, &buffer), MV_OK);
  EXPECT_EQ(MV_TableView(table, &values), MV_OK);
  EXPECT_EQ(buffer, nullptr) << "async mode copies every delta";
  EXPECT_EQ(values, nullptr);

  MV_SessionOptions sync = SessionOptionsOf();
  sync.mode = MV_MODE_SYNC;
  MV_Session session = nullptr;
  ASSERT_EQ(MV_SessionOpen(&sync, &session), MV_OK) << MV_LastError();
  table = CreateArray(session, 3);
  ASSERT_EQ(MV_TableDeltaBuffer(table, &buffer), MV_OK) << MV_LastError();
  auto* const delta = static_cast<float*>(buffer);
  EXPECT_EQ(delta[2], 0);
  delta[2] = 5;
  ASSERT_EQ(MV_TableAdd(table, delta, 3), MV_OK) << MV_LastError();
  ASSERT_EQ(MV_TableView(table, &values), MV_OK) << MV_LastError();
  MV_Memory memory = nullptr;
  ASSERT_EQ(MV_TableKeepMemory(table, &memory), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
  EXPECT_EQ(static_cast<const float*>(values)[2], 5);
  EXPECT_EQ(delta[2], 5);
  EXPECT_EQ(MV_MemoryRelease(memory), MV_OK);
  EXPECT_EQ(MV_MemoryRelease(memory), MV_ERR_HANDLE);
}

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

TEST_F(TableApi, DescribesItself) {
  const MV_Table array = CreateArray(session_, 7);
  MV_TableOptions options = ArrayOptions(4);
  options.kind = MV_TABLE_MATRIX;
  options.num_col = 3;
  options.dtype = MV_FLOAT64;
  options.updater = MV_UPDATER_SGD;
  const MV_Table matrix = CreateTable(session_, options);
  MV_TableDescription description{};
  EXPECT_EQ(MV_TableDescribe(array, &description), MV_ERR_VALUE);
  description.struct_size = sizeof(description);
  ASSERT_EQ(MV_TableDescribe(matrix, &description), MV_OK);
  EXPECT_EQ(description.kind, MV_TABLE_MATRIX);
  EXPECT_EQ(description.dtype, MV_FLOAT64);
  EXPECT_EQ(description.num_row, 4);
  EXPECT_EQ(description.num_col, 3);
  EXPECT_EQ(description.updater, MV_UPDATER_SGD);
  EXPECT_EQ(description.hyper[MV_HYPER_LEARNING_RATE], 0.01);
  EXPECT_EQ(description.id, 1);
  EXPECT_EQ(description.bytes, 96);
}

TEST_F(TableApi, RowsAreReturnedInTheOrderOfTheirIdsWithDuplicates) {
  const MV_Table table = CreateMatrix(session_, 4, 2);
  const int64_t ids[] = {3, 0, 3};
  const float delta[] = {1, 2, 10, 20, 100, 200};
  ASSERT_EQ(MV_TableAddRows(table, ids, 3, delta, 6), MV_OK);
  float out[6] = {};
  ASSERT_EQ(MV_TableGetRows(table, ids, 3, out, 6, 0), MV_OK);
  const float expected[] = {101, 202, 10, 20, 101, 202};
  EXPECT_TRUE(std::equal(out, out + 6, expected));
  float together[6] = {};
  ASSERT_EQ(MV_TableGetRows(table, ids, 3, together, 6, MV_COLLECTIVE), MV_OK);
  EXPECT_TRUE(std::equal(together, together + 6, expected));
}

TEST_F(TableApi, RunsEveryOperationByItsName) {
  const MV_Table table = CreateMatrix(session_, 2, 1);
  const int64_t id = 1;
  const float delta[] = {1, 2};
  float out[2] = {};
  const auto run = [&](const char* operation, int64_t num_ids, const float* in, float* values) {
    return MV_TableRun(table, operation, &id, num_ids, in, values, num_ids == 0 ? 2 : num_ids, 0);
  };
  ASSERT_EQ(run("add", 0, delta, nullptr), MV_OK);
  ASSERT_EQ(run("add_rows", 1, delta, nullptr), MV_OK);
  ASSERT_EQ(run("get_rows", 1, nullptr, out), MV_OK);
  EXPECT_EQ(out[0], 3);
  ASSERT_EQ(run("add_get", 0, delta, out), MV_OK);
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[1], 5);
  ASSERT_EQ(MV_TableRun(table, "get", nullptr, 0, nullptr, out, 2, MV_COLLECTIVE), MV_OK);
  EXPECT_EQ(out[1], 5);
  for (const char* unknown : {"", "store", "sync", "gets"}) {
    EXPECT_EQ(run(unknown, 0, delta, out), MV_ERR_VALUE);
    EXPECT_TRUE(LastErrorHas("expected one of get, add, add_get, get_rows, add_rows, get_keys, "));
  }
  EXPECT_EQ(run(nullptr, 0, delta, out), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableRun(table, "add", nullptr, 0, delta, nullptr, 2, MV_COLLECTIVE), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("flags: expected 0, received 1"));
  ASSERT_EQ(MV_TableRun(table, "get", nullptr, 0, nullptr, out, 2, MV_PEEK), MV_OK);
  EXPECT_EQ(MV_TableRun(table, "add", nullptr, 0, delta, nullptr, 2, MV_PEEK), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableGetRows(table, &id, 1, out, 1, -1), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableGet(table, out, 2, MV_PEEK | MV_COLLECTIVE), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("flags: expected 0, MV_COLLECTIVE or MV_PEEK, received 3"));
}

TEST_F(TableApi, EmptyListOfRowsIsANoOp) {
  const MV_Table table = CreateMatrix(session_, 4, 2);
  float untouched = 7;
  EXPECT_EQ(MV_TableAddRows(table, nullptr, 0, nullptr, 0), MV_OK);
  EXPECT_EQ(MV_TableGetRows(table, nullptr, 0, nullptr, 0, 0), MV_OK);
  EXPECT_EQ(MV_TableGetRows(table, nullptr, 0, &untouched, 0, MV_COLLECTIVE), MV_OK);
  EXPECT_EQ(untouched, 7);
}

TEST_F(TableApi, PartsAndElementsAreCheckedBeforeAnythingChanges) {
  const MV_Table table = CreateMatrix(session_, 4, 3);
  const float ones[] = {1, 1, 1, 1};
  float out[4] = {};
  ASSERT_EQ(MV_TableAddPart(table, 1, 2, 1, 2, ones), MV_OK);
  ASSERT_EQ(MV_TableFetchAdd(table, 2, 1, ones, out), MV_OK);
  EXPECT_EQ(out[0], 1);
  const float two = 2;
  const float nine = 9;
  ASSERT_EQ(MV_TableCompareSwap(table, 2, 1, &two, &nine, out), MV_OK);
  EXPECT_EQ(out[0], 2);
  ASSERT_EQ(MV_TableGetPart(table, 1, 2, 0, 2, out, MV_COLLECTIVE), MV_OK);
  EXPECT_EQ((std::vector<float>(out, out + 4)), (std::vector<float>{0, 1, 0, 9}));
  EXPECT_EQ(MV_TableGetPart(table, 4, 0, 3, 0, nullptr, 0), MV_OK);
  EXPECT_EQ(MV_TableGetPart(table, 3, 2, 0, 1, out, 0), MV_ERR_INDEX);
  EXPECT_TRUE(LastErrorHas("expected rows from 0 to 3, received 2 from 3 on"));
  EXPECT_EQ(MV_TableAddPart(table, 0, INT64_MAX, 0, INT64_MAX, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, 2, 2, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, -1, 2, ones), MV_ERR_INDEX);
  EXPECT_EQ(MV_TableAddPart(table, 0, 1, 0, 1, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableCompareSwap(table, 0, 0, nullptr, ones, out), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableCompareSwap(table, 0, 3, ones, ones, out), MV_ERR_INDEX);
  ASSERT_EQ(MV_TableGetPart(table, 1, 2, 0, 2, out, 0), MV_OK);
  EXPECT_EQ((std::vector<float>(out, out + 4)), (std::vector<float>{0, 1, 0, 9}));
}

TEST_F(TableApi, HyperParametersHaveDefaultsAndAreCheckedBeforeTheyAreSet) {
  MV_TableOptions options = ArrayOptions(1);
  ASSERT_EQ(MV_TableOptionsSetUpdater(&options, MV_UPDATER_MOMENTUM), MV_OK);
  EXPECT_EQ(MV_TableOptionsSetUpdater(&options, 99), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableOptionsSetUpdater(nullptr, MV_UPDATER_ADAM), MV_ERR_VALUE);
  EXPECT_EQ(options.updater, MV_UPDATER_MOMENTUM);
  EXPECT_EQ(options.hyper[MV_HYPER_BETA_2], 0);
  const MV_Table table = CreateTable(session_, options);
  EXPECT_EQ(MV_TableCheckHyper(table, MV_HYPER_MOMENTUM, 0.5), MV_OK);
  EXPECT_EQ(MV_TableCheckHyper(table, MV_HYPER_MOMENTUM, 1.5), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableCheckHyper(table, MV_HYPER_RHO, 0.5), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableSetHyper(table, MV_HYPER_LEARNING_RATE, -0.25), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_TableSetHyper(table, MV_HYPER_COUNT, 1), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableSetHyper(table, -1, 1), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableSetHyper(table, 0, std::numeric_limits<double>::infinity()), MV_ERR_VALUE);
  MV_TableDescription description{};
  description.struct_size = sizeof(description);
  ASSERT_EQ(MV_TableDescribe(table, &description), MV_OK);
  EXPECT_EQ(description.hyper[MV_HYPER_MOMENTUM], 0.9);
  EXPECT_EQ(description.hyper[MV_HYPER_LEARNING_RATE], -0.25);
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
