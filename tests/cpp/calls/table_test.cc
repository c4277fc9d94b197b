#include "calls/table.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// Calls the body with matrix 'w' of 4 x 3 float32 in a job of one rank.
template <class Body>
void WithMatrix(const Body& body) {
  RunJob(AllOf(1), [&](Session* session, int /*rank*/) {
    TableSpec spec = MatrixOf(4, 3);
    CopyText(spec.name, "w");
    body(ValueOf(Create(session, spec)));
  });
}

TEST(Table, RejectsAnyOtherCountOfElements) {
  WithMatrix([](const Table* table) {
    float data[13] = {};
    EXPECT_TRUE(table->Check(Request::Get(data), 12).ok());
    for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{11}, int64_t{13}, INT64_MAX}) {
      EXPECT_TRUE(IsError(table->Check(Request::Get(data), count), Code::kValue,
                          StrCat("expected 12 elements, received ", count)));
    }
    EXPECT_EQ(table->Check(Request::Get(nullptr), 12).code(), Code::kValue);
  });
}

TEST(Table, RejectsCountsThatAreNotWholeRows) {
  WithMatrix([](const Table* table) {
    const int64_t ids[] = {3, 0, 3};
    float data[9] = {};
    EXPECT_TRUE(table->Check(Request::AddRows(ids, 3, data), 9).ok());
    EXPECT_TRUE(table->Check(Request::AddRows(nullptr, 0, nullptr), 0).ok());
    EXPECT_EQ(table->Check(Request::AddRows(ids, 3, data), 8).code(), Code::kValue);
    EXPECT_EQ(table->Check(Request::AddRows(ids, -1, data), -3).code(), Code::kValue);
    EXPECT_EQ(table->Check(Request::AddRows(nullptr, 3, data), 9).code(), Code::kValue);
    EXPECT_EQ(table->Check(Request::AddRows(ids, 3, nullptr), 9).code(), Code::kValue);
    // Modulo 2^64, the product of these rows and the columns equals the given count.
    EXPECT_EQ(table->Check(Request::AddRows(ids, INT64_MAX / 3 + 1, data), INT64_MIN + 1).code(),
              Code::kValue);
  });
}

TEST(Table, NamesTheFirstRowIdThatIsOutOfRange) {
  WithMatrix([](const Table* table) {
    float data[9] = {};
    for (const int64_t bad : {int64_t{-1}, int64_t{4}, int64_t{1} << 32, INT64_MAX, INT64_MIN}) {
      const int64_t ids[] = {0, bad, -7};
      EXPECT_TRUE(IsError(table->Check(Request::GetRows(ids, 3, data), 9), Code::kIndex,
                          StrCat("row_ids[1]: expected 0 to 3, received ", bad)));
    }
  });
}

TEST(Table, RejectsCallsOfServers) {
  RunJob({Role::kWorker, Role::kServer}, [](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, MatrixOf(4, 3)));
    float data[12] = {};
    const int64_t id = 0;
    const Code expected = rank == 0 ? Code::kOk : Code::kState;
    EXPECT_EQ(table->Check(Request::Get(data), 12).code(), expected);
    EXPECT_EQ(table->Check(Request::GetRows(&id, 1, data), 3).code(), expected);
  });
}

TEST(Table, OfKeysHasNoMemoryToShow) {
  const auto run = [](Session* session, int /*rank*/) {
    TableSpec spec = MatrixOf(1, 2);
    spec.kind = static_cast<int32_t>(TableKind::kHash);
    spec.keys.capacity = 100;
    spec.initializer.kind = MV_INITIALIZER_CONSTANT;
    Table* const table = ValueOf(Create(session, spec));
    const Refusal* const refusal = FindRefusal({Feature::kKeys, Feature::kLiveView});
    EXPECT_TRUE(IsError(table->Memory(), refusal->code, refusal->sentence));
  };
  RunJob(AllOf(1), run);
}

TEST(TableShard, NeedsLittleMoreMemoryThanTheTable) {
  RunJob(AllOf(1), [](Session* session, int /*rank*/) {
    const TableSpec spec = MatrixOf(int64_t{1} << 20, 64, DType::kFloat64);
    const TableBytes bytes =
        ValueOf(TableShard::BytesOf(spec, 0, session->members(), ModeOptions()));
    EXPECT_GE(bytes.needed, spec.bytes());
    EXPECT_LE(bytes.needed, spec.bytes() + spec.bytes() / 512);
    EXPECT_LE(bytes.spare, spec.bytes() / 512);
  });
}

}  // namespace
}  // namespace multiverso::testing
