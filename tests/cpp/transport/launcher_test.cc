#include "transport/launcher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/process.h"
#include "support/processes.h"

namespace multiverso::testing {
namespace {

// A folder with bin/ and lib/libmpi.so.12, like an environment that contains an MPI.
class Launcher : public ::testing::Test {
 protected:
  Launcher() {
    char name[] = "/tmp/multiverso-launcher-XXXXXX";
    prefix_ = mkdtemp(name);
    mkdir((prefix_ + "/bin").c_str(), 0700);
    mkdir((prefix_ + "/lib").c_str(), 0700);
    std::ofstream(prefix_ + "/lib/libmpi.so.12") << "an MPI";
  }
  ~Launcher() override {
    std::remove((prefix_ + "/lib/libmpi.so.12").c_str());
    for (const char* folder : {"/bin", "/lib", ""}) rmdir((prefix_ + folder).c_str());
  }

  std::string prefix_;
};

TEST_F(Launcher, FindsTheMpiNextToIt) {
  for (const char* name : {"mpirun", "mpiexec.hydra", "hydra_pmi_proxy", "prterun", "orted"}) {
    EXPECT_EQ(LibrariesOfLaunchers({"/usr/bin/sh", prefix_ + "/bin/" + name},
                                   {"libmpi.so.12", "libmpi.so.40"}),
              std::vector<std::string>{prefix_ + "/bin/../lib/libmpi.so.12"})
        << name;
  }
}

TEST_F(Launcher, IgnoresOtherProgramsAndLibraries) {
  EXPECT_TRUE(
      LibrariesOfLaunchers({prefix_ + "/bin/python3", "mpirun", ""}, {"libmpi.so.12"}).empty());
  EXPECT_TRUE(LibrariesOfLaunchers({prefix_ + "/bin/mpirun"}, {"libmpi.so.40"}).empty());
}

TEST(AncestorPrograms, BeginWithTheParent) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "needs /proc";
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  Child child([&] {
    const std::vector<std::string> programs = AncestorPrograms();
    return !programs.empty() && programs[0] == self && programs.size() > 1 ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

}  // namespace
}  // namespace multiverso::testing
