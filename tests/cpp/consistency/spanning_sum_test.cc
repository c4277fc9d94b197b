#include "consistency/spanning_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "support/jobs.h"
#include "support/pairwise.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kRows = 7;
// A table of so many columns is one part, with a single owner; a wide one has a part per server.
constexpr int64_t kNarrow = 5;
constexpr int64_t kWide = 600;
static_assert(SumPlan::PrefersOnePart(4, kRows* kNarrow * 4));
static_assert(!SumPlan::PrefersOnePart(4, kRows* kWide * 4));
constexpr int kTotalRounds = 24;

constexpr ModeOptions kSyncMode{Mode::kSync, 0};

// Returns a term; the sum of several terms depends on their order.
float TermOf(int worker, int round, int64_t element) {
  const auto mixed = static_cast<uint32_t>(worker * 7919 + round * 104729 + element * 1299709);
  return static_cast<float>(mixed * 2654435761U) * (mixed % 2 == 0 ? 1e-9F : -1e-3F);
}

bool NamesRows(int worker, int round) { return (worker + round) % 3 == 0; }

// Returns a worker's delta; a worker that names rows adds to row `round` % kRows only.
std::vector<float> DeltaOf(int worker, int round, int64_t columns) {
  std::vector<float> delta;
  const int64_t first = NamesRows(worker, round) ? round % kRows * columns : 0;
  const int64_t count = NamesRows(worker, round) ? columns : kRows * columns;
  for (int64_t i = first; i < first + count; ++i) delta.push_back(TermOf(worker, round, i));
  return delta;
}

void ApplyTo(std::vector<float>* parameters, int64_t columns, int workers, int round) {
  std::vector<std::optional<float>> terms(static_cast<size_t>(workers));
  for (int64_t i = 0; i < kRows * columns; ++i) {
    for (int worker = 0; worker < workers; ++worker) {
      const bool has_term = !NamesRows(worker, round) || i / columns == round % kRows;
      auto& term = terms[static_cast<size_t>(worker)];
      term = has_term ? std::optional(TermOf(worker, round, i)) : std::nullopt;
    }
    if (const auto sum = PairwiseModel(terms)) (*parameters)[static_cast<size_t>(i)] += *sum;
  }
}

void MakeRounds(Session* session, int worker, int workers, int64_t columns) {
  Table* const table = ValueOf(Create(session, MatrixOf(kRows, columns)));
  if (worker < 0) return;
  std::vector<float> expected(static_cast<size_t>(kRows * columns));
  std::vector<float> received(expected.size());
  for (int round = 0; round < kTotalRounds; ++round) {
    const std::vector<float> delta = DeltaOf(worker, round, columns);
    ApplyTo(&expected, columns, workers, round);
    if (NamesRows(worker, round)) {
      const int64_t row = round % kRows;
      ASSERT_TRUE(IsOk(Call(table, Request::AddRows(&row, 1, delta.data()))));
    } else {
      Add(table, delta);
    }
    if (round % 3 == 1) continue;
    if (round < kTotalRounds / 2) {
      // Nobody has read the whole table, so the node has no copy.
      const std::vector<int64_t> rows = {6, 0, 3, 3};
      std::vector<float> some(rows.size() * static_cast<size_t>(columns));
      ASSERT_TRUE(IsOk(Call(table, Request::GetRows(rows.data(), 4, some.data()))));
      for (size_t i = 0; i < some.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t element = rows[static_cast<size_t>(at / columns)] * columns + at % columns;
        ASSERT_EQ(some[i], expected[static_cast<size_t>(element)]);
      }
      continue;
    }
    ASSERT_TRUE(IsOk(Call(table, Request::Get(received.data()))));
    ASSERT_EQ(0, std::memcmp(received.data(), expected.data(), received.size() * sizeof(float)))
        << "round " << round;
  }
}

TEST(SpanningSum, SumAlongATreeOfNodes) {
  for (const int nodes : {32, 35}) {
    RunSpanningJob(
        AllOf(nodes), 1, /*delay=*/5, 1,
        [nodes](Session* session, int rank) { MakeRounds(session, rank, nodes, kNarrow); },
        kSyncMode);
  }
}

TEST(SpanningSum, SumTheDeltasOfANodeWhileTheyAreStaged) {
  constexpr int64_t kInParts = 4700;
  for (const int per_node : {3, 4}) {
    RunSpanningJob(
        AllOf(7), per_node, /*delay=*/5, 2,
        [](Session* session, int rank) { MakeRounds(session, rank, 7, kInParts); }, kSyncMode);
  }
}

TEST(SpanningSum, UseNodesWithoutWorkersOrWithoutServers) {
  for (const int64_t columns : {kNarrow, kWide}) {
    RunSpanningJob(
        {Role::kServer, Role::kAll, Role::kServer, Role::kWorker}, 1, /*delay=*/20, 3,
        [columns](Session* session, int) {
          MakeRounds(session, session->members().worker_id(), 2, columns);
        },
        kSyncMode);
  }
}

}  // namespace
}  // namespace multiverso::testing
