#include "base/exit_deadline.h"

#include <gtest/gtest.h>

#include "support/processes.h"

namespace multiverso::testing {
namespace {

using std::chrono::milliseconds;

TEST(ExitDeadline, EndsTheProcessAndNamesTheCall) {
  EXPECT_EXIT(
      {
        const ExitDeadline deadline("MPI_Init", milliseconds(20));
        SleepForGood();
      },
      ::testing::ExitedWithCode(1),
      "OperationTimeout: .*process [0-9]+.*: MPI_Init has not returned within 0.020 "
      "s\\..*start_timeout=");
}

}  // namespace
}  // namespace multiverso::testing
