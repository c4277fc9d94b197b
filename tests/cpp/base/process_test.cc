#include "base/process.h"

#include <gtest/gtest.h>

#include <string>

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace multiverso::testing {
namespace {

TEST(ProcessStart, IsZeroOnlyForProcessesThatHaveEnded) {
  EXPECT_GT(ProcessStart(ProcessId()), 0);
  EXPECT_EQ(ProcessStart(ProcessId()), ProcessStart(ProcessId()));
#if !defined(_WIN32)
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  EXPECT_GE(ProcessStart(child), ProcessStart(ProcessId()));
  close(ends[0]);
  close(ends[1]);
  siginfo_t info;
  // The child stays a zombie, which counts as ended where the system can tell.
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  if (std::string(PlatformName()) == "linux") {
    EXPECT_EQ(ProcessStart(child), 0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ProcessStart(child), 0);
#endif
}

}  // namespace
}  // namespace multiverso::testing
