#include "transport/mpi_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/process.h"
#include "base/text.h"

namespace multiverso::testing {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

TEST(RemoveFilesOfMpi, RemovesWhatThisProcessHasMappedAndNothingOfOthers) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "there is no /dev/shm elsewhere";
  const std::string mapped = StrCat("/dev/shm/mpich_shm_test-", getpid());
  const std::string of_others = mapped + "-of-others";
  const std::string of_user = StrCat("/dev/shm/user-", getpid());
  for (const std::string& path : {mapped, of_others, of_user}) {
    const int fd = open(path.c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, 4096), 0);
    if (path != of_others) {
      void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
      ASSERT_NE(memory, MAP_FAILED);
    }
    close(fd);
  }
  RemoveFilesOfMpi();
  EXPECT_FALSE(Exists(mapped));
  EXPECT_TRUE(Exists(of_others));
  EXPECT_TRUE(Exists(of_user));
  unlink(of_others.c_str());
  unlink(of_user.c_str());
}

}  // namespace
}  // namespace multiverso::testing
