#include "sum/aggregation.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "support/jobs.h"
#include "support/memory_shard.h"
#include "support/pairwise.h"

namespace multiverso::testing {
namespace {

template <class T>
Status Aggregate(Session* session, std::vector<T>* data, ReduceOp op = ReduceOp::kSum) {
  return session->Aggregate({op, DTypeOf<T>(), data->data(), static_cast<int64_t>(data->size())});
}

// Returns a worker's array. The sum over the workers depends on their order for floating types.
template <class T>
std::vector<T> Part(int worker, size_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(worker) * 1000003 + count);
  std::vector<T> part(count);
  for (T& value : part) {
    const auto bits = random();
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(bits >> (sizeof(T) == 4 ? 36 : 8));  // no sum overflows
    } else {
      value = static_cast<T>(static_cast<double>(bits) * (bits % 2 == 0 ? 1e-9 : -1e-3));
    }
  }
  return part;
}

template <class T>
std::vector<T> ComputeSumOfParts(int workers, size_t count) {
  std::vector<std::vector<T>> parts;
  for (int worker = 0; worker < workers; ++worker) parts.push_back(Part<T>(worker, count));
  std::vector<T> sum(count);
  std::vector<std::optional<T>> terms(parts.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t worker = 0; worker < parts.size(); ++worker) terms[worker] = parts[worker][i];
    sum[i] = *PairwiseModel(terms);
  }
  return sum;
}

// Computes each sum once, though all ranks ask for it.
template <class T>
const std::vector<T>& SumOfParts(int workers, size_t count) {
  static std::mutex mutex;
  static std::map<std::pair<int, size_t>, std::vector<T>> sums;
  const std::lock_guard<std::mutex> guard(mutex);
  std::vector<T>& sum = sums[{workers, count}];
  if (sum.empty()) sum = ComputeSumOfParts<T>(workers, count);
  return sum;
}

template <class T>
void CheckSizes(Session* session, int rank, int ranks, const std::vector<size_t>& counts) {
  for (const size_t count : counts) {
    for (int call = 0; call < 2; ++call) {
      std::vector<T> mine = Part<T>(rank, count);
      ASSERT_TRUE(IsOk(Aggregate(session, &mine)));
      ASSERT_EQ(mine, SumOfParts<T>(ranks, count)) << count << " elements";
    }
  }
}

template <class T>
void CheckSizes(Session* session, int rank, int ranks) {
  const size_t chunk = static_cast<size_t>(NodeMemory::kScratchAreaBytes) / sizeof(T);
  CheckSizes<T>(session, rank, ranks,
                {1, 2, 17, 2000, 4097, 10000, chunk - 1, chunk, chunk + 1, 3 * chunk + 5, 3});
}

// Sizes around the largest arrays that travel with the first collective.
const std::vector<size_t> kSmallCounts{1, 17, 2048, 2049, 4096, 4097, 3};

template <class T>
void CheckSizes(int ranks) {
  RunJob(AllOf(ranks), [&](Session* session, int rank) { CheckSizes<T>(session, rank, ranks); });
}

TEST(Aggregation, SumsAnySizePairwise) {
  for (const int ranks : {1, 2, 3, 4}) CheckSizes<float>(ranks);
}

TEST(Aggregation, SumsOverNodesDespiteLateMessages) {
  for (const auto& [ranks, ranks_per_node] : {std::pair(2, 1), {4, 2}, {5, 2}, {8, 1}}) {
    RunSpanningJob(
        AllOf(ranks), ranks_per_node, /*delay=*/5, /*seed=*/1,
        [ranks = ranks](Session* session, int rank) { CheckSizes<float>(session, rank, ranks); });
  }
}

TEST(Aggregation, SumsSmallArraysOfAnyTypeOverNodes) {
  RunSpanningJob(AllOf(5), 2, /*delay=*/2, /*seed=*/2, [](Session* session, int rank) {
    CheckSizes<float>(session, rank, 5, kSmallCounts);
    CheckSizes<double>(session, rank, 5, kSmallCounts);
    CheckSizes<int32_t>(session, rank, 5, kSmallCounts);
    CheckSizes<int64_t>(session, rank, 5, kSmallCounts);
  });
}

TEST(Aggregation, OverNodesIncludesOnlyWorkers) {
  const Roles roles{Role::kServer, Role::kServer, Role::kServer, Role::kWorker,
                    Role::kAll,    Role::kWorker, Role::kAll};
  RunSpanningJob(roles, 2, /*delay=*/2, /*seed=*/3, [](Session* session, int rank) {
    if (rank >= 3) CheckSizes<float>(session, rank - 3, 4, kSmallCounts);
  });
}

TEST(Aggregation, SumsOverWorkersThatAreAllOnOneNodeOfSeveral) {
  for (const Role second : {Role::kWorker, Role::kServer}) {
    const int workers = second == Role::kWorker ? 2 : 1;
    const Roles roles{Role::kWorker, second, Role::kServer, Role::kServer};
    RunSpanningJob(roles, 2, /*delay=*/2, /*seed=*/3, [&](Session* session, int rank) {
      if (rank < workers) CheckSizes<float>(session, rank, workers, kSmallCounts);
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

TEST(Aggregation, SumsAlongATreeOfNodes) {
  constexpr int kNodes = 33;
  RunSpanningJob(AllOf(kNodes), 1, /*delay=*/2, /*seed=*/1, [](Session* session, int rank) {
    for (const size_t count : {size_t{1}, size_t{4000}, size_t{4100}}) {
      std::vector<float> mine = Part<float>(rank, count);
      ASSERT_TRUE(IsOk(Aggregate(session, &mine)));
      ASSERT_EQ(mine, SumOfParts<float>(kNodes, count));
    }
  });
}

TEST(Aggregation, SumsAnyType) {
  CheckSizes<double>(3);
  CheckSizes<int32_t>(3);
  CheckSizes<int64_t>(3);
}

TEST(Aggregation, OfNoElementsIsAllowed) {
  RunJob(AllOf(2), [](Session* session, int /*rank*/) {
    std::vector<float> nothing;
    EXPECT_TRUE(Aggregate(session, &nothing).ok());
  });
}

TEST(Aggregation, IncludesOnlyWorkers) {
  RunJob({Role::kServer, Role::kWorker, Role::kAll}, [](Session* session, int rank) {
    if (rank == 0) return;
    std::vector<float> ones(20000, 1);
    EXPECT_TRUE(Aggregate(session, &ones).ok());
    EXPECT_EQ(ones, std::vector<float>(20000, 2));
  });
}

TEST(Aggregation, OfDifferentSizesOrTypesIsAMismatchForAllAndTheSessionContinues) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    std::vector<float> values(rank == 2 ? 20000 : 10, 1);
    EXPECT_TRUE(IsError(Aggregate(session, &values), Code::kMismatch,
                        "rank 0 called aggregate of 10 float32, rank 2 of 20000 float32"));
    std::vector<int64_t> integers(10, 1);
    std::vector<double> doubles(10, 1);
    EXPECT_TRUE(IsError(rank == 1 ? Aggregate(session, &integers) : Aggregate(session, &doubles),
                        Code::kMismatch,
                        "rank 0 called aggregate of 10 float64, rank 1 of 10 int64"));
    EXPECT_TRUE(IsError(Aggregate(session, &integers, rank == 2 ? ReduceOp::kMax : ReduceOp::kSum),
                        Code::kMismatch,
                        "rank 0 called aggregate of 10 int64, rank 2 of 10 int64, op max"));
    EXPECT_TRUE(Aggregate(session, &integers).ok());
    EXPECT_EQ(integers, std::vector<int64_t>(10, 3));
  });
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

TEST(Aggregation, NamesTheMissingWorkerAtTheDeadline) {
  const auto sessions = OpenAll(2, std::chrono::seconds(1));
  std::vector<float> values(10);
  EXPECT_TRUE(
      IsError(Aggregate(sessions[0].get(), &values), Code::kTimeout, "in aggregate for rank 1"));
}

TEST(Aggregation, CancelledByOneWorkerEndsTheSessionForAll) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    std::vector<float> values(10);
    if (rank == 0) {
      Interrupt interrupt = InterruptAtOnce();
      EXPECT_EQ(session->Aggregate({ReduceOp::kSum, DType::kFloat32, values.data(), 10}, &interrupt)
                    .code(),
                Code::kAborted);
      return;
    }
    // If this call came earlier, it could complete the sum before rank 0 aborts the session.
    AwaitAbort(session);
    EXPECT_TRUE(IsError(Aggregate(session, &values), Code::kAborted, "KeyboardInterrupt"));
  });
}

}  // namespace
}  // namespace multiverso::testing
