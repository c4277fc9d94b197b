#include "checkpoint/save_job.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/checkpoints.h"
#include "support/limits.h"

namespace multiverso::testing {
namespace {

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
