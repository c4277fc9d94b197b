// Tests of Shard::RunEncoded, which does to encoded values what Shard::Run does to decoded ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "shard/shard.h"
#include "support/limits.h"
#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kRows = 50'001;  // stripes and pieces end at other elements than blocks

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<char> Encoded(WireFormat format, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<char> bytes(static_cast<size_t>(WireBytes(format, count)));
  EXPECT_TRUE(EncodeNearest(format, values.data(), count, bytes.data()));
  return bytes;
}

std::vector<float> Decoded(WireFormat format, const std::vector<char>& bytes, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  Decode(format, bytes.data(), count, values.data());
  return values;
}

void SetHypers(Hyper* hyper, UpdaterKind updater) {
  double values[kHyperCount];
  SetDefaultHypers(updater, values);
  for (int i = 0; i < kHyperCount; ++i) hyper->values[i].store(values[i]);
}

// Returns a request for elements from `first` on.
Request RangeOf(Request request, int64_t first, int64_t count) {
  request.first = first;
  request.count = count;
  return request;
}

TEST(EncodedRequests, DoWhatRequestsWithTheDecodedValuesDo) {
  for (const UpdaterKind updater : {UpdaterKind::kAdd, UpdaterKind::kAdagrad}) {
    for (const WireFormat format : {WireFormat::kBFloat16, WireFormat::kInt8}) {
      MemoryShard<float> encoded_memory(kRows, 1, updater);
      MemoryShard<float> plain_memory(kRows, 1, updater);
      SetHypers(encoded_memory.hyper(), updater);
      SetHypers(plain_memory.hyper(), updater);
      Shard encoded_shard = encoded_memory.For(0);
      Shard plain_shard = plain_memory.For(0);
      for (const int64_t first : {0, 1, 4'321}) {
        const int64_t count = kRows - 2 * first;
        const std::vector<char> delta =
            Encoded(format, RandomValues(count, static_cast<uint32_t>(first)));
        std::vector<float> plain = Decoded(format, delta, count);
        const Request add = RangeOf(Request::AddGet(plain.data(), plain.data()), first, count);
        ASSERT_TRUE(Call(&plain_shard, add).ok());

        std::vector<char> out(static_cast<size_t>(2 * count));
        Request request = RangeOf(Request::AddGet(delta.data(), out.data()), first, count);
        Progress progress;
        bool fits = true;
        ASSERT_TRUE(
            encoded_shard
                .RunEncoded(request, format, WireFormat::kBFloat16, &progress, Patiently(), &fits)
                .ok());
        ASSERT_TRUE(fits);
        ASSERT_EQ(out, Encoded(WireFormat::kBFloat16, plain));

        std::vector<char> got(out.size());
        request = RangeOf(Request::Get(got.data()), first, count);
        progress = Progress();
        ASSERT_TRUE(
            encoded_shard
                .RunEncoded(request, format, WireFormat::kBFloat16, &progress, Patiently(), &fits)
                .ok());
        ASSERT_EQ(got, out);
      }
      for (int64_t i = 0; i < kRows; ++i) {
        ASSERT_EQ(encoded_memory.values()[i], plain_memory.values()[i]) << i;
      }
    }
  }
}

TEST(EncodedRequests, AddTheWholeDeltaEvenIfTheAnswerCannotBeEncoded) {
  MemoryShard<float> memory(kRows, 1);
  Shard shard = memory.For(0);
  const std::vector<float> infinity(1, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(Call(&shard, RangeOf(Request::Add(infinity.data()), 30'000, 1)).ok());
  const std::vector<char> delta =
      Encoded(WireFormat::kInt8, std::vector<float>(static_cast<size_t>(kRows), 127.0F));
  std::vector<char> out(static_cast<size_t>(2 * kRows));
  Progress progress;
  bool fits = true;
  ASSERT_TRUE(shard
                  .RunEncoded(RangeOf(Request::AddGet(delta.data(), out.data()), 0, kRows),
                              WireFormat::kInt8, WireFormat::kBFloat16, &progress, Patiently(),
                              &fits)
                  .ok());
  EXPECT_FALSE(fits);
  for (int64_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(memory.values()[i], i == 30'000 ? infinity[0] : 127.0F) << i;
  }
}

}  // namespace
}  // namespace multiverso::testing
