#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "base/socket.h"
#include "support/checkpoints.h"
#include "support/processes.h"

namespace multiverso::testing {
namespace {

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

// Returns the number of the first check that fails in a process without the streams in `closed`, of
// which each bit is one, or 0.
int OpenWithout(unsigned closed) {
  for (int stream = 0; stream < kStreams; ++stream) {
    if ((closed >> stream & 1) != 0) close(stream);
  }
  int ends[2] = {-1, -1};
  if (!NewPipe(ends)) return 1;
  const int listener = NewSocket(AF_INET);
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  socklen_t bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (listen(listener, 1) != 0 || getsockname(listener, any, &bytes) != 0) return 2;
  const int client = NewSocket(AF_INET);
  (void)connect(client, any, bytes);  // It does not wait.
  int server = -1;
  if (!Eventually([&] { return (server = AcceptSocket(listener)) >= 0; })) return 3;
  const int file = OpenDescriptor("/dev/null", O_RDWR);
  for (const int opened : {ends[0], ends[1], listener, client, server, file}) {
    if (opened < kStreams || (fcntl(opened, F_GETFD) & FD_CLOEXEC) == 0) return 4;
    if (opened != file && (fcntl(opened, F_GETFL) & O_NONBLOCK) == 0) return 6;
  }
  for (int stream = 0; stream < kStreams; ++stream) {
    if (IsOpen(stream) != ((closed >> stream & 1) == 0)) return 5;
  }
  return 0;
}

TEST(Descriptors, AreNeverThoseOfClosedStandardStreams) {
  for (unsigned closed = 0; closed < 1U << kStreams; ++closed) {
    EXPECT_EQ(Child([&] { return OpenWithout(closed); }).Wait(), 0) << closed;
  }
}

TEST(StreamNumbersTaken, LeavesAStreamThatTheProgramHasOpenedMeanwhile) {
  Child child([] {
    close(STDOUT_FILENO);
    int ends[2] = {-1, -1};
    if (!NewPipe(ends)) return 1;
    {
      const StreamNumbersTaken taken;
      if (dup2(ends[1], STDOUT_FILENO) != STDOUT_FILENO) return 2;
    }
    return IsOpen(STDOUT_FILENO) ? 0 : 3;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST(OpenWithoutLinks, OpensNeitherALinkNorAFileInOne) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  WriteAll(folder / "real/file", "content");
  std::filesystem::create_directory_symlink(folder / "real", folder / "linked");
  std::filesystem::create_symlink(folder / "real/file", folder / "real/link");
  const int create = O_WRONLY | O_CREAT | O_EXCL;
  const struct {
    const char* path;
    int flags;
    bool opens;
  } cases[] = {{"real/file", O_RDONLY, true},   {"real/new", create, true},
               {"real/link", O_RDONLY, false},  {"linked/file", O_RDONLY, false},
               {"linked/other", create, false}, {"linked//other", create, false},
               {"none/file", O_RDONLY, false}};
  for (const auto& each : cases) {
    const int file = OpenWithoutLinks(folder / each.path, each.flags, 0600);
    EXPECT_EQ(file >= 0, each.opens) << each.path;
    if (file >= 0) close(file);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "real/other"));
}

}  // namespace
}  // namespace multiverso::testing
