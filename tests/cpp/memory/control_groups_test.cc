#include "memory/control_groups.h"

#include <gtest/gtest.h>

namespace multiverso::testing {
namespace {

std::vector<std::string> LimitsOf(const std::string& groups, const std::string& mounts) {
  std::vector<std::string> paths;
  for (const ControlGroup& group : MemoryGroups(groups, mounts))
    paths.push_back(group.limit_path());
  return paths;
}

using Paths = std::vector<std::string>;

TEST(MemoryGroups, GoesFromTheGroupOfTheProcessToTheRoot) {
  EXPECT_EQ(LimitsOf("0::/user.slice/user-7.slice/run-1.scope\n",
                     "25 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"),
            (Paths{"/sys/fs/cgroup/user.slice/user-7.slice/run-1.scope/memory.max",
                   "/sys/fs/cgroup/user.slice/user-7.slice/memory.max",
                   "/sys/fs/cgroup/user.slice/memory.max", "/sys/fs/cgroup/memory.max"}));
  EXPECT_EQ(LimitsOf("0::/\n", "25 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            (Paths{"/sys/fs/cgroup/memory.max"}));
}

TEST(MemoryGroups, FindsTheMemoryControllerOfVersionOne) {
  const std::string groups = "12:cpu,cpuacct:/a\n11:hugetlb,memory:/slurm/uid_7/job_3:4\n0::/b\n";
  const std::string mounts =
      "22 20 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "30 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "31 25 0:28 / /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,hugetlb,memory\n";
  EXPECT_EQ(LimitsOf(groups, mounts),
            (Paths{"/sys/fs/cgroup/mem ory/slurm/uid_7/job_3:4/memory.limit_in_bytes",
                   "/sys/fs/cgroup/mem ory/slurm/uid_7/memory.limit_in_bytes",
                   "/sys/fs/cgroup/mem ory/slurm/memory.limit_in_bytes",
                   "/sys/fs/cgroup/mem ory/memory.limit_in_bytes"}));
}

TEST(MemoryGroups, LooksIntoBothHierarchiesWhenTheyExistSideBySide) {
  const std::string mounts =
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(
      LimitsOf("4:memory:/a\n0::/\n", mounts),
      (Paths{"/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
             "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/unified/memory.max"}));
}

TEST(MemoryGroups, IsRelativeToTheGroupThatIsMounted) {
  const std::string mounts =
      "31 25 0:28 /docker/c1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
      "32 25 0:28 /docker/c /other rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(LimitsOf("0::/docker/c1/job\n", mounts),
            (Paths{"/sys/fs/cgroup/job/memory.max", "/sys/fs/cgroup/memory.max"}));
  // Where the mount does not show the process's group, the mounted group is that of the container.
  const Paths both{"/sys/fs/cgroup/memory.max", "/other/memory.max"};
  for (const char* groups : {"0::/../x\n", "0::/system.slice\n", "", "nonsense\n"}) {
    EXPECT_EQ(LimitsOf(groups, mounts), both) << groups;
  }
  EXPECT_TRUE(LimitsOf("0::/\n", "").empty());
  EXPECT_TRUE(LimitsOf("0::/\n", "1 2 3\n - \n - cgroup2\n1 2 3 / /x - ext4 d rw\n").empty());
}

}  // namespace
}  // namespace multiverso::testing
