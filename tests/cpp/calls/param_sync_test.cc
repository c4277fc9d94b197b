#include "calls/param_sync.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

Status Sync(ParamSync* sync, Table* table, const std::vector<void*>& data) {
  MV_RETURN_IF_NOT_OK(sync->Begin(*table, data.data(), static_cast<int64_t>(data.size())));
  return sync->Run(table, Patiently());
}

// The workers make the adds of a round with different calls, and all receive the same values.
TEST(ParamSync, TakesPartInRoundsWithOtherAdds) {
  constexpr int64_t kTall = 20'000;
  constexpr int64_t kColumns = 3;
  const int64_t rows[] = {5, kTall - 1};
  const auto run = [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, MatrixOf(kTall, kColumns)));
    const int64_t counts[] = {7, kTall * kColumns - 7};
    std::vector<float> values(kTall * kColumns);
    auto sync = ValueOf(ParamSync::Make(*table, counts, 2, values.data()));
    ASSERT_TRUE(IsOk(sync->SetScale(*table, 0.5)));
    const std::vector<float> ones(values.size(), 1);
    for (int round = 1; round <= 5; ++round) {
      if (rank == 0) {
        for (float& value : values) value += 2;
        ASSERT_TRUE(IsOk(Sync(sync.get(), table, {values.data(), values.data() + 7})));
      } else if (rank == 1) {
        ASSERT_TRUE(IsOk(Call(table, Request::AddGet(ones.data(), values.data()))));
      } else if (round % 2 == 1) {
        const std::vector<float> fours(2 * kColumns, 4);
        ASSERT_TRUE(IsOk(Call(table, Request::AddRows(rows, 2, fours.data()))));
        values = Values<float>(table);
      } else {
        ASSERT_TRUE(IsOk(Call(table, Request::Add(ones.data()))));
        values = Values<float>(table);
      }
      const int odd = (round + 1) / 2;
      for (size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / kColumns;
        const int of_rows = row == rows[0] || row == rows[1] ? 4 * odd : 0;
        ASSERT_EQ(values[i], 2 * round + (round - odd) + of_rows) << "round " << round << ", " << i;
      }
    }
  };
  RunJob(AllOf(3), run, {Mode::kSync, 0});
  RunSpanningJob(AllOf(3), /*ranks_per_node=*/2, /*delay=*/4, /*seed=*/1, run, {Mode::kSync, 0});
}

TEST(ParamSync, RejectsTensorsThatDoNotMatchTheTable) {
  RunJob(AllOf(1), [](Session* session, int /*rank*/) {
    Table* const table = ValueOf(Create(session, ArrayOf(5)));
    const float values[5] = {};
    const int64_t four[] = {2, 2};
    EXPECT_TRUE(Contains(ParamSync::Make(*table, four, 2, values).status(),
                         "has 5 elements, the tensors have 4"));
    const int64_t negative[] = {6, -1};
    EXPECT_TRUE(Contains(ParamSync::Make(*table, negative, 2, values).status(), "counts[1]"));
    const int64_t overflowing[] = {5, INT64_MAX, INT64_MAX};
    EXPECT_EQ(ParamSync::Make(*table, overflowing, 3, values).status().code(), Code::kValue);
    EXPECT_EQ(ParamSync::Make(*table, four, 0, values).status().code(), Code::kValue);
    EXPECT_EQ(ParamSync::Make(*table, nullptr, 1, values).status().code(), Code::kValue);
    const int64_t five[] = {5, 0};
    EXPECT_EQ(ParamSync::Make(*table, five, 2, nullptr).status().code(), Code::kValue);
    auto sync = ValueOf(ParamSync::Make(*table, five, 2, values));
    float tensor[5] = {1, 2, 3, 4, 5};
    EXPECT_EQ(Sync(sync.get(), table, {tensor}).code(), Code::kValue);
    EXPECT_TRUE(Contains(Sync(sync.get(), table, {nullptr, tensor}), "tensors[0]"));
    EXPECT_TRUE(Sync(sync.get(), table, {tensor, nullptr}).ok());
    EXPECT_EQ(Values<float>(table), std::vector<float>(tensor, tensor + 5));
  });
}

// A part of a tensor may end in the middle of a row.
TEST(ParamSync, IsRefusedForUpdatersWithStatePerRow) {
  const auto run = [](Session* session, int /*rank*/) {
    TableSpec spec = MatrixOf(2, 2);
    spec.updater = static_cast<int32_t>(UpdaterKind::kRowwiseAdagrad);
    SetDefaultHypers(UpdaterKind::kRowwiseAdagrad, spec.hyper);
    Table* const table = ValueOf(Create(session, spec));
    const int64_t counts[] = {4};
    const float zeros[4] = {};
    const Refusal* const refusal = FindRefusal({Feature::kRowState, Feature::kParamSync});
    EXPECT_TRUE(
        IsError(ParamSync::Make(*table, counts, 1, zeros), refusal->code, refusal->sentence));
  };
  RunJob(AllOf(1), run);
}

TEST(ParamSync, LeavesTheTensorsUnchangedWhenARoundFails) {
  const auto run = [](Session* session, int /*rank*/) {
    Table* const table = ValueOf(Create(session, ArrayOf(2)));
    const int64_t counts[] = {2};
    const float zeros[2] = {};
    auto sync = ValueOf(ParamSync::Make(*table, counts, 1, zeros));
    table->consistency()->Finish();
    float tensor[2] = {1, 2};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Sync(sync.get(), table, {tensor}).code(), Code::kState);
      EXPECT_EQ(tensor[0], 1);
      EXPECT_EQ(tensor[1], 2);
    }
  };
  RunJob(AllOf(1), run, {Mode::kSync, 0});
}

}  // namespace
}  // namespace multiverso::testing
