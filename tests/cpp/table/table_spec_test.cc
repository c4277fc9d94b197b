#include "table/table_spec.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(TableSpec, AcceptsSizesFromOneElementOn) {
  EXPECT_TRUE(ArrayOf(1).Check().ok());
  EXPECT_TRUE(MatrixOf(1, 1, DType::kInt64).Check().ok());
  EXPECT_TRUE(ArrayOf(int64_t{1} << 33).Check().ok());
}

TEST(TableSpec, CountsIn64Bits) {
  const TableSpec spec = MatrixOf(int64_t{1} << 20, int64_t{1} << 20, DType::kFloat64);
  EXPECT_EQ(spec.count(), int64_t{1} << 40);
  EXPECT_EQ(spec.bytes(), int64_t{1} << 43);
}

TEST(TableSpec, RejectsSizesBelowOne) {
  for (const int64_t size : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(ArrayOf(size).Check().code(), Code::kValue);
    EXPECT_EQ(MatrixOf(3, size).Check().code(), Code::kValue);
    EXPECT_TRUE(Contains(MatrixOf(3, size).Check(), StrCat("3 x ", size)));
  }
}

TEST(TableSpec, RejectsSizesWhoseProductOverflows) {
  EXPECT_EQ(MatrixOf(int64_t{1} << 32, int64_t{1} << 32).Check().code(), Code::kValue);
  EXPECT_EQ(ArrayOf(int64_t{1} << 61).Check().code(), Code::kValue);
  EXPECT_EQ(MatrixOf(INT64_MAX, INT64_MAX).Check().code(), Code::kValue);
}

TEST(TableSpec, RejectsUnknownKindsTypesAndUpdaters) {
  TableSpec kind = ArrayOf(1);
  kind.kind = 2;
  EXPECT_EQ(kind.Check().code(), Code::kValue);
  TableSpec dtype = ArrayOf(1);
  dtype.dtype = 6;
  EXPECT_TRUE(IsError(dtype.Check(), Code::kType, "received 6"));
  EXPECT_TRUE(Contains(dtype.Describe(), "unknown"));
  TableSpec updater = ArrayOf(1);
  updater.updater = 99;
  EXPECT_EQ(updater.Check().code(), Code::kValue);
}

TEST(TableSpec, RejectsInconsistentFields) {
  TableSpec wide = ArrayOf(5);
  wide.num_col = 2;
  EXPECT_EQ(wide.Check().code(), Code::kValue);
  TableSpec sgd = ArrayOf(5, DType::kInt32);
  sgd.updater = static_cast<int32_t>(UpdaterKind::kSgd);
  EXPECT_EQ(sgd.Check().code(), Code::kType);
  TableSpec rate = ArrayOf(5);
  rate.updater = static_cast<int32_t>(UpdaterKind::kSgd);
  rate.hyper[kLearningRate] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(rate.Check().code(), Code::kValue);
}

TEST(TableSpec, ComparesEveryField) {
  EXPECT_TRUE(ArrayOf(5) == ArrayOf(5));
  EXPECT_FALSE(ArrayOf(5) == ArrayOf(6));
  TableSpec named = ArrayOf(5);
  CopyText(named.name, "w");
  EXPECT_FALSE(named == ArrayOf(5));
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
