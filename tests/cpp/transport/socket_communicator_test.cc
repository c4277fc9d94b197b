#include "transport/socket_communicator.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "support/limits.h"
#include "support/processes.h"
#include "support/status.h"
#include "transport/startup_transport.h"

namespace multiverso::testing {
namespace {

std::string JobOfThisTest() { return StrCat("test-", getppid(), "-", getpid()); }

std::unique_ptr<Transport> Open(const std::string& job, int rank, int size) {
  auto communicator = ValueOf(SocketCommunicator::Open(LocalJob{job, rank, size}));
  return ValueOf(StartupTransport::Open(std::move(communicator)));
}

// Runs a rank in each of `size` processes, of which this one is rank 0. A rank returns whether it
// has succeeded.
void InProcesses(int size, const std::function<bool(const std::string&, int)>& run_rank) {
  const std::string job = JobOfThisTest();
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(run_rank(job, rank) ? 0 : 1);
    children.push_back(child);
  }
  EXPECT_TRUE(run_rank(job, 0));
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(SocketCommunicator, NamesARankThatEnds) {
  InProcesses(3, [](const std::string& job, int rank) {
    const auto transport = Open(job, rank, 3);
    if (!transport->Exchange("first", Patiently()).ok()) return false;
    if (rank == 2) return true;
    const auto second = transport->Exchange("second", Patiently());
    return static_cast<bool>(IsError(second, Code::kPeerLost, "rank 2 ended"));
  });
}

// Returns the socket files of this user. Linux has none, since its names are no files.
std::set<std::string> SocketFiles() {
  std::set<std::string> found;
  DIR* const folder = opendir("/tmp");
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.rfind(StrCat("multiverso-", geteuid(), "-"), 0) == 0) found.insert(name);
  }
  closedir(folder);
  return found;
}

// Returns whether all files disappear that are new since `before`. Other tests have files too.
bool Disappear(std::set<std::string> files, const std::set<std::string>& before) {
  for (const std::string& name : before) files.erase(name);
  return Eventually([&] {
    const std::set<std::string> now = SocketFiles();
    return std::none_of(files.begin(), files.end(),
                        [&](const std::string& name) { return now.count(name) != 0; });
  });
}

TEST(SocketCommunicator, LeavesNoFileOnceAllRanksAreConnected) {
  InProcesses(3, [](const std::string& job, int rank) {
    const std::set<std::string> before = SocketFiles();
    const auto transport = Open(job, rank, 3);
    const std::set<std::string> opened = SocketFiles();
    return transport->Exchange("here", Patiently()).ok() &&
           (rank != 0 || Disappear(opened, before));
  });
}

TEST(SocketCommunicator, LeavesNoFileIfNoRankConnects) {
  const std::set<std::string> before = SocketFiles();
  auto transport = Open(JobOfThisTest(), 0, 2);
  const std::set<std::string> opened = SocketFiles();
  transport.reset();
  EXPECT_TRUE(Disappear(opened, before));
}

TEST(SocketCommunicator, StartsAgainAfterItsFirstRankWasKilled) {
  const std::string job = JobOfThisTest();
  Child killed([&] {
    const auto transport = Open(job, 0, 2);
    kill(getpid(), SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.Wait(), -1);
  InProcesses(2, [](const std::string& same_job, int rank) {
    return Open(same_job, rank, 2)->Exchange("here", Patiently()).ok();
  });
}

TEST(SocketCommunicator, RefusesASecondFirstRank) {
  const std::string job = JobOfThisTest();
  const Shared<std::atomic<int>> step;
  Child first([&] {
    const auto transport = Open(job, 0, 2);
    step->store(1);
    return Eventually([&] { return step->load() == 2; }) ? 0 : 1;
  });
  ASSERT_TRUE(Eventually([&] { return step->load() == 1; }));
  EXPECT_TRUE(IsError(SocketCommunicator::Open(LocalJob{job, 0, 2}), Code::kState, "another"));
  step->store(2);
  EXPECT_EQ(first.Wait(), 0);
}

TEST(SocketCommunicator, RejectsInvalidJobs) {
  EXPECT_TRUE(IsError(SocketCommunicator::Open(LocalJob{"", 0, 1}), Code::kValue, "job_name"));
  EXPECT_TRUE(IsError(SocketCommunicator::Open(LocalJob{std::string(65, 'x'), 0, 1}), Code::kValue,
                      "job_name"));
  for (const auto& [rank, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0)}) {
    EXPECT_TRUE(
        IsError(SocketCommunicator::Open(LocalJob{"job", rank, size}), Code::kValue, "job_rank"));
  }
}

}  // namespace
}  // namespace multiverso::testing
