#include "memory/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/process.h"
#include "base/text.h"
#include "memory/limits.h"
#include "support/processes.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
// A bound on the memory of a segment with two touched pages, of which each may be huge.
constexpr int64_t kMaxTouchedBytes = 16 * kMegabyte;

int64_t LargeSize() { return std::min(int64_t{8} << 30, MemoryCeiling() / 2); }

void TouchBothEnds(const Segment& segment) {
  segment.data()[0] = 'a';
  segment.data()[segment.bytes() - 1] = 'z';
}

int64_t BytesStored(const Segment& segment) {
  struct stat info{};
  EXPECT_EQ(fstat(segment.fd(), &info), 0);
  return int64_t{info.st_blocks} * 512;
}

TEST(PrivateSegment, IsZeroAndWritableToItsLastByte) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{4097}, 4 * kMegabyte + 1}) {
    const Segment created = ValueOf(Segment::CreatePrivate(bytes));
    EXPECT_EQ(created.bytes(), bytes);
    EXPECT_EQ(created.data()[bytes - 1], 0);
    TouchBothEnds(created);
    EXPECT_EQ(created.data()[bytes - 1], 'z');
  }
}

TEST(Segment, IsAlignedToHugePagesIfLarge) {
  const Result<Segment> mine = Segment::CreatePrivate(5 * kMegabyte);
  const Result<Segment> shared = Segment::CreateShared(5 * kMegabyte);
  ASSERT_TRUE(mine.ok() && shared.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mine.value().data()) % (2 * kMegabyte), 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(shared.value().data()) % (2 * kMegabyte), 0U);
}

TEST(Segment, RejectsSizesBeyondTheMachineAndNamesTheSize) {
  for (const int64_t bytes : {MemoryCeiling() + 1, INT64_MAX}) {
    for (const Status& status :
         {Segment::CreatePrivate(bytes).status(), Segment::CreateShared(bytes).status()}) {
      EXPECT_TRUE(IsError(status, Code::kMemory, SizeText(bytes)));
    }
  }
}

TEST(Segment, IsNotMappedInAForkedChild) {
  const Segment created = ValueOf(Segment::CreateShared(4096));
  TouchBothEnds(created);
  Child child([&] {
    unsigned char page = 0;
    return mincore(created.data(), 4096, &page) != 0 && errno == ENOMEM ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

// The parameter says how the segment is shared: without a name, or as a file.
class SharedSegment : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!IsFile() && std::string(PlatformName()) != "linux") GTEST_SKIP() << "all are files";
    setenv("MULTIVERSO_SEGMENTS", GetParam(), 1);
  }
  void TearDown() override {
    unsetenv("MULTIVERSO_SEGMENTS");
    EXPECT_EQ(CountEntries("/dev/shm", Prefix()), 0);
    EXPECT_EQ(CountEntries("/tmp", Prefix()), 0);
  }

  static std::string Prefix() { return StrCat("multiverso-segment-", getpid(), "-"); }
  static bool IsFile() { return std::string(GetParam()) == "file"; }
};

TEST_P(SharedSegment, IsOneMemoryForAllProcesses) {
  Segment created = ValueOf(Segment::CreateShared(5000));
  EXPECT_EQ(created.data()[4999], 0);
  created.data()[0] = 'a';
  Child child([&] {
    const Result<Segment> opened = Segment::OpenShared(created.locator());
    if (!opened.ok() || opened.value().bytes() != 5000) return 1;
    if (opened.value().data()[0] != 'a') return 2;
    opened.value().data()[4999] = 'z';
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(created.data()[4999], 'z');
}

TEST_P(SharedSegment, UsesNoMemoryForUntouchedPages) {
  const int64_t bytes = IsFile() ? std::min(LargeSize(), 256 * kMegabyte) : LargeSize();
  const Segment created = ValueOf(Segment::CreateShared(bytes));
  const Segment opened = ValueOf(Segment::OpenShared(created.locator()));
  TouchBothEnds(opened);
  EXPECT_EQ(created.data()[bytes - 1], 'z');
  EXPECT_GT(BytesStored(created), 0);
  EXPECT_LE(BytesStored(created), kMaxTouchedBytes);
}

TEST_P(SharedSegment, OutlivesItsNameWhileMapped) {
  Segment created = ValueOf(Segment::CreateShared(4096));
  EXPECT_EQ(created.locator().path[0] != '\0', IsFile());
  Segment opened = ValueOf(Segment::OpenShared(created.locator()));
  EXPECT_EQ(CountEntries("/dev/shm", Prefix()) + CountEntries("/tmp", Prefix()), IsFile() ? 1 : 0);
  created.Seal();
  opened.Seal();
  EXPECT_EQ(CountEntries("/dev/shm", Prefix()) + CountEntries("/tmp", Prefix()), 0);
  EXPECT_EQ(created.fd(), -1);
  created.data()[7] = 'w';
  EXPECT_EQ(opened.data()[7], 'w');
  created = Segment();
  EXPECT_EQ(opened.data()[7], 'w');
}

TEST_P(SharedSegment, LeavesNoDescriptorBehind) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) {
    const Segment created = ValueOf(Segment::CreateShared(kMegabyte));
    const Segment opened = ValueOf(Segment::OpenShared(created.locator()));
    SegmentLocator wrong = created.locator();
    wrong.bytes = 2 * kMegabyte;
    EXPECT_FALSE(Segment::OpenShared(wrong).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(SharedSegment, RejectsAFileShorterThanAnnounced) {
  const Segment created = ValueOf(Segment::CreateShared(4096));
  SegmentLocator wrong = created.locator();
  wrong.bytes = 1 << 20;
  EXPECT_TRUE(IsError(Segment::OpenShared(wrong), Code::kMemory, "4096 bytes, expected 1048576"));
}

TEST_P(SharedSegment, CannotBeOpenedAfterItsCreatorEnded) {
  SegmentLocator gone;
  {
    const Segment created = ValueOf(Segment::CreateShared(4096));
    gone = created.locator();
  }
  EXPECT_EQ(Segment::OpenShared(gone).status().code(), Code::kMemory);
}

INSTANTIATE_TEST_SUITE_P(BothWays, SharedSegment, ::testing::Values("anonymous", "file"),
                         [](const auto& way) { return std::string(way.param); });

TEST(SharedSegment, IsForItsOwnerAlone) {
  const Segment created = ValueOf(Segment::CreateShared(kMegabyte));
  struct stat info{};
  ASSERT_EQ(fstat(created.fd(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST(SharedSegment, IsBlankInAForkedChildThatForgetsIt) {
  for (const int64_t bytes : {int64_t{5}, 5 * kMegabyte}) {
    Segment created = ValueOf(Segment::CreateShared(bytes));
    TouchBothEnds(created);
    Child child([&] {
      created.ForgetInChild();
      if (created.fd() >= 0) return 1;
      if (created.data()[0] != 0 || created.data()[bytes - 1] != 0) return 2;
      created.data()[0] = 'b';
      created.ForgetInChild();  // A segment may belong to several handles.
      return created.data()[0] == 'b' || created.data()[0] == 0 ? 0 : 3;
    });
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_EQ(created.data()[0], 'a');
    EXPECT_GE(created.fd(), 0);
  }
}

TEST(SharedSegment, ForgottenInAChildDoesNotReplaceOtherMemory) {
  Segment created = ValueOf(Segment::CreateShared(kMegabyte));
  Child child([&] {
    // Another library may have mapped its memory there before.
    void* const other =
        mmap(created.data(), kMegabyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other != created.data()) return 0;
    created.data()[1] = 'x';
    created.ForgetInChild();
    return created.data()[1] == 'x' ? 0 : 1;
  });
  if (std::string(PlatformName()) == "linux") {
    EXPECT_EQ(child.Wait(), 0);
  }
}

#if defined(__linux__)
TEST(SharedSegment, OfAProcessThatCannotBeDumpedIsRefusedWithAdvice) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "needs anonymous memory";
  const Shared<SegmentLocator> locator;
  const Shared<std::atomic<int>> is_created;
  // Root may open anything, so both processes become another user.
  const auto become_nobody = [] { return geteuid() != 0 || setuid(65534) == 0; };
  Child creator([&] {
    if (!become_nobody() || prctl(PR_SET_DUMPABLE, 0) != 0) return 1;
    const Result<Segment> created = Segment::CreateShared(kMegabyte);
    if (!created.ok()) return 2;
    *locator = created.value().locator();
    is_created->store(1);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return is_created->load() == 1; }));
  Child opener([&] {
    if (!become_nobody()) return 1;
    const Status status = Segment::OpenShared(*locator).status();
    if (status.code() != Code::kUnsupported) return 2;
    return status.text().find("MULTIVERSO_SEGMENTS=file") == std::string::npos ? 3 : 0;
  });
  EXPECT_EQ(opener.Wait(), 0);
}
#endif

}  // namespace
}  // namespace multiverso::testing
