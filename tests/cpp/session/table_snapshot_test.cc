#include "session/table_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "session/table_record.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// More than one piece of 4 MiB each, and not a whole number of them.
constexpr int64_t kSize = 3'000'017;

std::vector<float> Numbers(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

Section WholeOf(uint32_t table, int64_t rows) {
  Section section;
  section.table = table;
  section.rows = rows;
  section.bytes = rows * 4;
  return section;
}

class TableCopying : public ::testing::TestWithParam<int> {};

TEST_P(TableCopying, CopiesAllSectionsInAsManySlicesAsItTakes) {
  const auto sessions = OpenAll(1);
  Session* const session = sessions[0].get();
  const std::vector<float> large = Numbers(kSize);
  const std::vector<float> small = Numbers(5);
  Tables tables;
  for (const auto* values : {&large, &small}) {
    const auto creation =
        session->StartTable(ArrayOf(static_cast<int64_t>(values->size())), values->data());
    ASSERT_TRUE(RunToEnd(creation.get()).ok());
    tables.push_back(creation->TakeTable());
  }
  const std::vector<Section> sections = {WholeOf(1, 5), WholeOf(0, kSize), WholeOf(1, 5)};
  EXPECT_EQ(TableSnapshot::OffsetsOf(sections)[1], 64);
  std::vector<char> to(static_cast<size_t>(TableSnapshot::BytesOf(sections)));
  TableSnapshot copy;
  copy.Begin(tables, sections, to.data(), GetParam());
  int slices = 1;
  Status status;
  while ((status = copy.Step(WaitLimit{Instant::max(), Instant::min()})).pending()) ++slices;
  ASSERT_TRUE(status.ok()) << status.text();
  if (GetParam() == 1) {
    EXPECT_EQ(slices, 5);  // the pieces
  }
  const std::vector<int64_t> offsets = TableSnapshot::OffsetsOf(sections);
  EXPECT_EQ(std::memcmp(to.data() + offsets[0], small.data(), 20), 0);
  EXPECT_EQ(std::memcmp(to.data() + offsets[1], large.data(), large.size() * 4), 0);
  EXPECT_EQ(std::memcmp(to.data() + offsets[2], small.data(), 20), 0);
  EXPECT_TRUE(copy.Step(Patiently()).ok());  // nothing is left
}

INSTANTIATE_TEST_SUITE_P(Threads, TableCopying, ::testing::Values(1, 2, 4));

TEST(TableCopyThreads, AreFewerWhereRanksShareTheCores) {
  EXPECT_GE(TableSnapshot::ThreadsFor(1), 1);
  EXPECT_LE(TableSnapshot::ThreadsFor(1), 4);
  EXPECT_EQ(TableSnapshot::ThreadsFor(100'000), 1);
}

}  // namespace
}  // namespace multiverso::testing
