// Tables of several nodes against a plain model, with messages that are late and overtake others.
#include "table/distributed_call.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "support/jobs.h"

// A service that ends while somebody who has gone should receive its answer lets go of the buffer
// without freeing it, since a transport may still read it; so does a rank that leaves of its news.
// Visible: the sanitizer looks for it from a library of its own.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:multiverso::ShardService::Begin\nleak:multiverso::ShardService::Abandon\n"
         "leak:multiverso::Intercom::TellGone\nleak:multiverso::Messenger::Drain\n";
}

namespace multiverso {
namespace {

using testing::AllOf;
using testing::Barrier;
using testing::Call;
using testing::Create;
using testing::MatrixOf;
using testing::RunSpanningJob;

struct Shape {
  int64_t rows;
  int64_t columns;
};

// What rank `rank` adds in one step of its program: everything follows from the seed.
struct Step {
  bool of_rows = false;
  std::vector<int64_t> ids;
  std::vector<int64_t> delta;
};

Step StepOf(std::mt19937_64* random, const Shape& shape) {
  Step step;
  step.of_rows = (*random)() % 2 == 0;
  const auto rows = static_cast<uint64_t>(shape.rows);
  const size_t count = step.of_rows ? (*random)() % 40 : rows;
  for (size_t i = 0; step.of_rows && i < count; ++i) {
    step.ids.push_back(static_cast<int64_t>((*random)() % rows));
  }
  step.delta.resize(count * static_cast<size_t>(shape.columns));
  for (int64_t& value : step.delta) value = static_cast<int64_t>((*random)() % 1000);
  return step;
}

void AddTo(std::vector<int64_t>* model, const Step& step, const Shape& shape) {
  const auto columns = static_cast<size_t>(shape.columns);
  for (size_t i = 0; i < step.delta.size(); ++i) {
    const size_t row = step.of_rows ? static_cast<size_t>(step.ids[i / columns]) : i / columns;
    (*model)[row * columns + i % columns] += step.delta[i];
  }
}

void RunRandomProgram(int ranks, int ranks_per_node, const Shape& shape, uint64_t seed) {
  constexpr int kSteps = 12;
  SCOPED_TRACE(StrCat(ranks, " ranks, ", ranks_per_node, " per node, ", shape.rows, " x ",
                      shape.columns, ", seed ", seed));
  const auto count = static_cast<size_t>(shape.rows * shape.columns);
  std::vector<int64_t> initial(count);
  for (size_t i = 0; i < count; ++i) initial[i] = static_cast<int64_t>(i % 97);
  std::vector<int64_t> expected = initial;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    for (int i = 0; i < kSteps; ++i) AddTo(&expected, StepOf(&random, shape), shape);
  }
  RunSpanningJob(AllOf(ranks), ranks_per_node, 6, seed, [&](Session* session, int rank) {
    auto made = Create(session, MatrixOf(shape.rows, shape.columns, DType::kInt64),
                       rank == 0 ? initial.data() : nullptr);
    ASSERT_TRUE(made.ok()) << made.status().text();
    Table* const table = made.value();
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    std::vector<int64_t> mine = initial;
    std::vector<int64_t> out(count);
    for (int i = 0; i < kSteps; ++i) {
      const Step step = StepOf(&random, shape);
      AddTo(&mine, step, shape);
      const void* const delta = step.delta.data();
      const Status status =
          step.of_rows ? Call(table, Request::AddRows(step.ids.data(),
                                                      static_cast<int64_t>(step.ids.size()), delta))
          : i % 2 == 0 ? Call(table, Request::Add(delta))
                       : Call(table, Request::AddGet(delta, out.data()));
      ASSERT_TRUE(status.ok()) << status.text();
      // Read your own writes: others only add, so nothing is less than what this rank alone did.
      const Status got = Call(table, Request::Get(out.data()));
      ASSERT_TRUE(got.ok()) << got.text();
      for (size_t k = 0; k < count; ++k) ASSERT_GE(out[k], mine[k]) << "element " << k;
    }
    ASSERT_TRUE(Barrier(session).ok());
    ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
    EXPECT_EQ(out, expected);
    const std::vector<int64_t> ids = {shape.rows - 1, 0, shape.rows / 2, 0};
    std::vector<int64_t> rows(ids.size() * static_cast<size_t>(shape.columns));
    ASSERT_TRUE(
        Call(table, Request::GetRows(ids.data(), static_cast<int64_t>(ids.size()), rows.data()))
            .ok());
    for (size_t k = 0; k < rows.size(); ++k) {
      const auto columns = static_cast<size_t>(shape.columns);
      EXPECT_EQ(rows[k], expected[static_cast<size_t>(ids[k / columns]) * columns + k % columns]);
    }
  });
}

TEST(DistributedCall, RandomProgramsEndAtTheExactSum) {
  uint64_t seed = 20261121;
  for (const int ranks : {2, 3, 4}) {
    for (const int ranks_per_node : {1, 2}) {
      if (ranks_per_node >= ranks) continue;
      for (const Shape shape : {Shape{1, 1}, Shape{3, 2}, Shape{257, 5}}) {
        RunRandomProgram(ranks, ranks_per_node, shape, ++seed);
      }
    }
  }
}

TEST(DistributedCall, CutsRowsAndTablesThatAreLongerThanAMessage) {
  // 1.5 messages a row, and three rows for two servers.
  RunRandomProgram(2, 1, Shape{3, kChunkBytes / 8 * 3 / 2}, 5);
  // More messages than are under way at a time.
  RunRandomProgram(2, 1, Shape{kChunkBytes / 8 * 24, 1}, 6);
}

TEST(DistributedCall, ServersAloneOnTheirNodeHoldAllRows) {
  const testing::Roles roles = {Role::kWorker, Role::kWorker, Role::kServer};
  RunSpanningJob(roles, 2, 3, 9, [&](Session* session, int rank) {
    const std::vector<float> initial = {1, 2, 3, 4, 5};
    auto made = Create(session, testing::ArrayOf(5), initial.data());
    ASSERT_TRUE(made.ok()) << made.status().text();
    Table* const table = made.value();
    EXPECT_EQ(table->partition().node_rows().count(), rank == 2 ? 5 : 0);
    std::vector<float> out(5);
    if (rank < 2) {
      const std::vector<float> delta(5, 10);
      ASSERT_TRUE(Call(table, Request::Add(delta.data())).ok());
    }
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 2) return;
    ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
    EXPECT_EQ(out, (std::vector<float>{21, 22, 23, 24, 25}));
  });
}

TEST(DistributedCall, SeveralThreadsOfARankCallAtOnce) {
  RunSpanningJob(AllOf(2), 1, 4, 11, [&](Session* session, int /*rank*/) {
    auto made = Create(session, testing::ArrayOf(1000, DType::kInt64));
    ASSERT_TRUE(made.ok());
    Table* const table = made.value();
    const std::vector<int64_t> ones(1000, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        std::vector<int64_t> out(1000);
        for (int k = 0; k < 20; ++k) {
          EXPECT_TRUE(Call(table, Request::AddGet(ones.data(), out.data())).ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(Barrier(session).ok());
    std::vector<int64_t> out(1000);
    ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
    EXPECT_EQ(out, std::vector<int64_t>(1000, 2 * 3 * 20));
  });
}

TEST(DistributedCall, OptionsReachEveryNode) {
  RunSpanningJob(AllOf(3), 1, 4, 12, [&](Session* session, int rank) {
    TableSpec spec = testing::ArrayOf(6);
    spec.updater = static_cast<int32_t>(UpdaterKind::kSgd);
    spec.hyper[kLearningRate] = 0.5;
    auto made = Create(session, spec);
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 1) {
      ASSERT_TRUE(Call(made.value(), Request::SetHyper(kLearningRate, 4)).ok());
    }
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(made.value()->GetHyper(kLearningRate), 4);
  });
}

TEST(DistributedCall, NamesTheRowsOfAServerThatLeft) {
  const testing::VirtualNodes nodes(1);
  const auto hub = std::make_shared<ThreadHub>(2);
  testing::OnThreads(2, [&](int rank) {
    auto session = testing::OpenSession(hub, rank, testing::OptionsOf(Role::kAll));
    ASSERT_TRUE(session.ok()) << session.status().text();
    auto made = Create(session.value().get(), testing::ArrayOf(10));
    ASSERT_TRUE(made.ok());
    if (rank == 1) {
      session.value()->Leave("had enough");
      return;
    }
    std::vector<float> out(10);
    const Status status = Call(made.value(), Request::Get(out.data()));
    // It may have answered before it left.
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kPeerLost) << status.text();
      EXPECT_TRUE(testing::Contains(status, "had enough")) << status.text();
      EXPECT_TRUE(testing::Contains(status, "rows 5 to 9")) << status.text();
    }
    session.value()->Leave("done");
  });
}

}  // namespace
}  // namespace multiverso
