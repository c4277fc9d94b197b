// Tests of Request::Exchange, which adds the tensors' delta to the parameters and copies the
// parameters to the tensors.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "shard/shard.h"
#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

// A worker's tensors and the values of its last exchange.
struct WorkerTensors {
  std::vector<std::vector<int64_t>> tensors;
  std::vector<int64_t> counts;
  std::vector<void*> data;
  std::vector<int64_t> last;

  explicit WorkerTensors(const std::vector<int64_t>& sizes) : counts(sizes) {
    for (const int64_t size : sizes) tensors.emplace_back(static_cast<size_t>(size));
    for (auto& tensor : tensors) {
      data.push_back(tensor.data());
      last.resize(last.size() + tensor.size());
    }
  }
  TensorList List() {
    TensorList list(DType::kInt64, counts.data(), static_cast<int64_t>(counts.size()));
    list.SetAddresses(data.data());
    return list;
  }
};

TEST(InterruptedExchange, HasCompletedWholeStripesAndCanBeRepeated) {
  constexpr int64_t kStripes = 4;
  const int64_t per_stripe = StripeLayout::kStripeBytes / 8;
  WorkerTensors model({kStripes * per_stripe});
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
