#include "transport/node_control.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(NameOfCalls, IsWhatTheCallerCalled) {
  EXPECT_STREQ(NameOf(CallKind::kJoin), "init");
  EXPECT_STREQ(NameOf(CallKind::kBarrier), "barrier");
  EXPECT_STREQ(NameOf(CallKind::kMapTable), "the creation of a table");
  EXPECT_STREQ(NameOf(CallKind::kCollectiveGet), "get(sync=True)");
  EXPECT_STREQ(NameOf(CallKind::kClose), "shutdown");
  EXPECT_STREQ(NameOf(static_cast<CallKind>(999)), "an unknown call");
}

}  // namespace
}  // namespace multiverso
