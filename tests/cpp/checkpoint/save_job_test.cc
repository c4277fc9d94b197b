#include "checkpoint/save_job.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/checkpoints.h"
#include "support/limits.h"

namespace multiverso::testing {
namespace {

// Verifies the last checkpoint and returns the seed of its tables.
float SeedOfLast(const std::string& path) {
  const std::string last = ValueOf(CheckpointFolder(LocalFileSystem(), path).Resolve());
  EXPECT_TRUE(IsOk(Verify(last)));
  const auto reader = ValueOf(CheckpointReader::Open(LocalFileSystem(), last));
  const float seed = ReadRows<float>(reader.get(), 0, 0, 0, 1)[0];
  const SomeTables expected(seed, 500);
  EXPECT_EQ(ReadRows<float>(reader.get(), 0, 1, 0, 500), expected.slot);
  EXPECT_EQ(ReadRows<double>(reader.get(), 1, 0, 0, 5), expected.matrix);
  return seed;
}

// Returns the number of file system steps in a save that replaces another checkpoint.
int64_t CountStepsOfASave() {
  const TemporaryFolder folder;
  FaultyFileSystem files;
  EXPECT_TRUE(SaveTo(LocalFileSystem(), folder.path(), SomeTables(1.0F, 500), 1, 1).ok());
  EXPECT_TRUE(SaveTo(&files, folder.path(), SomeTables(2.0F, 500), 2, 1).ok());
  EXPECT_GT(files.steps(), 10);
  return files.steps();
}

TEST(SaveJob, KillAtAnyStepLeavesTheOldOrTheNewCheckpoint) {
  const SomeTables old(1.0F, 500);
  const SomeTables fresh(2.0F, 500);
  const int64_t steps = CountStepsOfASave();
  int old_ones = 0;
  int new_ones = 0;
  for (int64_t at = 0; at < steps; ++at) {
    const TemporaryFolder folder;
    FaultyFileSystem files;
    ASSERT_TRUE(SaveTo(&files, folder.path(), old, 1, 1).ok());
    files.FailAt(at, 0);
    (void)SaveTo(&files, folder.path(), fresh, 2, 1);
    const float seed = SeedOfLast(folder.path());
    EXPECT_TRUE(seed == 1.0F || seed == 2.0F) << "step " << at;
    ++(seed == 1.0F ? old_ones : new_ones);
    // The next save removes the remains of the failed save and succeeds.
    files.FailAt(-1, 0);
    ASSERT_TRUE(SaveTo(&files, folder.path(), SomeTables(3.0F, 500), 3, 1).ok());
    EXPECT_EQ(SeedOfLast(folder.path()), 3.0F);
    EXPECT_TRUE(Leftovers(folder.path()).empty());
    EXPECT_EQ(CheckpointFolder(LocalFileSystem(), folder.path()).List().value().size(), 1U);
  }
  EXPECT_GT(old_ones, 10);
  EXPECT_GT(new_ones, 3);
}

TEST(SaveJob, FailureOfAnyStepNamesTheFileOrLeavesTheNewCheckpointComplete) {
  const SomeTables old(1.0F, 500);
  const SomeTables fresh(2.0F, 500);
  const int64_t steps = CountStepsOfASave();
  for (int64_t at = 0; at < steps; ++at) {
    const TemporaryFolder folder;
    FaultyFileSystem files;
    ASSERT_TRUE(SaveTo(LocalFileSystem(), folder.path(), old, 1).ok());
    files.FailAt(at, ENOSPC);
    const Status status = SaveTo(&files, folder.path(), fresh, 2, 1);
    const float seed = SeedOfLast(folder.path());
    if (status.ok()) {
      EXPECT_EQ(seed, 2.0F) << "step " << at;
      continue;
    }
    EXPECT_EQ(status.code(), Code::kCheckpointIo);
    ASSERT_NE(status.file(), nullptr);
    EXPECT_EQ(status.file()->error_number, ENOSPC);
    EXPECT_EQ(status.file()->path.compare(0, folder.path().size(), folder.path()), 0);
    EXPECT_TRUE(Leftovers(folder.path()).empty()) << "step " << at;
  }
}

class ValueSource final : public BlockSource {
 public:
  Result<const char*> Fetch(size_t /*section*/, int64_t /*offset*/, int64_t bytes,
                            char* room) override {
    std::memset(room, 1, static_cast<size_t>(bytes));
    return static_cast<const char*>(room);
  }
};

// Two ranks, each of which writes one half of a table of 2000 float32.
struct TwoRankSave {
  TwoRankSave() {
    CheckpointName name;
    saving = ValueOf(folder.Begin(0, 99, &name));
  }
  SavePlan PlanOf(int rank) const {
    SavePlan plan;
    plan.folder = folder.path();
    plan.saving = saving;
    plan.name = CheckpointName{1, 0};
    plan.deadline = Clock::now() + kPatience;
    plan.file_index = rank;
    Section section;
    section.first_row = 1000 * rank;
    section.rows = 1000;
    section.bytes = 4000;
    plan.sections = {section};
    plan.manifest.id = 99;
    SavedTable table;
    table.name = "w";
    table.num_row = 2000;
    table.num_col = 1;
    plan.manifest.tables = {table};
    plan.manifest.number = 1;
    plan.num_files = 2;
    plan.commits = rank == 0;
    return plan;
  }
  std::unique_ptr<SaveJob> Start(SavePlan plan) const {
    return ValueOf(
        SaveJob::Start(LocalFileSystem(), std::move(plan), std::make_unique<ValueSource>()));
  }

  TemporaryFolder temporary;
  CheckpointFolder folder{LocalFileSystem(), temporary.path()};
  std::string saving;
};

TEST(SaveJob, CommitsWhenAllRanksHaveWritten) {
  const TwoRankSave ranks;
  const auto first = ranks.Start(ranks.PlanOf(0));
  EXPECT_TRUE(first->AwaitWritten(Patiently()).ok());
  EXPECT_TRUE(first->AwaitCommitted(WithoutWaiting()).pending());
  const auto second = ranks.Start(ranks.PlanOf(1));
  EXPECT_TRUE(second->AwaitCommitted(Patiently()).ok());
  EXPECT_TRUE(IsOk(first->AwaitCommitted(Patiently())));
  EXPECT_TRUE(Verify(ranks.folder.path() + "/000001-step-0").ok());
}

TEST(SaveJob, FailsWhenTheOtherRankIsLost) {
  const TwoRankSave ranks;
  SavePlan plan = ranks.PlanOf(0);
  plan.why_never = [](uint32_t file) {
    return file == 1 ? Status(Code::kPeerLost, "rank 1 died") : Status::Ok();
  };
  EXPECT_TRUE(IsError(ranks.Start(std::move(plan))->AwaitCommitted(Patiently()), Code::kPeerLost,
                      "rank 1 died"));
}

TEST(SaveJob, EndsAtItsDeadlineOrWhenStopped) {
  const TwoRankSave ranks;
  SavePlan plan = ranks.PlanOf(0);
  plan.deadline = Clock::now() + std::chrono::milliseconds(20);
  EXPECT_EQ(ranks.Start(std::move(plan))->AwaitCommitted(Patiently()).code(), Code::kTimeout);
  const auto job = ranks.Start(ranks.PlanOf(1));
  job->Stop();
  const Status status = job->AwaitWritten(Patiently());
  EXPECT_TRUE(status.ok() || status.code() == Code::kAborted);
}

TEST(SaveJob, RejectsTheFileOfAnotherSave) {
  const TwoRankSave ranks;
  SavePlan other = ranks.PlanOf(1);
  other.manifest.id = 98;
  ASSERT_TRUE(ranks.Start(std::move(other))->AwaitWritten(Patiently()).ok());
  const auto job = ranks.Start(ranks.PlanOf(0));
  EXPECT_EQ(job->AwaitCommitted(Patiently()).code(), Code::kCheckpointCorrupt);
  EXPECT_EQ(ranks.folder.Resolve().value(), "");
}

}  // namespace
}  // namespace multiverso::testing
