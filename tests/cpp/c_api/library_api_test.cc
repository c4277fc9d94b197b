// The functions of the C API that need no session: status names, and the last error.
#include <gtest/gtest.h>

#include <string>

#include "multiverso/c_api.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(Library, HasNoNameForAStatusThatItDoesNotReturn) {
  EXPECT_STREQ(MV_StatusName(MV_OUTDATED), "MV_OUTDATED");
  EXPECT_STREQ(MV_StatusName(static_cast<int32_t>(Code::kPending)), "unknown");
  EXPECT_STREQ(MV_StatusName(MV_ERR_CHECKPOINT_CORRUPT - 1), "unknown");
}

TEST(LastErrorPeer, IsEmptyIfTheErrorIsAboutNoRank) {
  EXPECT_EQ(MV_ExitDeadlineBegin(nullptr, 1), MV_ERR_VALUE);
  MV_PeerError peer{};
  EXPECT_EQ(MV_LastErrorPeer(&peer), MV_ERR_VALUE);
  EXPECT_EQ(MV_LastErrorPeer(nullptr), MV_ERR_VALUE);
  peer.struct_size = sizeof(peer);
  EXPECT_EQ(MV_LastErrorPeer(&peer), MV_OK);
  EXPECT_EQ(peer.rank, -1);
  EXPECT_LT(peer.silent_for, 0);
  EXPECT_EQ(peer.host, nullptr);
  EXPECT_EQ(peer.last_call, nullptr);
  EXPECT_EQ(peer.table, nullptr);
  EXPECT_EQ(peer.checkpoint, nullptr);
  // MV_LastErrorPeer does not replace the last error.
  EXPECT_TRUE(Contains(std::string(MV_LastError()), "MV_ExitDeadlineBegin"));
}

}  // namespace
}  // namespace multiverso::testing
