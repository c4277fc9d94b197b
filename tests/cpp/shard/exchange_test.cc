// Tests of Request::Exchange, which adds the tensors' delta to the parameters and copies the
// parameters to the tensors.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "shard/shard.h"
#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

// A worker's tensors and the values of its last exchange.
template <class T>
struct WorkerTensors {
  std::vector<std::vector<T>> tensors;
  std::vector<int64_t> counts;
  std::vector<void*> data;
  std::vector<T> last;

  explicit WorkerTensors(const std::vector<int64_t>& sizes) : counts(sizes) {
    for (const int64_t size : sizes) tensors.emplace_back(static_cast<size_t>(size));
    for (auto& tensor : tensors) {
      data.push_back(tensor.data());
      last.resize(last.size() + tensor.size());
    }
  }
  TensorList List() {
    TensorList list(DTypeOf<T>(), counts.data(), static_cast<int64_t>(counts.size()));
    list.SetAddresses(data.data());
    return list;
  }
  std::vector<T> Flat() const {
    std::vector<T> flat;
    for (const auto& tensor : tensors) flat.insert(flat.end(), tensor.begin(), tensor.end());
    return flat;
  }
};

template <class T>
class Exchange : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(Exchange, Types);

TYPED_TEST(Exchange, GivesTensorsAndTableTheSumOverManyStripesAndPieces) {
  using T = TypeParam;
  // The boundaries of tensors, stripes and pieces are all at different elements.
  WorkerTensors<T> model({1, 20'001, 0, 7, 30'000, 4'099});
  const auto total = static_cast<int64_t>(model.last.size());
  MemoryShard<T> memory(total, 1);
  Shard shard = memory.For(0);
  std::mt19937 random(1);
  std::vector<T> expected(model.last.size());
  for (int round = 0; round < 3; ++round) {
    std::vector<T> others(expected.size());
    for (size_t i = 0; i < others.size(); ++i) {
      others[i] = static_cast<T>(random() % 100);
      expected[i] += others[i];
    }
    ASSERT_TRUE(Call(&shard, Request::Add(others.data())).ok());
    size_t at = 0;
    for (auto& tensor : model.tensors) {
      for (T& value : tensor) {
        const auto gain = static_cast<T>(random() % 100);
        value += gain;
        expected[at++] += gain;
      }
    }
    ASSERT_TRUE(Call(&shard, Request::Exchange(model.List(), model.last.data())).ok());
    ASSERT_EQ(model.Flat(), expected);
    ASSERT_EQ(model.last, expected);
    ASSERT_EQ(std::vector<T>(memory.values(), memory.values() + total), expected);
  }
}

TEST(ExchangeOfRows, WorksForRowsWiderThanAPiece) {
  constexpr int64_t kColumns = 5'000;
  WorkerTensors<float> model({kColumns, 2 * kColumns});
  MemoryShard<float> memory(3, kColumns);
  Shard shard = memory.For(0);
  for (auto& tensor : model.tensors) tensor.assign(tensor.size(), 1.5F);
  ASSERT_TRUE(Call(&shard, Request::Exchange(model.List(), model.last.data())).ok());
  for (int64_t i = 0; i < 3 * kColumns; ++i) ASSERT_EQ(memory.values()[i], 1.5F);
}

TEST(InterruptedExchange, HasCompletedWholeStripesAndCanBeRepeated) {
  constexpr int64_t kStripes = 4;
  const int64_t per_stripe = StripeLayout::kStripeBytes / 8;
  WorkerTensors<int64_t> model({kStripes * per_stripe});
  MemoryShard<int64_t> memory(kStripes * per_stripe, 1);
  Shard shard = memory.For(0);
  for (int64_t& value : model.tensors[0]) value = 5;
  ASSERT_TRUE(memory.lock(2)->TryTake(1));
  Progress progress;
  const TensorList tensors = model.List();
  ASSERT_TRUE(shard.Run(Request::Exchange(tensors, model.last.data()), &progress, WithoutWaiting())
                  .pending());
  EXPECT_EQ(progress.done, 2);
  EXPECT_EQ(memory.values()[0], 5);
  EXPECT_EQ(memory.values()[2 * per_stripe], 0);
  memory.lock(2)->Release();
  for (int64_t& value : model.tensors[0]) value += 1;
  ASSERT_TRUE(Call(&shard, Request::Exchange(tensors, model.last.data())).ok());
  for (int64_t i = 0; i < kStripes * per_stripe; ++i) ASSERT_EQ(memory.values()[i], 6);
  EXPECT_EQ(model.tensors[0], model.last);
}

}  // namespace
}  // namespace multiverso::testing
