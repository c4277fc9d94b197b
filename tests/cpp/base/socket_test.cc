#include "base/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace multiverso::testing {
namespace {

// Expects a descriptor that never blocks and is closed on exec, and closes it.
void ExpectPrepared(int descriptor) {
  ASSERT_GE(descriptor, 0);
  EXPECT_NE(fcntl(descriptor, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  close(descriptor);
}

TEST(NewSocket, NeverBlocksAndIsClosedOnExec) { ExpectPrepared(NewSocket(AF_UNIX)); }

TEST(NewSocket, FailsForAnUnknownFamily) { EXPECT_LT(NewSocket(-1), 0); }

TEST(AcceptSocket, NeverBlocksAndIsClosedOnExec) {
  const int listener = NewSocket(AF_INET);
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  socklen_t bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, any, &bytes), 0);
  EXPECT_LT(AcceptSocket(listener), 0);
  EXPECT_EQ(errno, EAGAIN);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, any, bytes), 0);
  ExpectPrepared(AcceptSocket(listener));
  close(client);
  close(listener);
}

TEST(NewPipe, PassesBytesFromItsSecondEndToItsFirst) {
  int ends[2] = {-1, -1};
  ASSERT_TRUE(NewPipe(ends));
  char byte = 0;
  EXPECT_LT(read(ends[0], &byte, 1), 0);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  for (const int end : ends) ExpectPrepared(end);
}

}  // namespace
}  // namespace multiverso::testing
