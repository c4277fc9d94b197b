#include "session/saving.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "session/loading.h"
#include "support/checkpoints.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

CheckpointRequest To(const std::string& folder, int64_t step = -1, bool flag = false) {
  CheckpointRequest request;
  request.folder = folder;
  request.step = step;
  request.flag = flag;
  return request;
}

Status Save(Session* session, const CheckpointRequest& request) { return session->Save(request); }

Status Load(Session* session, const CheckpointRequest& request, int64_t* step = nullptr) {
  const Result<int64_t> loaded = session->Load(request);
  if (loaded.ok() && step != nullptr) *step = loaded.value();
  return loaded.status();
}

std::vector<float> Count(int64_t size, float from = 0.0F) {
  std::vector<float> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), from);
  return values;
}

// Runs body(session, rank) for each rank, with these file systems and that mode.
template <class Body>
void RunJobWith(int ranks, const std::vector<FileSystem*>& files, Mode mode, const Body& body) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  OnThreads(ranks, [&](int rank) {
    SessionOptions options = OptionsOf(Role::kAll);
    options.mode.mode = mode;
    if (!files.empty()) options.files = files[static_cast<size_t>(rank)];
    auto session = OpenSession(hub, rank, options);
    ASSERT_TRUE(session.ok()) << session.status().text();
    body(session.value().get(), rank);
    const Status status = session.value()->Close();
    EXPECT_TRUE(status.ok()) << status.text();
  });
}

TableSpec With(TableSpec spec, UpdaterKind updater) {
  spec.updater = static_cast<int32_t>(updater);
  SetDefaults(updater, spec.hyper);
  return spec;
}

constexpr int64_t kRows = 1001;

TableSpec SomeMatrix(int64_t columns = 3) {
  return With(MatrixOf(kRows, columns), UpdaterKind::kSgd);
}

// Two tables whose values identify their rows.
void SaveSome(Session* session, const std::string& folder, int64_t step, bool background = false) {
  const auto array = Count(kRows);
  const auto matrix = Count(kRows * 3, 0.5F);
  ASSERT_TRUE(Create(session, ArrayOf(kRows), array.data()).ok());
  auto second = Create(session, SomeMatrix(), matrix.data());
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(Call(second.value(), Request::SetHyper(kLearningRate, 0.125)).ok());
  ASSERT_TRUE(Barrier(session).ok());
  const Status status = Save(session, To(folder, step, background));
  ASSERT_TRUE(status.ok()) << status.text();
}

void LoadSome(Session* session, const std::string& folder, int64_t step) {
  auto array = Create(session, ArrayOf(kRows));
  auto matrix = Create(session, SomeMatrix());
  ASSERT_TRUE(array.ok() && matrix.ok());
  int64_t loaded = 0;
  const Status status = Load(session, To(folder), &loaded);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(loaded, step);
  EXPECT_EQ(Values<float>(array.value()), Count(kRows));
  EXPECT_EQ(Values<float>(matrix.value()), Count(kRows * 3, 0.5F));
  EXPECT_EQ(matrix.value()->GetHyper(kLearningRate), 0.125);
  ASSERT_TRUE(Barrier(session).ok());
}

TEST(Saving, LoadsIntoJobsOfOtherSizesRolesAndNodes) {
  const TemporaryFolder folder;
  RunJob(AllOf(4), [&](Session* session, int) { SaveSome(session, folder.path(), 11); });
  for (const int ranks : {1, 2, 3, 4}) {
    RunJob(AllOf(ranks), [&](Session* session, int) { LoadSome(session, folder.path(), 11); });
  }
  RunSpanningJob(AllOf(3), 1, 2, 1,
                 [&](Session* session, int) { LoadSome(session, folder.path(), 11); });
  RunSpanningJob(AllOf(4), 2, 2, 2, [&](Session* session, int) {
    LoadSome(session, folder.path(), 11);
    ASSERT_TRUE(Save(session, To(folder.path(), 12)).ok());
  });
  EXPECT_TRUE(Verify(folder / "000002-step-12").ok());
  const Roles roles = {Role::kServer, Role::kAll, Role::kServer, Role::kWorker};
  RunJobWithoutShutdown(roles, kPatience, [&](Session* session, int) {
    ASSERT_TRUE(Create(session, ArrayOf(kRows)).ok());
    ASSERT_TRUE(Create(session, SomeMatrix()).ok());
    ASSERT_TRUE(Load(session, To(folder.path())).ok());
    ASSERT_TRUE(Save(session, To(folder.path(), 13)).ok());
  });
  RunJob(AllOf(2), [&](Session* session, int) { LoadSome(session, folder.path(), 13); });
}

// An array of several stripes, and a matrix whose step counts are in two pieces.
constexpr int64_t kLong = 40'000;
constexpr int64_t kColumns = StepCells::kMostBytes / 4 + 5;

struct Trained {
  Trained(Session* session, UpdaterKind updater) {
    auto one = Create(session, With(ArrayOf(kLong), updater));
    auto other = Create(session, With(MatrixOf(5, kColumns), updater));
    EXPECT_TRUE(one.ok() && other.ok());
    array = one.value();
    matrix = other.value();
  }

  // The following adds depend on the updater's state and on the number of updates of each row.
  void Train() const {
    Add(array, Count(kLong, 1.0F));
    Add(matrix, Count(5 * kColumns, 1.0F));
    const int64_t rows[] = {4, 1};
    const std::vector<float> delta = Count(2 * kColumns, -3.0F);
    Progress progress;
    const Status status =
        matrix->Run(Request::AddRows(rows, 2, delta.data()), &progress, Patiently());
    EXPECT_TRUE(status.ok()) << status.text();
  }

  Table* array;
  Table* matrix;
};

TEST(Saving, UpdatersContinueFromTheirSavedState) {
  for (const UpdaterKind updater :
       {UpdaterKind::kMomentum, UpdaterKind::kAdam, UpdaterKind::kAdadelta, UpdaterKind::kDcasgd}) {
    const TemporaryFolder folder;
    std::vector<float> array;
    std::vector<float> matrix;
    RunJob(AllOf(3), [&](Session* session, int rank) {
      const Trained tables(session, updater);
      if (rank == 0) {
        tables.Train();
        Values<float>(tables.array);
        tables.Train();
      }
      ASSERT_TRUE(Save(session, To(folder.path(), 1)).ok());
      if (rank == 0) {
        tables.Train();
        array = Values<float>(tables.array);
        matrix = Values<float>(tables.matrix);
      }
    });
    // Loading must also work if the tables have diverged and there is one more worker.
    for (const int ranks : {1, 2, 4}) {
      RunJob(AllOf(ranks), [&](Session* session, int rank) {
        const Trained tables(session, updater);
        tables.Train();
        ASSERT_TRUE(Barrier(session).ok());
        ASSERT_TRUE(Load(session, To(folder.path())).ok());
        if (rank == 0) {
          tables.Train();
          EXPECT_EQ(Values<float>(tables.array), array);
          EXPECT_EQ(Values<float>(tables.matrix), matrix);
        }
      });
    }
  }
}

TEST(Saving, AdditionalWorkerStartsWithoutDelay) {
  const TemporaryFolder folder;
  const TableSpec spec = With(ArrayOf(9), UpdaterKind::kDcasgd);
  const std::vector<float> ones(9, 1.0F);
  RunJob(AllOf(1), [&](Session* session, int) {
    ASSERT_TRUE(Create(session, spec, Count(9).data()).ok());
    ASSERT_TRUE(Save(session, To(folder.path(), 1)).ok());
  });
  RunJob(AllOf(2), [&](Session* session, int rank) {
    auto table = Create(session, spec);
    ASSERT_TRUE(table.ok());
    ASSERT_TRUE(Load(session, To(folder.path())).ok());
    if (rank != 1) return;
    Add(table.value(), ones);
    std::vector<float> expected = Count(9);
    for (float& value : expected) value -= static_cast<float>(spec.hyper[kLearningRate]);
    EXPECT_EQ(Values<float>(table.value()), expected);
  });
}

TEST(Saving, EachRowIsSavedOnceByItsServer) {
  const TemporaryFolder folder;
  RunJob(AllOf(3), [&](Session* session, int) { SaveSome(session, folder.path(), 0); });
  auto reader = CheckpointReader::Open(LocalFileSystem(), folder / "000001-step-0");
  ASSERT_TRUE(reader.ok()) << reader.status().text();
  EXPECT_EQ(reader.value()->manifest().files.size(), 3U);
  EXPECT_EQ(reader.value()->manifest().workers, 3U);
}

TEST(Saving, BackgroundSaveHasTheStateAtTheCall) {
  const TemporaryFolder folder;
  RunJob(AllOf(3), [&](Session* session, int) {
    SaveSome(session, folder.path(), 1, /*background=*/true);
    auto third = Create(session, ArrayOf(kRows));
    ASSERT_TRUE(third.ok());
    for (int i = 0; i < 20; ++i) Add(third.value(), Count(kRows));
    // A save waits for the previous one.
    ASSERT_TRUE(Save(session, To(folder.path(), 2, true)).ok());
    Add(third.value(), Count(kRows));
    const Status status = session->SaveWait();
    EXPECT_TRUE(status.ok()) << status.text();
  });
  std::filesystem::remove_all(folder / "000002-step-2");
  RunJob(AllOf(2), [&](Session* session, int) { LoadSome(session, folder.path(), 1); });
}

TEST(Saving, ShutdownWaitsForTheBackground) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int) { SaveSome(session, folder.path(), 1, true); });
  EXPECT_TRUE(Verify(folder / "000001-step-1").ok());
}

TEST(Saving, FailureOfOneRankFailsAllAndLosesNothing) {
  const TemporaryFolder folder;
  FaultyFileSystem full;
  const std::vector<FileSystem*> files = {LocalFileSystem(), &full};
  RunJobWith(2, files, Mode::kAsync, [&](Session* session, int) {
    SaveSome(session, folder.path(), 1);
    for (const bool background : {false, true}) {
      full.FailAt(2, ENOSPC);
      ASSERT_TRUE(Barrier(session).ok());
      Status status = Save(session, To(folder.path(), 2, background));
      if (background) {
        EXPECT_TRUE(status.ok());
        status = session->SaveWait();
      }
      EXPECT_EQ(status.code(), Code::kCheckpointIo);
      EXPECT_TRUE(Contains(status, "rank 1: ")) << status.text();
      ASSERT_NE(status.file(), nullptr);
      EXPECT_EQ(status.file()->error_number, ENOSPC);
      EXPECT_TRUE(Contains(status, folder.path() + "/.saving-000002-step-2"));
      EXPECT_EQ(status.file()->path.compare(0, folder.path().size(), folder.path()), 0);
      ASSERT_TRUE(Barrier(session).ok());
      EXPECT_TRUE(Leftovers(folder.path()).empty());
    }
    full.FailAt(-1, 0);
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_TRUE(Save(session, To(folder.path(), 3)).ok());
  });
  EXPECT_TRUE(Verify(folder / "000001-step-1").ok());
  EXPECT_TRUE(Verify(folder / "000002-step-3").ok());
}

TEST(Saving, DifferentRequestsAreAMismatch) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int rank) {
    ASSERT_TRUE(Create(session, ArrayOf(4)).ok());
    const Status folders = Save(session, To(folder / (rank == 0 ? "a" : "b")));
    EXPECT_EQ(folders.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(folders, "/a'")) << folders.text();
    EXPECT_TRUE(Contains(folders, "/b'")) << folders.text();
    EXPECT_EQ(Save(session, To(folder.path(), rank)).code(), Code::kMismatch);
    EXPECT_TRUE(Save(session, To(folder.path())).ok());
  });
}

TEST(Saving, TableThatARankHasReleasedIsLeftOut) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int rank) {
    auto gone = Create(session, ArrayOf(4));
    ASSERT_TRUE(Create(session, ArrayOf(5)).ok());
    if (rank == 1) session->ReleaseTable(gone.value());
    ASSERT_TRUE(Save(session, To(folder.path(), 0)).ok());
  });
  auto reader = CheckpointReader::Open(LocalFileSystem(), folder / "000001-step-0");
  ASSERT_TRUE(reader.ok()) << reader.status().text();
  ASSERT_EQ(reader.value()->manifest().tables.size(), 1U);
  EXPECT_EQ(reader.value()->manifest().tables[0].name, "table 1");
}

TEST(Saving, RoundsOfSyncModeAreApplied) {
  const TemporaryFolder folder;
  RunJobWith(3, {}, Mode::kSync, [&](Session* session, int) {
    auto table = Create(session, ArrayOf(100));
    ASSERT_TRUE(table.ok());
    // The adds are only staged, since no rank has made a get.
    Add(table.value(), Count(100));
    ASSERT_TRUE(Save(session, To(folder.path(), 4)).ok());
    Add(table.value(), Count(100));
    ASSERT_TRUE(Load(session, To(folder.path())).ok());
    std::vector<float> expected = Count(100);
    for (float& value : expected) value *= 3;
    EXPECT_EQ(Values<float>(table.value()), expected);
    EXPECT_EQ(table.value()->consistency()->Clocks(), (std::vector<uint64_t>{1, 1, 1}));
  });
}

TEST(Loading, CorruptionOnOneRankFailsAllAndChangesNothing) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int) { SaveSome(session, folder.path(), 1); });
  const std::string path = folder / "000001-step-1/shard-00001.mv";
  std::string bytes = ReadAll(path);
  bytes[bytes.size() - 5000] = static_cast<char>(bytes[bytes.size() - 5000] ^ 1);
  WriteAll(path, bytes);
  RunJob(AllOf(3), [&](Session* session, int) {
    auto array = Create(session, ArrayOf(kRows));
    auto matrix = Create(session, SomeMatrix());
    const Status status = Load(session, To(folder.path()));
    EXPECT_EQ(status.code(), Code::kCheckpointCorrupt);
    ASSERT_NE(status.file(), nullptr);
    EXPECT_EQ(status.file()->path, path);
    EXPECT_EQ(Values<float>(array.value()), std::vector<float>(kRows));
    EXPECT_EQ(Values<float>(matrix.value()), std::vector<float>(kRows * 3));
    ASSERT_TRUE(Barrier(session).ok());
  });
}

TEST(Loading, MissingCheckpointIsAnErrorUnlessAllowed) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int) {
    const Status status = Load(session, To(folder / "none"));
    EXPECT_EQ(status.code(), Code::kCheckpointIo);
    EXPECT_EQ(status.file()->error_number, ENOENT);
    int64_t step = 0;
    EXPECT_TRUE(Load(session, To(folder / "none", -1, /*flag=*/true), &step).ok());
    EXPECT_EQ(step, -1);
  });
}

TEST(Loading, RefusesTablesThatDifferFromTheSavedOnes) {
  const TemporaryFolder folder;
  RunJob(AllOf(2), [&](Session* session, int) { SaveSome(session, folder.path(), 1); });
  RunJob(AllOf(2), [&](Session* session, int) {
    auto array = Create(session, ArrayOf(kRows));
    Status status = Load(session, To(folder.path()));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "it has a table 'table 1'")) << status.text();
    // A single table can be loaded.
    CheckpointRequest request = To(folder.path());
    request.table = array.value()->id();
    ASSERT_TRUE(Load(session, request).ok());
    EXPECT_EQ(Values<float>(array.value()), Count(kRows));
    ASSERT_TRUE(Create(session, SomeMatrix(4)).ok());
    status = Load(session, To(folder.path()));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "matrix 'table 1' of 1001 x 4 float32")) << status.text();
    EXPECT_TRUE(Contains(status, "1001 x 3")) << status.text();
    ASSERT_TRUE(Create(session, ArrayOf(3)).ok());
  });
}

TEST(Loading, TablesOfTheSameNameAreMatchedInOrder) {
  const TemporaryFolder folder;
  TableSpec spec = ArrayOf(6);
  CopyText(spec.name, "w");
  RunJob(AllOf(2), [&](Session* session, int) {
    ASSERT_TRUE(Create(session, spec, Count(6, 1.0F).data()).ok());
    ASSERT_TRUE(Create(session, spec, Count(6, 2.0F).data()).ok());
    ASSERT_TRUE(Save(session, To(folder.path(), 1)).ok());
  });
  RunJob(AllOf(1), [&](Session* session, int) {
    auto first = Create(session, spec);
    auto second = Create(session, spec);
    ASSERT_TRUE(Load(session, To(folder.path())).ok());
    EXPECT_EQ(Values<float>(first.value()), Count(6, 1.0F));
    EXPECT_EQ(Values<float>(second.value()), Count(6, 2.0F));
  });
}

}  // namespace
}  // namespace multiverso::testing
