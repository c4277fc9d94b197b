#include "shard/make_updater.h"

#include <gtest/gtest.h>

#include <string>

#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(MakeUpdater, AllowsOnlyAddForIntegers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (int32_t kind = 1; kind < kUpdaterKinds; ++kind) {
      const auto updater = static_cast<UpdaterKind>(kind);
      EXPECT_TRUE(IsError(MakeUpdater(updater, dtype), Code::kType, "integers", "updater"));
    }
  }
}

TEST(MakeUpdater, RejectsUnknownKinds) {
  for (const int32_t kind : {-1, kUpdaterKinds, 99}) {
    EXPECT_TRUE(IsError(MakeUpdater(static_cast<UpdaterKind>(kind), DType::kFloat32), Code::kValue,
                        std::to_string(kind)));
  }
}

}  // namespace
}  // namespace multiverso::testing
