#include "base/status.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

Status PassOn(const Status& status, bool* continued) {
  MV_RETURN_IF_NOT_OK(status);
  *continued = true;
  return Status::Ok();
}

TEST(Status, InAddsTheContextToErrorsOnly) {
  const Status error = Status(Code::kTimeout, "waited for rank 1").In("init");
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.text(), "init: waited for rank 1");
  EXPECT_TRUE(Status::Ok().In("init").ok());
  EXPECT_TRUE(Status::Pending().In("init").pending());
}

TEST(Status, IsAboutAPeerOnlyAfterAbout) {
  const Status error(Code::kPeerLost, "rank 3 died");
  EXPECT_EQ(error.peer(), nullptr);
  PeerFault peer;
  peer.rank = 3;
  peer.host = "b";
  const Status about = error.About(peer).In("get");
  EXPECT_EQ(about.text(), "get: rank 3 died");
  ASSERT_NE(about.peer(), nullptr);
  EXPECT_EQ(about.peer()->rank, 3);
  EXPECT_EQ(about.peer()->host, "b");
  EXPECT_EQ(about.file(), nullptr);
  EXPECT_EQ(error.peer(), nullptr);
  EXPECT_TRUE(Status::Ok().About(peer).ok());
  EXPECT_TRUE(Status::Pending().About(peer).pending());
}

TEST(Status, InKeepsTheFile) {
  const Status error = Status(Code::kCheckpointIo, "no", FileFault{"/x", 2, 7}).In("save");
  ASSERT_NE(error.file(), nullptr);
  EXPECT_EQ(error.file()->position, 7);
}

TEST(Status, ReturnIfNotOkPassesErrorsAndPendingUp) {
  bool continued = false;
  EXPECT_TRUE(PassOn(Status::Pending(), &continued).pending());
  EXPECT_EQ(PassOn(Status(Code::kState, "closed"), &continued).text(), "closed");
  EXPECT_FALSE(continued);
  EXPECT_TRUE(PassOn(Status::Ok(), &continued).ok());
  EXPECT_TRUE(continued);
}

}  // namespace
}  // namespace multiverso
