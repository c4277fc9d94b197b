// Tables on several nodes match a plain model although messages are delayed and overtake others.
#include "remote/distributed_call.h"

#include <gtest/gtest.h>

#include <random>

#include "support/jobs.h"

// Tells LeakSanitizer that requests and replies in flight to a lost rank are leaked on purpose,
// since a transport may still read them. The function is visible so that the sanitizer's library
// finds it.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:multiverso::ShardService::Begin\nleak:multiverso::ServedRequest::Abandon\n"
         "leak:multiverso::ServerPipeline::Step\n";
}

namespace multiverso::testing {
namespace {

struct Shape {
  int64_t rows;
  int64_t columns;
};

// One add of a rank: of rows or of the whole table.
struct RandomAdd {
  bool names_rows = false;
  std::vector<int64_t> ids;
  std::vector<int64_t> delta;
};

RandomAdd MakeRandomAdd(std::mt19937_64* random, const Shape& shape) {
  RandomAdd add;
  add.names_rows = (*random)() % 2 == 0;
  const auto rows = static_cast<uint64_t>(shape.rows);
  const size_t count = add.names_rows ? (*random)() % 40 : rows;
  for (size_t i = 0; add.names_rows && i < count; ++i) {
    add.ids.push_back(static_cast<int64_t>((*random)() % rows));
  }
  add.delta.resize(count * static_cast<size_t>(shape.columns));
  for (int64_t& value : add.delta) value = static_cast<int64_t>((*random)() % 1000);
  return add;
}

void ApplyTo(std::vector<int64_t>* model, const RandomAdd& add, const Shape& shape) {
  const auto columns = static_cast<size_t>(shape.columns);
  for (size_t i = 0; i < add.delta.size(); ++i) {
    const size_t row = add.names_rows ? static_cast<size_t>(add.ids[i / columns]) : i / columns;
    (*model)[row * columns + i % columns] += add.delta[i];
  }
}

void RunRandomProgram(int ranks, int ranks_per_node, const Shape& shape, uint64_t seed) {
  constexpr int kAdds = 12;
  SCOPED_TRACE(StrCat(ranks, " ranks, ", ranks_per_node, " per node, ", shape.rows, " x ",
                      shape.columns, ", seed ", seed));
  const auto count = static_cast<size_t>(shape.rows * shape.columns);
  std::vector<int64_t> initial(count);
  for (size_t i = 0; i < count; ++i) initial[i] = static_cast<int64_t>(i % 97);
  std::vector<int64_t> expected = initial;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    for (int i = 0; i < kAdds; ++i) ApplyTo(&expected, MakeRandomAdd(&random, shape), shape);
  }
  RunSpanningJob(AllOf(ranks), ranks_per_node, 6, seed, [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, MatrixOf(shape.rows, shape.columns, DType::kInt64),
                                        rank == 0 ? initial.data() : nullptr));
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    std::vector<int64_t> mine = initial;
    std::vector<int64_t> out(count);
    for (int i = 0; i < kAdds; ++i) {
      const RandomAdd add = MakeRandomAdd(&random, shape);
      ApplyTo(&mine, add, shape);
      const void* const delta = add.delta.data();
      ASSERT_TRUE(IsOk(add.names_rows ? Call(table, AddRowsOf(add.ids, add.delta))
                       : i % 2 == 0   ? Call(table, Request::Add(delta))
                                      : Call(table, Request::AddGet(delta, out.data()))));
      // A rank reads all of its own adds; the adds of other ranks only increase the elements.
      ASSERT_TRUE(IsOk(Call(table, Request::Get(out.data()))));
      for (size_t k = 0; k < count; ++k) ASSERT_GE(out[k], mine[k]) << "element " << k;
    }
    ASSERT_TRUE(Barrier(session).ok());
    ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
    EXPECT_EQ(out, expected);
    const std::vector<int64_t> ids = {shape.rows - 1, 0, shape.rows / 2, 0};
    std::vector<int64_t> rows(ids.size() * static_cast<size_t>(shape.columns));
    ASSERT_TRUE(Call(table, GetRowsOf(ids, &rows)).ok());
    for (size_t k = 0; k < rows.size(); ++k) {
      const auto columns = static_cast<size_t>(shape.columns);
      EXPECT_EQ(rows[k], expected[static_cast<size_t>(ids[k / columns]) * columns + k % columns]);
    }
  });
}

TEST(DistributedCall, CutsRowsAndTablesThatAreLongerThanAMessage) {
  // Two servers have three rows, each of which needs 1.5 messages.
  RunRandomProgram(2, 1, Shape{3, kChunkBytes / 8 * 3 / 2}, 5);
  // The table needs more messages than may be in flight at a time.
  RunRandomProgram(2, 1, Shape{kChunkBytes / 8 * 24, 1}, 6);
}

TEST(DistributedCall, ServersAloneOnTheirNodeHoldAllRows) {
  const Roles roles = {Role::kWorker, Role::kWorker, Role::kServer};
  RunSpanningJob(roles, 2, /*delay=*/3, /*seed=*/9, [&](Session* session, int rank) {
    const std::vector<float> initial = {1, 2, 3, 4, 5};
    Table* const table = ValueOf(Create(session, ArrayOf(5), initial.data()));
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

TEST(DistributedCall, NamesTheRowsOfAServerThatLeft) {
  const VirtualNodes nodes(1);
  const auto hub = std::make_shared<ThreadHub>(2);
  OnThreads(2, [&](int rank) {
    auto session = ValueOf(OpenSession(hub, rank, OptionsOf(Role::kAll)));
    Table* const made = ValueOf(Create(session.get(), ArrayOf(10'000)));
    if (rank == 1) {
      session->Leave("had enough");
      return;
    }
    std::vector<float> out(10'000);
    const Status status = Call(made, Request::Get(out.data()));
    // The get succeeds if the server answered before it left.
    if (!status.ok()) {
      EXPECT_TRUE(IsError(status, Code::kPeerLost, "had enough", "rows 5000 to 9999"));
    }
    session->Leave("done");
  });
}

}  // namespace
}  // namespace multiverso::testing
