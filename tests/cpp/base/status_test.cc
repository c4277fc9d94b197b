#include "base/status.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(Status, InKeepsThePeerAndTheFile) {
  PeerFault peer;
  peer.rank = 3;
  const Status error = Status(Code::kPeerLost, "rank 3 died").About(peer).In("get");
  EXPECT_EQ(error.text(), "get: rank 3 died");
  ASSERT_NE(error.peer(), nullptr);
  EXPECT_EQ(error.peer()->rank, 3);
  EXPECT_EQ(error.file(), nullptr);
  const Status of_file = Status(Code::kCheckpointIo, "no", FileFault{"/x", 2, 7}).In("save");
  ASSERT_NE(of_file.file(), nullptr);
  EXPECT_EQ(of_file.file()->position, 7);
  EXPECT_TRUE(Status::Pending().In("get").About(peer).pending());
}

}  // namespace
}  // namespace multiverso
