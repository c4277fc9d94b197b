#include "saves/table_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "saves/table_record.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// A table of this size has several pieces of 4 MiB and a smaller last piece.
constexpr int64_t kLargeSize = 3'000'017;

std::vector<float> CountedUp(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

Section WholeTable(uint32_t table, int64_t rows) {
  Section section;
  section.table = table;
  section.rows = rows;
  section.bytes = rows * 4;
  return section;
}

class TableCopying : public ::testing::TestWithParam<int> {};

TEST_P(TableCopying, CopiesAllSections) {
  const auto sessions = OpenAll(1);
  Session* const session = sessions[0].get();
  const std::vector<float> large = CountedUp(kLargeSize);
  const std::vector<float> small = CountedUp(5);
  Tables tables;
  for (const auto* values : {&large, &small}) {
    auto table = ValueOf(
        session->CreateTable(ArrayOf(static_cast<int64_t>(values->size())), values->data()));
    tables.push_back(std::move(table));
  }
  const std::vector<Section> sections = {WholeTable(1, 5), WholeTable(0, kLargeSize),
                                         WholeTable(1, 5)};
  EXPECT_EQ(SnapshotOffsets(sections)[1], 64);
  std::vector<char> to(static_cast<size_t>(SnapshotOffsets(sections).back()));
  ASSERT_TRUE(IsOk(CopySnapshot(tables, sections, to.data(), GetParam(), Patiently())));
  const std::vector<int64_t> offsets = SnapshotOffsets(sections);
  EXPECT_EQ(std::memcmp(to.data() + offsets[0], small.data(), 20), 0);
  EXPECT_EQ(std::memcmp(to.data() + offsets[1], large.data(), large.size() * 4), 0);
  EXPECT_EQ(std::memcmp(to.data() + offsets[2], small.data(), 20), 0);
}

TEST_P(TableCopying, EndsWhenItIsInterrupted) {
  const auto sessions = OpenAll(1);
  auto table = ValueOf(sessions[0]->CreateTable(ArrayOf(kLargeSize), nullptr));
  const std::vector<Section> sections(1, WholeTable(0, kLargeSize));
  std::vector<char> to(static_cast<size_t>(SnapshotOffsets(sections).back()));
  auto interrupt = InterruptAtOnce();
  interrupt.NoteWait(Clock::now() - Interrupt::kMinInterval);
  const WaitLimit limit = WaitLimit::Until(Instant::max(), &interrupt);
  const Status status = CopySnapshot({table}, sections, to.data(), GetParam(), limit);
  // The other threads may copy everything before this thread checks its limit.
  EXPECT_EQ(status.code(), GetParam() > 1 && status.ok() ? Code::kOk : Code::kAborted);
}

INSTANTIATE_TEST_SUITE_P(Threads, TableCopying, ::testing::Values(1, 2, 4));

TEST(TableCopyThreads, AreFewerIfRanksShareTheCores) {
  EXPECT_GE(SnapshotThreads(1), 1);
  EXPECT_LE(SnapshotThreads(1), 4);
  EXPECT_EQ(SnapshotThreads(100'000), 1);
}

}  // namespace
}  // namespace multiverso::testing
