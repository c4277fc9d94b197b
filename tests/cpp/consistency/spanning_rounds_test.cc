#include "consistency/spanning_rounds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "support/jobs.h"
#include "support/pairwise.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 5;
constexpr int kRounds = 24;

constexpr ModeOptions kSyncMode{Mode::kSync, 0};

// Returns a term; the sum of several terms depends on their order.
float TermOf(int worker, int round, int64_t element) {
  const auto mixed = static_cast<uint32_t>(worker * 7919 + round * 104729 + element * 1299709);
  return static_cast<float>(mixed * 2654435761U) * (mixed % 2 == 0 ? 1e-9F : -1e-3F);
}

bool NamesRows(int worker, int round) { return (worker + round) % 3 == 0; }

// Returns a worker's delta; a worker that names rows adds to row `round` % kRows only.
std::vector<float> DeltaOf(int worker, int round) {
  std::vector<float> delta;
  const int64_t first = NamesRows(worker, round) ? round % kRows * kColumns : 0;
  const int64_t count = NamesRows(worker, round) ? kColumns : kRows * kColumns;
  for (int64_t i = first; i < first + count; ++i) delta.push_back(TermOf(worker, round, i));
  return delta;
}

void ApplyTo(std::vector<float>* parameters, int workers, int round) {
  std::vector<std::optional<float>> terms(static_cast<size_t>(workers));
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    for (int worker = 0; worker < workers; ++worker) {
      const bool has_term = !NamesRows(worker, round) || i / kColumns == round % kRows;
      auto& term = terms[static_cast<size_t>(worker)];
      term = has_term ? std::optional(TermOf(worker, round, i)) : std::nullopt;
    }
    if (const auto sum = PairwiseModel(terms)) (*parameters)[static_cast<size_t>(i)] += *sum;
  }
}

void MakeRounds(Session* session, int worker, int workers) {
  Table* const table = ValueOf(Create(session, MatrixOf(kRows, kColumns)));
  if (worker < 0) return;
  std::vector<float> expected(kRows * kColumns);
  std::vector<float> received(expected.size());
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> delta = DeltaOf(worker, round);
    ApplyTo(&expected, workers, round);
    if (NamesRows(worker, round)) {
      const int64_t row = round % kRows;
      ASSERT_TRUE(IsOk(Call(table, Request::AddRows(&row, 1, delta.data()))));
    } else {
      Add(table, delta);
    }
    if (round % 3 == 1) continue;
    if (round < kRounds / 2) {
      // Nobody has read the whole table, so the node has no copy.
      const std::vector<int64_t> rows = {6, 0, 3, 3};
      std::vector<float> some(rows.size() * kColumns);
      ASSERT_TRUE(IsOk(Call(table, Request::GetRows(rows.data(), 4, some.data()))));
      for (size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(some[i],
                  expected[static_cast<size_t>(rows[i / kColumns]) * kColumns + i % kColumns]);
      }
      continue;
    }
    ASSERT_TRUE(IsOk(Call(table, Request::Get(received.data()))));
    ASSERT_EQ(0, std::memcmp(received.data(), expected.data(), received.size() * sizeof(float)))
        << "round " << round;
  }
}

TEST(SpanningRounds, MatchTheModelDespiteLateMessages) {
  for (const int ranks_per_node : {1, 2}) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      RunSpanningJob(
          AllOf(4), ranks_per_node, /*delay=*/20, seed,
          [](Session* session, int rank) { MakeRounds(session, rank, 4); }, kSyncMode);
    }
  }
}

TEST(SpanningRounds, SumAlongATreeOfNodes) {
  for (const int nodes : {32, 35}) {
    RunSpanningJob(
        AllOf(nodes), 1, /*delay=*/5, 1,
        [nodes](Session* session, int rank) { MakeRounds(session, rank, nodes); }, kSyncMode);
  }
}

TEST(SpanningRounds, UseNodesWithoutWorkersOrWithoutServers) {
  RunSpanningJob(
      {Role::kServer, Role::kAll, Role::kServer, Role::kWorker}, 1, /*delay=*/20, 3,
      [](Session* session, int) { MakeRounds(session, session->members().worker_id(), 2); },
      kSyncMode);
}

}  // namespace
}  // namespace multiverso::testing
