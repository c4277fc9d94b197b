#include "memory/named_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>

#include "base/text.h"
#include "support/processes.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Makes the file two minutes old. CreateNamedFile removes no orphan of less than a minute.
int MakeOld(int fd) {
  const time_t then = time(nullptr) - 120;
  const timespec times[2] = {{then, 0}, {then, 0}};
  return futimens(fd, times);
}

int64_t FreeBytes(const char* directory) {
  struct statvfs info{};
  if (statvfs(directory, &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

// Sets TMPDIR to an empty folder and removes its files at the end of the test.
class NamedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/multiverso-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("TMPDIR", name, 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    for (const std::string& path : paths_) unlink(path.c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "files remain in " << folder_;
  }

  // Creates a file in the temporary directory, old unless `young`. Returns its open descriptor.
  int LeaveFile(const std::string& name, bool young = false) {
    paths_.push_back(folder_ + "/" + name);
    const int fd = open(paths_.back().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_TRUE(young || MakeOld(fd) == 0);
    return fd;
  }

  std::string folder_;
  std::vector<std::string> paths_;
};

// Returns more bytes than /dev/shm has, so that CreateNamedFile uses the temporary directory and
// removes orphans from it.
int64_t MoreThanShmHas() { return FreeBytes("/dev/shm") + (int64_t{1} << 30); }

TEST_F(NamedFiles, AreNewEmptyPrivateAndNotInherited) {
  const Result<NamedFile> file = CreateNamedFile(4096);
  ASSERT_TRUE(IsOk(file));
  struct stat info{};
  ASSERT_EQ(fstat(file.value().fd, &info), 0);
  EXPECT_EQ(info.st_size, 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(fcntl(file.value().fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  const Result<NamedFile> other = CreateNamedFile(4096);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(file.value().path, other.value().path);
  for (const Result<NamedFile>* made : {&file, &other}) {
    EXPECT_EQ(unlink(made->value().path.c_str()), 0);
    close(made->value().fd);
  }
}

TEST_F(NamedFiles, UseTheDirectoryWithRoom) {
  if (FreeBytes("/tmp") < MoreThanShmHas()) GTEST_SKIP() << "/tmp has no more room than /dev/shm";
  const NamedFile file = ValueOf(CreateNamedFile(MoreThanShmHas()));
  EXPECT_EQ(file.path.compare(0, folder_.size() + 1, folder_ + "/"), 0) << file.path;
  EXPECT_EQ(unlink(file.path.c_str()), 0);
  close(file.fd);
}

TEST_F(NamedFiles, FailWithTheNamesOfAllDirectoriesWithoutRoom) {
  const Result<NamedFile> file = CreateNamedFile(INT64_MAX);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), Code::kMemory);
  for (const std::string& part : {std::string("/dev/shm"), folder_, SizeText(INT64_MAX)}) {
    EXPECT_TRUE(Contains(file, part));
  }
}

TEST_F(NamedFiles, AreRemovedOnlyIfTheirCreatorDied) {
  close(LeaveFile("multiverso-segment-1-dead"));
  const int locked = LeaveFile("multiverso-segment-2-alive");
  ASSERT_EQ(flock(locked, LOCK_EX | LOCK_NB), 0);
  close(LeaveFile("multiverso-segment-3-young", /*young=*/true));
  close(LeaveFile("somebody-elses"));
  close(LeaveFile("target"));
  paths_.push_back(folder_ + "/multiverso-segment-4-link");
  ASSERT_EQ(symlink((folder_ + "/target").c_str(), paths_.back().c_str()), 0);

  // CreateNamedFile searches the directories for orphans before it rejects the size.
  (void)CreateNamedFile(INT64_MAX);

  EXPECT_FALSE(Exists(folder_ + "/multiverso-segment-1-dead"));
  EXPECT_TRUE(Exists(folder_ + "/multiverso-segment-2-alive"));
  EXPECT_TRUE(Exists(folder_ + "/multiverso-segment-3-young"));
  EXPECT_TRUE(Exists(folder_ + "/somebody-elses"));
  EXPECT_TRUE(Exists(folder_ + "/target"));
  close(locked);
}

TEST_F(NamedFiles, OfAKilledCreatorAreRemovedByTheNext) {
  if (FreeBytes("/tmp") < MoreThanShmHas()) GTEST_SKIP() << "/tmp has no more room than /dev/shm";
  Child creator([] {
    const Result<NamedFile> file = CreateNamedFile(MoreThanShmHas());
    if (!file.ok()) return 1;
    // The file is old but must stay, since its creator is alive and holds its lock.
    (void)MakeOld(file.value().fd);
    (void)CreateNamedFile(INT64_MAX);
    return Exists(file.value().path) ? raise(SIGKILL) : 2;
  });
  ASSERT_EQ(creator.Wait(), -1);
  (void)CreateNamedFile(INT64_MAX);
  // TearDown expects the directory to be empty, so the file must have been removed.
}

}  // namespace
}  // namespace multiverso::testing
