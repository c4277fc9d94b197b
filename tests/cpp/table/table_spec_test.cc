#include "table/table_spec.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(TableSpec, RejectsSizesWhoseProductOverflows) {
  EXPECT_EQ(MatrixOf(int64_t{1} << 32, int64_t{1} << 32).Check().code(), Code::kValue);
  EXPECT_EQ(ArrayOf(int64_t{1} << 61).Check().code(), Code::kValue);
  EXPECT_EQ(MatrixOf(INT64_MAX, INT64_MAX).Check().code(), Code::kValue);
}

TEST(TableSpec, DescribesTheRequestedTable) {
  TableSpec spec = MatrixOf(4, 8, DType::kFloat64);
  CopyText(spec.name, "w");
  EXPECT_EQ(spec.Describe(), "matrix 'w' of 4 x 8 float64, updater add");
  TableSpec array = ArrayOf(7);
  array.updater = static_cast<int32_t>(UpdaterKind::kSgd);
  array.hyper[kLearningRate] = 0.5;
  EXPECT_EQ(array.Describe(), "array '' of 7 float32, updater sgd (learning_rate 0.5)");
  array.updater = static_cast<int32_t>(UpdaterKind::kAdam);
  SetDefaultHypers(UpdaterKind::kAdam, array.hyper);
  EXPECT_EQ(array.Describe(),
            "array '' of 7 float32, updater adam (learning_rate 0.001, epsilon 1e-07, beta_1 0.9, "
            "beta_2 0.999)");
}

}  // namespace
}  // namespace multiverso::testing
