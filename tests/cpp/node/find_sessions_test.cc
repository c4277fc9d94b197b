#include "node/find_sessions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

// A file without a name, which holds these bytes.
class UnnamedFile {
 public:
  UnnamedFile(const void* data, size_t bytes) : file_(std::tmpfile()) {
    EXPECT_EQ(std::fwrite(data, 1, bytes, file_), bytes);
    std::fflush(file_);
  }
  ~UnnamedFile() { std::fclose(file_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fileno(file_)); }

 private:
  std::FILE* file_;
};

TEST(FindSessions, FindsEachNodeOfASessionOnce) {
  if (!Segment::CanBeFound()) GTEST_SKIP() << "sessions cannot be found";
  const RankContexts ranks(AllOf(3));
  const std::vector<FoundSession> found = FindSessions(getpid());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].RanksHere(), 3);
  EXPECT_EQ(found[0].CountAlive(), 3);
  EXPECT_FALSE(found[0].IsAlive(3));
  ranks[1]->memory()->slot(1).state.store(RankSlot::kClosed);
  EXPECT_EQ(found[0].CountAlive(), 2);
  const std::string json = ValueOf(DescribeSessions(getpid()));
  EXPECT_TRUE(Contains(json, "[{\"alive\":[0,2],\"node\":{\"version\":")) << json;
}

TEST(FindSessions, ReportsASystemWhereNothingCanBeFound) {
  EXPECT_EQ(DescribeSessions(getpid()).status().code(),
            Segment::CanBeFound() ? Code::kOk : Code::kUnsupported);
}

TEST(FoundSession, OpensAFile) {
  const RankContexts ranks(AllOf(3));
  ranks[2]->memory()->recorder()->Begin(CallKind::kSave, -1, 0);
  const UnnamedFile file(ranks[0]->memory()->control(),
                         static_cast<size_t>(NodeControl::BytesFor(3, 3)));
  const FoundSession found = ValueOf(FoundSession::Open(file.path()));
  EXPECT_TRUE(Contains(found.snapshot().LastCall(2), "save"));
  // No process has locked its byte of this file.
  EXPECT_EQ(found.CountAlive(), 0);
}

TEST(FoundSession, RejectsOtherBytesAndVersions) {
  const RankContexts ranks(AllOf(2));
  const auto all = static_cast<size_t>(NodeControl::BytesFor(2, 2));
  const auto* const bytes = reinterpret_cast<const char*>(ranks[0]->memory()->control());
  const auto open = [](const std::string& path) {
    return FoundSession::Open(path).status().code();
  };
  for (const size_t size :
       {size_t{0}, size_t{1}, sizeof(NodeControl) - 1, sizeof(NodeControl), all - 1}) {
    EXPECT_EQ(open(UnnamedFile(bytes, size).path()), Code::kUnsupported);
  }
  const auto rejects = [&](auto change) {
    std::vector<NodeControl> copy(all / sizeof(NodeControl) + 1);
    std::memcpy(static_cast<void*>(copy.data()), bytes, all);
    change(copy.data());
    return open(UnnamedFile(copy.data(), all).path()) == Code::kUnsupported;
  };
  EXPECT_FALSE(rejects([](NodeControl*) {}));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->magic.store(1); }));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->bytes_of_slot += 64; }));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->bytes_of_recorder -= 64; }));
  for (const int32_t count : {-1, 0, 3, 65536, 65537, INT32_MAX, INT32_MIN}) {
    EXPECT_TRUE(rejects([count](NodeControl* control) { control->num_ranks = count; })) << count;
  }
  EXPECT_EQ(open("/proc/self/fd/99999"), Code::kUnsupported);
  EXPECT_EQ(open("/dev/zero"), Code::kUnsupported);
  EXPECT_EQ(open("/"), Code::kUnsupported);
}

}  // namespace
}  // namespace multiverso::testing
