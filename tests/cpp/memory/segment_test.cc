#include "memory/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "memory/limits.h"
#include "support/processes.h"

namespace multiverso {
namespace {

using testing::Child;
using testing::CountEntries;
using testing::OpenDescriptors;

constexpr int64_t kMegabyte = int64_t{1} << 20;
// The most memory for a segment with two touched pages, whether pages are small or huge.
constexpr int64_t kLittle = 16 * kMegabyte;

// The largest table that this machine may hold, at most 8 GB.
int64_t Huge() { return std::min(int64_t{8} << 30, MemoryCeiling() / 2); }

void TouchBothEnds(const Segment& segment) {
  segment.data()[0] = 'a';
  segment.data()[segment.bytes() - 1] = 'z';
}

int64_t BytesResident(const Segment& segment) {
  std::vector<unsigned char> pages(static_cast<size_t>(DivideUp(segment.bytes(), 4096)));
  EXPECT_EQ(mincore(segment.data(), static_cast<size_t>(segment.bytes()), pages.data()), 0);
  int64_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1;
  return resident * 4096;
}

int64_t BytesStored(const Segment& segment) {
  struct stat info{};
  EXPECT_EQ(fstat(segment.fd(), &info), 0);
  return int64_t{info.st_blocks} * 512;
}

TEST(PrivateSegment, IsZeroAndWritableToItsLastByte) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{4097}, 4 * kMegabyte + 1}) {
    const Result<Segment> made = Segment::CreatePrivate(bytes);
    ASSERT_TRUE(made.ok()) << made.status().text();
    EXPECT_EQ(made.value().bytes(), bytes);
    EXPECT_EQ(made.value().data()[bytes - 1], 0);
    TouchBothEnds(made.value());
    EXPECT_EQ(made.value().data()[bytes - 1], 'z');
  }
}

TEST(PrivateSegment, UsesNoMemoryForUntouchedPages) {
  const Result<Segment> made = Segment::CreatePrivate(Huge());
  ASSERT_TRUE(made.ok()) << made.status().text();
  TouchBothEnds(made.value());
  EXPECT_GT(BytesResident(made.value()), 0);
  EXPECT_LE(BytesResident(made.value()), kLittle);
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
      EXPECT_EQ(status.code(), Code::kMemory);
      EXPECT_NE(status.text().find(std::to_string(bytes)), std::string::npos) << status.text();
    }
  }
}

TEST(Segment, MoveTransfersOwnership) {
  Result<Segment> made = Segment::CreateShared(4096);
  ASSERT_TRUE(made.ok());
  char* const data = made.value().data();
  Segment taken = std::move(made.value());
  EXPECT_FALSE(made.value().is_mapped());
  EXPECT_EQ(made.value().fd(), -1);
  EXPECT_EQ(taken.data(), data);
  taken = Segment();
  EXPECT_FALSE(taken.is_mapped());
}

TEST(Segment, IsNotMappedInAForkedChild) {
  const Result<Segment> made = Segment::CreateShared(4096);
  ASSERT_TRUE(made.ok());
  TouchBothEnds(made.value());
  Child child([&] {
    unsigned char page = 0;
    return mincore(made.value().data(), 4096, &page) != 0 && errno == ENOMEM ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

// Both kinds of sharing: without a name, and as a file.
class SharedSegment : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("MULTIVERSO_SEGMENTS", GetParam(), 1); }
  void TearDown() override {
    unsetenv("MULTIVERSO_SEGMENTS");
    EXPECT_EQ(CountEntries("/dev/shm", Mine()), 0);
    EXPECT_EQ(CountEntries("/tmp", Mine()), 0);
  }

  static std::string Mine() { return StrCat("multiverso-segment-", getpid(), "-"); }
  static bool IsFile() { return std::string(GetParam()) == "file"; }
};

TEST_P(SharedSegment, IsOneMemoryForAllProcesses) {
  Result<Segment> made = Segment::CreateShared(5000);
  ASSERT_TRUE(made.ok()) << made.status().text();
  EXPECT_EQ(made.value().data()[4999], 0);
  made.value().data()[0] = 'a';
  Child child([&] {
    const Result<Segment> opened = Segment::OpenShared(made.value().locator());
    if (!opened.ok() || opened.value().bytes() != 5000) return 1;
    if (opened.value().data()[0] != 'a') return 2;
    opened.value().data()[4999] = 'z';
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(made.value().data()[4999], 'z');
}

TEST_P(SharedSegment, UsesNoMemoryForUntouchedPages) {
  const int64_t bytes = IsFile() ? std::min(Huge(), 256 * kMegabyte) : Huge();
  const Result<Segment> made = Segment::CreateShared(bytes);
  ASSERT_TRUE(made.ok()) << made.status().text();
  const Result<Segment> opened = Segment::OpenShared(made.value().locator());
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  TouchBothEnds(opened.value());
  EXPECT_EQ(made.value().data()[bytes - 1], 'z');
  EXPECT_GT(BytesStored(made.value()), 0);
  EXPECT_LE(BytesStored(made.value()), kLittle);
}

TEST_P(SharedSegment, OutlivesItsNameWhileMapped) {
  Result<Segment> made = Segment::CreateShared(4096);
  ASSERT_TRUE(made.ok()) << made.status().text();
  EXPECT_EQ(made.value().locator().path[0] != '\0', IsFile());
  Result<Segment> opened = Segment::OpenShared(made.value().locator());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(CountEntries("/dev/shm", Mine()) + CountEntries("/tmp", Mine()), IsFile() ? 1 : 0);
  made.value().Seal();
  opened.value().Seal();
  EXPECT_EQ(CountEntries("/dev/shm", Mine()) + CountEntries("/tmp", Mine()), 0);
  EXPECT_EQ(made.value().fd(), -1);
  made.value().data()[7] = 'w';
  EXPECT_EQ(opened.value().data()[7], 'w');
  made.value() = Segment();
  EXPECT_EQ(opened.value().data()[7], 'w');
}

TEST_P(SharedSegment, LeavesNoDescriptorBehind) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) {
    const Result<Segment> made = Segment::CreateShared(kMegabyte);
    ASSERT_TRUE(made.ok());
    const Result<Segment> opened = Segment::OpenShared(made.value().locator());
    ASSERT_TRUE(opened.ok());
    SegmentLocator wrong = made.value().locator();
    wrong.bytes = 2 * kMegabyte;
    EXPECT_FALSE(Segment::OpenShared(wrong).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(SharedSegment, RejectsAFileShorterThanAnnounced) {
  const Result<Segment> made = Segment::CreateShared(4096);
  ASSERT_TRUE(made.ok());
  SegmentLocator wrong = made.value().locator();
  wrong.bytes = 1 << 20;
  const Result<Segment> opened = Segment::OpenShared(wrong);
  EXPECT_EQ(opened.status().code(), Code::kMemory);
  EXPECT_NE(opened.status().text().find("4096 bytes, expected 1048576"), std::string::npos)
      << opened.status().text();
}

TEST_P(SharedSegment, CannotBeOpenedAfterItsCreatorEnded) {
  SegmentLocator gone;
  {
    const Result<Segment> made = Segment::CreateShared(4096);
    ASSERT_TRUE(made.ok());
    gone = made.value().locator();
  }
  EXPECT_EQ(Segment::OpenShared(gone).status().code(), Code::kMemory);
}

INSTANTIATE_TEST_SUITE_P(BothWays, SharedSegment, ::testing::Values("anonymous", "file"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace multiverso
