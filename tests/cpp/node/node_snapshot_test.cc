#include "node/node_snapshot.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "support/limits.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

NodeSnapshot SnapshotOf(const RankContext& rank) {
  return ValueOf(NodeSnapshot::Of(reinterpret_cast<const char*>(rank.memory()->control()),
                                  NodeControl::BytesFor(rank.members().size())));
}

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

TEST(NodeSnapshot, DescribesTheLastCallsOfEachRank) {
  const RankContexts ranks(AllOf(2));
  ranks[1]->memory()->RecordTable(0, "w", 0, 10, 1);
  EXPECT_EQ(SnapshotOf(*ranks[0]).LastCall(1), "");
  FlightRecorder* const recorder = ranks[1]->memory()->recorder();
  recorder->Begin(CallOf(RequestKind::kGet), 0, 40)->EndAtOnce(Code::kOk);
  recorder->Begin(CallOf(RequestKind::kAdd), 0, 1 << 20)->EndAtOnce(Code::kIndex);
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "add of table 'w' (1.0 MiB)"));
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "failed with MV_ERR_INDEX"));
  recorder->Begin(CallKind::kBarrier, -1, 0);
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "barrier, in it for "));
  const std::string calls = SnapshotOf(*ranks[0]).LastCalls(1, 2);
  EXPECT_TRUE(Contains(calls, "call 3: barrier"));
  EXPECT_TRUE(Contains(calls, "call 2: add"));
  EXPECT_FALSE(Contains(calls, "call 1:"));
  EXPECT_EQ(SnapshotOf(*ranks[1]).LastCall(0), "");
}

TEST(NodeSnapshot, KnowsOnlyTheLast32CallsOfMany) {
  const RankContexts ranks(AllOf(1));
  FlightRecorder* const recorder = ranks[0]->memory()->recorder();
  for (int bytes = 1; bytes <= 1000; ++bytes) recorder->Begin(CallOf(RequestKind::kGet), 0, bytes);
  const std::string calls = SnapshotOf(*ranks[0]).LastCalls(0, 1000);
  EXPECT_TRUE(Contains(calls, "call 1000: get of table number 0 (1000 bytes)"));
  EXPECT_TRUE(Contains(calls, "call 969:"));
  EXPECT_FALSE(Contains(calls, "call 968:"));
}

TEST(NodeSnapshot, ListsRanksAndTables) {
  const RankContexts ranks({Role::kServer, Role::kAll});
  ranks[0]->memory()->RecordTable(1, "a \"name\"\n\xc3", 0, 7, 3);
  ranks[1]->memory()->recorder()->CountGet(1, 84);
  ranks[1]->memory()->recorder()->CountAdd(1, 12);
  ranks[1]->memory()->recorder()->CountAdd(1, 12);
  ranks[1]->world()->BeginAllgather(CollectiveKind::kBarrier);
  ranks[1]->memory()->recorder()->Begin(CallKind::kBarrier, -1, 0);
  const std::string json = SnapshotOf(*ranks[0]).Json();
  for (const char* part :
       {"\"ranks\":2", "\"worker_id\":-1", "\"waits_for\":[0]", "\"waits_for\":[]",
        "\"in_call\":true", "\"name\":\"a \\\"name\\\"\\u000a\xef\xbf\xbd\"", "\"num_row\":7",
        "\"gets\":[0,1]", "\"adds\":[0,2]", "\"bytes_added\":[0,24]", "\"silent_for\":null",
        "\"state\":\"here\""}) {
    EXPECT_TRUE(Contains(json, part));
  }
}

TEST(NodeSnapshot, ReadsAFileWithoutMappingIt) {
  const RankContexts ranks(AllOf(3));
  ranks[2]->memory()->recorder()->Begin(CallKind::kSave, -1, 0);
  const UnnamedFile file(ranks[0]->memory()->control(),
                         static_cast<size_t>(NodeControl::BytesFor(3)));
  EXPECT_TRUE(Contains(ValueOf(NodeSnapshot::OfFile(file.path())).LastCall(2), "save"));
}

TEST(NodeSnapshot, RejectsOtherBytesAndVersions) {
  const RankContexts ranks(AllOf(2));
  const auto all = static_cast<size_t>(NodeControl::BytesFor(2));
  const auto* const bytes = reinterpret_cast<const char*>(ranks[0]->memory()->control());
  for (const size_t size :
       {size_t{0}, size_t{1}, sizeof(NodeControl) - 1, sizeof(NodeControl), all - 1}) {
    EXPECT_EQ(NodeSnapshot::OfFile(UnnamedFile(bytes, size).path()).status().code(),
              Code::kUnsupported);
  }
  const auto rejects = [&](auto change) {
    std::vector<NodeControl> copy(all / sizeof(NodeControl) + 1);
    std::memcpy(static_cast<void*>(copy.data()), bytes, all);
    change(copy.data());
    return NodeSnapshot::OfFile(UnnamedFile(copy.data(), all).path()).status().code() ==
           Code::kUnsupported;
  };
  EXPECT_FALSE(rejects([](NodeControl*) {}));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->magic.store(1); }));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->bytes_of_slot += 64; }));
  EXPECT_TRUE(rejects([](NodeControl* control) { control->bytes_of_recorder -= 64; }));
  for (const int32_t count : {-1, 0, 3, 65536, 65537, INT32_MAX, INT32_MIN}) {
    EXPECT_TRUE(rejects([count](NodeControl* control) { control->num_ranks = count; })) << count;
  }
  EXPECT_EQ(NodeSnapshot::OfFile("/proc/self/fd/99999").status().code(), Code::kUnsupported);
  EXPECT_EQ(NodeSnapshot::OfFile("/dev/zero").status().code(), Code::kUnsupported);
  EXPECT_EQ(NodeSnapshot::OfFile("/").status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace multiverso::testing
