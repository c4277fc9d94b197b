#include "transport/rank_claim.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/process.h"
#include "base/text.h"
#include "support/processes.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr char kMark[] = "MULTIVERSO_RANK_OWNER";

// Variables of launchers, which are removed at the end of a test. The name of the job is unique.
class RankClaim : public ::testing::Test {
 protected:
  ~RankClaim() override {
    ReleaseHeldRank();
    for (const char* name :
         {kMark, "MULTIVERSO_JOB", "MULTIVERSO_RANK", "MULTIVERSO_JOIN", "PMI_RANK", "PMI_SIZE",
          "PMI_FD", "PMIX_NAMESPACE", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
          "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}) {
      unsetenv(name);
    }
  }

  void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void SetJob(const std::string& rank = "1") {
    Set("MULTIVERSO_JOB", StrCat("claim-", getpid()));
    Set("MULTIVERSO_RANK", rank);
  }
};

// Returns what ClaimRank returns in a child that inherits the environment after `change`.
template <class Change>
int InChild(const Change& change) {
  Child child([&] {
    change();
    return ClaimRank();
  });
  return child.Wait();
}

int InChild() {
  return InChild([] {});
}

TEST_F(RankClaim, WithoutALauncherNothingIsMarked) {
  Set("RANK", "3");             // without torchrun
  Set("MULTIVERSO_RANK", "3");  // without a job
  Set("SLURM_JOB_ID", "7");     // in a batch script
  Set("SLURM_PROCID", "0");
  EXPECT_EQ(ClaimRank(), 0);
  Set("SLURM_STEP_ID", "1");  // in an interactive step
  Set("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_EQ(ClaimRank(), 0);
  EXPECT_EQ(std::getenv(kMark), nullptr);
}

TEST_F(RankClaim, RankKeepsItsVariablesAndItsChildrenDoNotGetThem) {
  SetJob();
  for (int call = 0; call < 2; ++call) EXPECT_EQ(ClaimRank(), kLauncherOfMultiverso);
  EXPECT_EQ(InChild(), 0);
  EXPECT_EQ(ClaimRank(), kLauncherOfMultiverso);
}

TEST_F(RankClaim, HoldsForEachLauncher) {
  Set("PMI_RANK", "0");
  EXPECT_EQ(ClaimRank(), kLauncherOfMpi);
  Set("TORCHELASTIC_RUN_ID", "x");
  Set("RANK", "0");
  EXPECT_EQ(ClaimRank(), kLauncherOfMpi + kLauncherOfTorchrun);
  Set("MULTIVERSO_JOIN", "train; or another");
  EXPECT_EQ(ClaimRank(), 7);
  EXPECT_EQ(InChild(), 0);
}

TEST_F(RankClaim, ChildOfAProcessThatHasEndedIsTheRank) {
  SetJob();
  Child rank([] { return ClaimRank(); });
  const std::string mark =
      StrCat(rank.pid(), ":", ProcessStart(rank.pid()),
             ":1;MULTIVERSO_JOB=", std::getenv("MULTIVERSO_JOB"), ";MULTIVERSO_RANK=1;");
  EXPECT_EQ(rank.Wait(), kLauncherOfMultiverso);
  Set(kMark, mark);
  EXPECT_EQ(ClaimRank(), kLauncherOfMultiverso);
}

TEST_F(RankClaim, AnotherProcessWithTheSameIdIsNotTheOwner) {
  SetJob();
  ASSERT_EQ(ClaimRank(), kLauncherOfMultiverso);
  const std::string rest = std::getenv(kMark) + std::string(std::getenv(kMark)).find(":1;");
  EXPECT_EQ(InChild([&] { Set(kMark, StrCat(getppid(), ":", 1 + ProcessStart(getppid()), rest)); }),
            kLauncherOfMultiverso);
  EXPECT_EQ(InChild([&] { Set(kMark, "not a mark"); }), kLauncherOfMultiverso);
}

TEST_F(RankClaim, VariablesOfAnotherLauncherAreAboutTheProcessAgain) {
  SetJob();
  ASSERT_EQ(ClaimRank(), kLauncherOfMultiverso);
  EXPECT_EQ(InChild([&] { Set("MULTIVERSO_RANK", "2"); }), kLauncherOfMultiverso);
  EXPECT_EQ(InChild([&] { Set("PMI_RANK", "1"); }), kLauncherOfMpi);
  // A child of that child inherits the variables of both, and keeps neither.
  const int of_grandchild = InChild([&] {
    Set("PMI_RANK", "1");
    if (ClaimRank() != kLauncherOfMpi || ClaimRank() != kLauncherOfMpi) _exit(99);
    _exit(InChild());
  });
  EXPECT_EQ(of_grandchild, 0);
  // A rank that removes a variable has the same children.
  EXPECT_EQ(InChild([&] { unsetenv("MULTIVERSO_RANK"); }), 0);
}

TEST_F(RankClaim, SocketTellsJobsOfMpichApart) {
  int first[2];
  int second[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, first), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, second), 0);
  Set("PMI_RANK", "0");
  Set("PMI_FD", std::to_string(first[0]));
  EXPECT_EQ(ClaimRank(), kLauncherOfMpi);
  EXPECT_EQ(InChild(), 0);
  EXPECT_EQ(InChild([&] { dup2(second[0], first[0]); }), kLauncherOfMpi);
  EXPECT_EQ(InChild([&] { close(first[0]); }), 0);  // as Python does in the programs it starts
  for (const int fd : {first[0], first[1], second[0], second[1]}) close(fd);
}

TEST_F(RankClaim, VariablesThatTwoJobsMayShareAreNotOneRank) {
  for (const char* name : {"MULTIVERSO_JOIN", "PMI_RANK"}) {
    Set(name, "0");
    const int32_t own = ClaimRank();
    EXPECT_NE(own, 0);
    ASSERT_TRUE(IsOk(HoldRank(own)));
    Child child([own] {
      ReleaseHeldRank();
      return HoldRank(own).ok() ? 0 : 1;
    });
    EXPECT_EQ(child.Wait(), 0);
    ReleaseHeldRank();
  }
}

}  // namespace
}  // namespace multiverso::testing
