#include "group/contributions.h"

#include <gtest/gtest.h>

#include <random>

namespace multiverso::testing {
namespace {

class ContributionsOfThreeNodes : public ::testing::Test {
 protected:
  ContributionsOfThreeNodes() {
    // As of six members, of which the third made another call.
    for (const uint32_t kind : {2, 2, 3, 2, 2, 2}) {
      all_.Append({1, static_cast<CollectiveKind>(kind), std::string(512, 'a')});
    }
    all_.attached.emplace_back(2, "values");
    bytes_ = PackContributions(/*group=*/0, /*node=*/2, /*step=*/1, 7, all_);
  }

  Contributions all_;
  std::string bytes_;
  ContributionsMessage message_;
};

TEST_F(ContributionsOfThreeNodes, AreRunsOfEqualPayloads) {
  ASSERT_TRUE(UnpackContributions(bytes_, &message_));
  const Contributions& got = message_.contributions;
  EXPECT_EQ(message_.sequence, 7U);
  EXPECT_EQ(got.members(), 6);
  ASSERT_EQ(got.runs.size(), 3U);
  EXPECT_EQ(got.runs[1].kind, CollectiveKind::kCreateTable);
  ASSERT_EQ(got.attached.size(), 1U);
  EXPECT_EQ(got.attached[0].second, "values");
}

TEST_F(ContributionsOfThreeNodes, AreNeverReadBeyondTheirEnd) {
  // Without the entry of what is attached, the message is complete.
  const size_t without = bytes_.size() - 8 - 6;
  for (size_t length = 0; length < bytes_.size(); ++length) {
    EXPECT_EQ(UnpackContributions(bytes_.substr(0, length), &message_), length == without);
  }
  EXPECT_FALSE(UnpackContributions(bytes_ + "c", &message_));
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes_;
    for (size_t c = 0; c <= random() % 4; ++c) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (!UnpackContributions(damaged, &message_)) continue;
    for (const PayloadRun& run : message_.contributions.runs) ASSERT_LE(run.data.size(), 512U);
  }
}

}  // namespace
}  // namespace multiverso::testing
