#include "sum/pairwise_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "support/pairwise.h"

namespace multiverso::testing {
namespace {

using Values = std::vector<std::optional<float>>;

float RandomValue(std::mt19937* random) {
  std::uniform_real_distribution<float> exponent(-20, 20);
  return std::ldexp(std::uniform_real_distribution<float>(-1, 1)(*random),
                    static_cast<int>(exponent(*random)));
}

std::vector<PairwiseSum::Term> TermsOf(const Values& deltas, WorkerRange range) {
  std::vector<PairwiseSum::Term> terms;
  for (int worker = range.first; worker < range.end; ++worker) {
    const auto& delta = deltas[static_cast<size_t>(worker)];
    if (delta) terms.push_back({worker, reinterpret_cast<const char*>(&*delta)});
  }
  return terms;
}

float SumOf(const std::vector<PairwiseSum::Term>& terms, int workers) {
  PairwiseSum sum(Reduction::Sum(DType::kFloat32), workers, 1);
  return *reinterpret_cast<const float*>(sum.Of(terms, 1));
}

TEST(PairwiseSum, EqualsTheModelForEverySetOfWorkers) {
  std::mt19937 random(1);
  for (int workers = 1; workers <= 9; ++workers) {
    for (unsigned present = 1; present < 1U << workers; ++present) {
      Values deltas(static_cast<size_t>(workers));
      for (int i = 0; i < workers; ++i) {
        if ((present >> i & 1) != 0) deltas[static_cast<size_t>(i)] = RandomValue(&random);
      }
      EXPECT_EQ(SumOf(TermsOf(deltas, {0, workers}), workers), *PairwiseModel(deltas));
    }
  }
}

TEST(PairwiseSum, DoesNotDependOnThePlacementOfWorkers) {
  std::mt19937 random(2);
  for (int program = 0; program < 500; ++program) {
    const int workers = 1 + static_cast<int>(random() % 40);
    const int nodes = 1 + static_cast<int>(random() % 9);
    Values deltas(static_cast<size_t>(workers));
    std::vector<std::vector<int>> on(static_cast<size_t>(nodes));
    for (int i = 0; i < workers; ++i) {
      deltas[static_cast<size_t>(i)] = RandomValue(&random);
      on[random() % static_cast<size_t>(nodes)].push_back(i);
    }
    std::vector<std::pair<int, float>> partial;
    for (const auto& node : on) {
      for (const WorkerRange& range : SubtreesOf(node, workers)) {
        partial.emplace_back(range.first, SumOf(TermsOf(deltas, range), workers));
      }
    }
    std::sort(partial.begin(), partial.end());
    std::vector<PairwiseSum::Term> terms;
    for (const auto& [first, value] : partial) {
      terms.push_back({first, reinterpret_cast<const char*>(&value)});
    }
    EXPECT_EQ(SumOf(terms, workers), *PairwiseModel(deltas));
  }
}

TEST(PairwiseSum, SubtreesAreTheLargestRanges) {
  const auto subtrees = [](const std::vector<int>& workers, int all) {
    std::string text;
    for (const WorkerRange& range : SubtreesOf(workers, all)) {
      text += std::to_string(range.first) + "-" + std::to_string(range.end) + " ";
    }
    return text;
  };
  EXPECT_EQ(subtrees({4, 5, 6, 7}, 8), "4-8 ");
  EXPECT_EQ(subtrees({0, 1, 2, 3, 4}, 5), "0-5 ");
  EXPECT_EQ(subtrees({3, 4, 5, 6}, 8), "3-4 4-6 6-7 ");
  EXPECT_EQ(subtrees({4}, 5), "4-5 ");
  EXPECT_EQ(subtrees({0, 2, 4}, 6), "0-1 2-3 4-5 ");
  EXPECT_EQ(subtrees({}, 3), "");
}

}  // namespace
}  // namespace multiverso::testing
