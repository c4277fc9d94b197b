// Sums over nodes whose messages are late; tests/mpi/programs/aggregation.py has all types and
// operations.
#include "sum/aggregation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "support/jobs.h"
#include "support/memory_shard.h"
#include "support/pairwise.h"

namespace multiverso::testing {
namespace {

template <class T>
Status Aggregate(Session* session, std::vector<T>* data, ReduceOp op = ReduceOp::kSum) {
  return session->Aggregate({op, DTypeOf<T>(), data->data(), static_cast<int64_t>(data->size())});
}

// Large arrays repeat so many elements, which no chunk is a multiple of.
constexpr size_t kPeriod = 1021;

// Returns a worker's array. The sum over the workers depends on their order.
std::vector<float> Part(int worker, size_t count) {
  std::mt19937 random(static_cast<unsigned>(worker) * 1000003 + 1);
  std::vector<float> part(count);
  for (size_t i = 0; i < count; ++i) {
    part[i] = i < kPeriod ? static_cast<float>(random()) * (i % 2 == 0 ? 1e-9F : -1e-3F)
                          : part[i - kPeriod];
  }
  return part;
}

// Returns the sum of the arrays of all workers. A test computes it before its ranks begin.
std::vector<float> SumOfParts(int workers) {
  std::vector<std::vector<float>> parts;
  for (int worker = 0; worker < workers; ++worker) parts.push_back(Part(worker, kPeriod));
  std::vector<float> sum;
  for (size_t i = 0; i < kPeriod; ++i) {
    std::vector<std::optional<float>> terms;
    for (const auto& part : parts) terms.emplace_back(part[i]);
    sum.push_back(*PairwiseModel(terms));
  }
  return sum;
}

void CheckSizes(Session* session, const std::vector<float>& sum,
                const std::vector<size_t>& counts) {
  for (const size_t count : counts) {
    std::vector<float> mine = Part(session->members().worker_id(), count);
    ASSERT_TRUE(IsOk(Aggregate(session, &mine)));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(mine[i], sum[i % kPeriod]) << i << " of " << count << " elements";
    }
  }
}

// Sizes around the largest arrays that travel with the first collective, and around a chunk.
const std::vector<size_t> kSmallCounts{1, 17, 2048, 2049, 4096, 4097, 3};
constexpr size_t kChunk = static_cast<size_t>(NodeMemory::kScratchAreaBytes) / sizeof(float);
const std::vector<size_t> kLargeCounts{10000, kChunk - 1, kChunk, kChunk + 1, 3 * kChunk + 5, 3};

TEST(Aggregation, SumsOverNodesDespiteLateMessages) {
  for (const auto& [ranks, ranks_per_node] : {std::pair(2, 1), {4, 2}, {5, 2}, {8, 1}}) {
    const std::vector<float> sum = SumOfParts(ranks);
    RunSpanningJob(AllOf(ranks), ranks_per_node, /*delay=*/5, /*seed=*/1,
                   [&](Session* session, int /*rank*/) {
                     CheckSizes(session, sum, kSmallCounts);
                     CheckSizes(session, sum, kLargeCounts);
                   });
  }
}

TEST(Aggregation, SumsAlongATreeOfNodes) {
  constexpr int kNodes = 33;
  const std::vector<float> sum = SumOfParts(kNodes);
  RunSpanningJob(AllOf(kNodes), 1, /*delay=*/2, /*seed=*/1, [&](Session* session, int /*rank*/) {
    CheckSizes(session, sum, {1, 4000, 4100});
  });
}

TEST(Aggregation, OverNodesIncludesOnlyWorkers) {
  constexpr Role kServer = Role::kServer;
  const Roles jobs[] = {{kServer, kServer, kServer, Role::kWorker, Role::kAll, Role::kWorker},
                        {Role::kWorker, Role::kWorker, kServer, kServer},
                        {Role::kWorker, kServer, kServer, kServer}};
  for (const Roles& roles : jobs) {
    const auto servers = std::count(roles.begin(), roles.end(), kServer);
    const std::vector<float> sum =
        SumOfParts(static_cast<int>(roles.size() - static_cast<size_t>(servers)));
    RunSpanningJob(roles, 2, /*delay=*/2, /*seed=*/3, [&](Session* session, int /*rank*/) {
      if (session->members().is_worker()) CheckSizes(session, sum, kSmallCounts);
    });
  }
}

TEST(Aggregation, OfDifferentSizesOverNodesIsAMismatchForAllAndChangesNothing) {
  for (int other = 0; other < 5; ++other) {
    for (const size_t count : {0, 1, 11, 4096, 4097, 200'000}) {
      RunSpanningJob(AllOf(5), 2, /*delay=*/2, /*seed=*/4, [&](Session* session, int rank) {
        std::vector<float> values(rank == other ? count : 10, 1);
        const std::vector<float> before = values;
        EXPECT_EQ(Aggregate(session, &values).code(), Code::kMismatch);
        EXPECT_EQ(values, before);
        std::vector<int32_t> integers(10, 1);
        const ReduceOp op = rank == other ? ReduceOp::kMax : ReduceOp::kSum;
        EXPECT_EQ(Aggregate(session, &integers, op).code(), Code::kMismatch);
        EXPECT_EQ((rank == other ? session->Barrier() : Aggregate(session, &integers)).code(),
                  Code::kMismatch);
        EXPECT_EQ(integers, std::vector<int32_t>(10, 1));
        EXPECT_TRUE(IsOk(Aggregate(session, &integers)));
        EXPECT_EQ(integers, std::vector<int32_t>(10, 5));
      });
    }
  }
}

TEST(Aggregation, DuringABarrierOfAnotherRankIsAMismatchForAllAlsoWithAServer) {
  for (const Role first : {Role::kAll, Role::kServer}) {
    RunJobWithoutShutdown(
        {first, Role::kAll, Role::kAll}, kPatience, [](Session* session, int rank) {
          std::vector<float> values(10);
          EXPECT_TRUE(IsError(rank == 1 ? Aggregate(session, &values) : Barrier(session),
                              Code::kMismatch, "rank 1 called aggregate", "called barrier"));
        });
  }
}

}  // namespace
}  // namespace multiverso::testing
