// The functions of the C API that need no session: version, status names, last error.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "multiverso/c_api.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(Library, ReturnsItsVersion) {
  EXPECT_EQ(MV_AbiVersion(), MV_ABI_VERSION);
  const std::string version = MV_VersionString();
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
}

TEST(Library, DescribesItsBuildAsJson) {
  const std::string info = MV_BuildInfo();
  EXPECT_EQ(info.front(), '{');
  EXPECT_EQ(info.back(), '}');
  const std::string version = std::string("\"version\":\"") + MV_VersionString() + "\"";
  EXPECT_TRUE(Contains(info, version));
  for (const char* key : {"abi", "compiler", "build_type", "vector_kernels"}) {
    EXPECT_TRUE(Contains(info, "\"" + std::string(key) + "\":"));
  }
  EXPECT_EQ(MV_BuildInfo(), MV_BuildInfo());
}

TEST(Library, NamesEveryStatus) {
  std::set<std::string> names;
  for (int32_t status = MV_ERR_CHECKPOINT_CORRUPT; status <= MV_OUTDATED; ++status) {
    const std::string name = MV_StatusName(status);
    EXPECT_EQ(name.find("MV_"), 0U) << status;
    EXPECT_TRUE(names.insert(name).second) << name << " is the name of two";
  }
  EXPECT_STREQ(MV_StatusName(MV_ERR_PEER_LOST), "MV_ERR_PEER_LOST");
  EXPECT_STREQ(MV_StatusName(MV_ERR_CHECKPOINT_CORRUPT - 1), "unknown");
  EXPECT_STREQ(MV_StatusName(2), "unknown");
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
