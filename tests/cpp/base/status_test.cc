#include "base/status.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

Status PassOn(const Status& status, bool* continued) {
  MV_RETURN_IF_NOT_OK(status);
  *continued = true;
  return Status::Ok();
}

TEST(Status, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_FALSE(status.pending());
  EXPECT_EQ(status.text(), "");
}

TEST(Status, PendingIsNotOkAndHasNoText) {
  const Status status = Status::Pending();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.pending());
  EXPECT_EQ(status.code(), Code::kPending);
  EXPECT_EQ(status.text(), "");
}

TEST(Status, CopiesKeepCodeAndText) {
  const Status original(Code::kIndex, "row_ids[3]");
  Status copy;
  copy = original;
  EXPECT_EQ(copy.code(), Code::kIndex);
  EXPECT_EQ(copy.text(), "row_ids[3]");
  EXPECT_FALSE(copy.ok());
  EXPECT_FALSE(copy.pending());
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

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> value(std::string("w"));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value.value(), "w");
  EXPECT_EQ(value->size(), 1U);
  const Result<std::string> error(Status(Code::kValue, "no"));
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kValue);
}

TEST(Result, CanHoldMoveOnlyTypes) {
  Result<std::unique_ptr<int>> made(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(made.value());
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace multiverso
