#include "consistency/aggregation.h"

#include <gtest/gtest.h>

#include <random>

#include "support/jobs.h"
#include "support/memory_shard.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::kPatience;
using testing::RunJob;
using testing::RunJobWithoutShutdown;

template <class T>
Status Aggregate(Session* session, std::vector<T>* data) {
  return session->Aggregate(testing::DTypeOf<T>(), data->data(),
                            static_cast<int64_t>(data->size()));
}

// What a worker brings: numbers whose sum depends on the order.
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
std::vector<T> SumOfParts(int workers, size_t count) {
  std::vector<T> sum = Part<T>(0, count);
  for (int worker = 1; worker < workers; ++worker) {
    const std::vector<T> part = Part<T>(worker, count);
    for (size_t i = 0; i < count; ++i) sum[i] += part[i];
  }
  return sum;
}

template <class T>
void CheckSizes(int ranks) {
  const size_t area = static_cast<size_t>(NodeGroup::kScratchAreaBytes) / sizeof(T);
  RunJob(AllOf(ranks), [&](Session* session, int rank) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{17}, size_t{2000}, size_t{4097},
                               size_t{10000}, area - 1, area, area + 1, 3 * area + 5, size_t{3}}) {
      for (const char* const chunks : {"from one end", "from the other"}) {
        std::vector<T> mine = Part<T>(rank, count);
        const Status status = Aggregate(session, &mine);
        ASSERT_TRUE(status.ok()) << status.text();
        ASSERT_EQ(mine, SumOfParts<T>(ranks, count)) << count << " elements " << chunks;
      }
    }
  });
}

TEST(Aggregation, SumsAnySizeInWorkerOrder) {
  for (const int ranks : {1, 2, 3, 4}) CheckSizes<float>(ranks);
}

TEST(Aggregation, SumsAnyType) {
  CheckSizes<double>(3);
  CheckSizes<int32_t>(3);
  CheckSizes<int64_t>(3);
}

TEST(Aggregation, OfNothingIsAMeetingAllTheSame) {
  RunJob(AllOf(2), [](Session* session, int /*rank*/) {
    std::vector<float> nothing;
    EXPECT_TRUE(Aggregate(session, &nothing).ok());
  });
}

TEST(Aggregation, IsOfWorkersAlone) {
  RunJob({Role::kServer, Role::kWorker, Role::kAll}, [](Session* session, int rank) {
    if (rank == 0) return;
    std::vector<float> ones(20000, 1);
    EXPECT_TRUE(Aggregate(session, &ones).ok());
    EXPECT_EQ(ones, std::vector<float>(20000, 2));
  });
}

TEST(Aggregation, DoesNotMixWithWhatASlowWorkerStillReads) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    for (int round = 1; round <= 300; ++round) {
      // Small and large ones, which use the areas differently.
      std::vector<int32_t> values(round % 3 == 0 ? 5000 : 10, round + rank);
      ASSERT_TRUE(Aggregate(session, &values).ok());
      ASSERT_EQ(values, std::vector<int32_t>(values.size(), 3 * round + 3));
    }
  });
}

TEST(Aggregation, OfDifferentSizesOrTypesIsAMismatchForAllAfterWhichTheyGoOn) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    std::vector<float> values(rank == 2 ? 20000 : 10, 1);
    const Status sizes = Aggregate(session, &values);
    EXPECT_EQ(sizes.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(sizes, "rank 0 called aggregate of 10 float32, rank 2 of 20000 float32"))
        << sizes.text();
    std::vector<int64_t> integers(10, 1);
    std::vector<double> doubles(10, 1);
    const Status types = rank == 1 ? Aggregate(session, &integers) : Aggregate(session, &doubles);
    EXPECT_EQ(types.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(types, "rank 0 called aggregate of 10 float64, rank 1 of 10 int64"))
        << types.text();
    EXPECT_TRUE(Aggregate(session, &integers).ok());
    EXPECT_EQ(integers, std::vector<int64_t>(10, 3));
  });
}

TEST(Aggregation, WhileAnotherRankCallsBarrierIsAMismatchForAllAlsoBesideAServer) {
  for (const Role first : {Role::kAll, Role::kServer}) {
    RunJobWithoutShutdown(
        {first, Role::kAll, Role::kAll}, kPatience, [](Session* session, int rank) {
          std::vector<float> values(10);
          const Status status = rank == 1 ? Aggregate(session, &values) : testing::Barrier(session);
          EXPECT_EQ(status.code(), Code::kMismatch) << status.text();
          EXPECT_TRUE(Contains(status, "rank 1 called aggregate")) << status.text();
          EXPECT_TRUE(Contains(status, "called barrier")) << status.text();
        });
  }
}

TEST(Aggregation, NamesTheWorkerThatDoesNotCome) {
  const auto sessions = testing::OpenAll(2, std::chrono::seconds(1));
  std::vector<float> values(10);
  const Status status = Aggregate(sessions[0].get(), &values);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_TRUE(Contains(status, "in aggregate for rank 1")) << status.text();
}

TEST(Aggregation, ThatIsCancelledEndsTheSessionForAll) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    std::vector<float> values(10);
    if (rank == 0) {
      Interrupt interrupt = testing::InterruptAtOnce();
      EXPECT_EQ(session->Aggregate(DType::kFloat32, values.data(), 10, &interrupt).code(),
                Code::kAborted);
      return;
    }
    // Coming earlier, it could complete the sum before the other gives it up.
    EXPECT_TRUE(testing::Eventually([&] { return session->group()->IsAborted(); }));
    const Status status = Aggregate(session, &values);
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(Contains(status, "KeyboardInterrupt")) << status.text();
  });
}

}  // namespace
}  // namespace multiverso
