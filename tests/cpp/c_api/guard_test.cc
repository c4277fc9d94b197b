#include "c_api/guard.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace multiverso::c_api {
namespace {

int32_t NumberOf(Code code) { return static_cast<int32_t>(code); }

TEST(Guard, TurnsExceptionsIntoStatuses) {
  EXPECT_EQ(Guard([]() -> Status { throw std::bad_alloc(); }), NumberOf(Code::kMemory));
  EXPECT_STREQ(LastError(), "out of memory");
  EXPECT_EQ(Guard([]() -> Status { throw std::runtime_error("no"); }), NumberOf(Code::kInternal));
  EXPECT_STREQ(LastError(), "no");
  EXPECT_EQ(Guard([]() -> Status { throw 7; }), NumberOf(Code::kInternal));
  EXPECT_STREQ(LastError(), "unknown exception");
}

TEST(CheckPath, RefusesAddresses) {
  for (const char* path :
       {"run", "/run", "C:\\run", "C://run", "s3:run", "a b://run", "./s3://run"}) {
    EXPECT_TRUE(CheckPath(path, "directory").ok()) << path;
  }
  for (const char* path :
       {"s3://bucket/run", "file:///run", "S3A://run", "git+ssh://host/run", ""}) {
    EXPECT_EQ(CheckPath(path, "directory").code(), Code::kValue) << path;
  }
  EXPECT_EQ(CheckPath(nullptr, "directory").code(), Code::kValue);
}

TEST(LastError, StaysUntilTheNextError) {
  Report(Status(Code::kValue, "first"));
  EXPECT_EQ(Guard([] { return Status::Ok(); }), 0);
  EXPECT_EQ(Guard([] { return Status::Outdated(); }), 1);
  EXPECT_STREQ(LastError(), "first");
  Report(Status(Code::kValue, "second"));
  EXPECT_STREQ(LastError(), "second");
}

TEST(LastPeer, BelongsToTheLastError) {
  PeerFault peer;
  peer.rank = 2;
  peer.last_call = "barrier";
  Report(Status(Code::kPeerLost, "rank 2 died").About(peer));
  EXPECT_EQ(LastPeer().rank, 2);
  EXPECT_EQ(LastPeer().last_call, "barrier");
  Report(Status(Code::kValue, "something else"));
  EXPECT_LT(LastPeer().rank, 0);
}

}  // namespace
}  // namespace multiverso::c_api
