#include "saves/saving.h"

#include <gtest/gtest.h>

#include <numeric>

#include "saves/loading.h"
#include "support/checkpoints.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

AgreedCall RequestFor(const std::string& folder, int64_t step = -1) {
  AgreedCall request;
  request.folder = folder;
  request.step = step;
  return request;
}

Status Save(Session* session, const AgreedCall& request) { return session->Save(request); }

Status Load(Session* session, const AgreedCall& request) { return session->Load(request).status(); }

std::vector<float> Consecutive(int64_t size, float from = 0.0F) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), from);
  return values;
}

TableSpec WithUpdater(TableSpec spec, UpdaterKind updater) {
  spec.updater = static_cast<int32_t>(updater);
  SetDefaultHypers(updater, spec.hyper);
  return spec;
}

TEST(Saving, AdditionalWorkerStartsWithoutDelay) {
  const TemporaryFolder folder;
  const TableSpec spec = WithUpdater(ArrayOf(9), UpdaterKind::kDcasgd);
  const std::vector<float> ones(9, 1.0F);
  RunJob(AllOf(1), [&](Session* session, int) {
    ASSERT_TRUE(Create(session, spec, Consecutive(9).data()).ok());
    ASSERT_TRUE(Save(session, RequestFor(folder.path(), 1)).ok());
  });
  RunJob(AllOf(2), [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, spec));
    ASSERT_TRUE(Load(session, RequestFor(folder.path())).ok());
    if (rank != 1) return;
    Add(table, ones);
    std::vector<float> expected = Consecutive(9);
    for (float& value : expected) value -= static_cast<float>(spec.hyper[kLearningRate]);
    EXPECT_EQ(Values<float>(table), expected);
  });
}

TEST(Saving, DifferentRequestsAreAMismatch) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int rank) {
    ASSERT_TRUE(Create(session, ArrayOf(4)).ok());
    EXPECT_TRUE(IsError(Save(session, RequestFor(folder / (rank == 0 ? "a" : "b"))),
                        Code::kMismatch, "/a'", "/b'"));
    EXPECT_EQ(Save(session, RequestFor(folder.path(), rank)).code(), Code::kMismatch);
    EXPECT_TRUE(Save(session, RequestFor(folder.path())).ok());
  });
}

TEST(Saving, TableThatARankHasReleasedIsLeftOut) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int rank) {
    Table* const gone = ValueOf(Create(session, ArrayOf(4)));
    ASSERT_TRUE(Create(session, ArrayOf(5)).ok());
    if (rank == 1) session->ReleaseTable(gone);
    ASSERT_TRUE(Save(session, RequestFor(folder.path(), 0)).ok());
  });
  auto reader = ValueOf(CheckpointReader::Open(LocalFileSystem(), folder / "000001-step-0"));
  ASSERT_EQ(reader->manifest().tables.size(), 1U);
  EXPECT_EQ(reader->manifest().tables[0].name, "table 1");
}

TEST(Loading, TablesOfTheSameNameAreMatchedInOrder) {
  const TemporaryFolder folder;
  TableSpec spec = ArrayOf(6);
  CopyText(spec.name, "w");
  RunJob(AllOf(2), [&](Session* session, int) {
    ASSERT_TRUE(Create(session, spec, Consecutive(6, 1.0F).data()).ok());
    ASSERT_TRUE(Create(session, spec, Consecutive(6, 2.0F).data()).ok());
    ASSERT_TRUE(Save(session, RequestFor(folder.path(), 1)).ok());
  });
  RunJob(AllOf(1), [&](Session* session, int) {
    Table* const first = ValueOf(Create(session, spec));
    Table* const second = ValueOf(Create(session, spec));
    ASSERT_TRUE(Load(session, RequestFor(folder.path())).ok());
    EXPECT_EQ(Values<float>(first), Consecutive(6, 1.0F));
    EXPECT_EQ(Values<float>(second), Consecutive(6, 2.0F));
  });
}

}  // namespace
}  // namespace multiverso::testing
