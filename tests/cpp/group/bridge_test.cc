#include "group/bridge.h"

#include <gtest/gtest.h>

#include <random>

namespace multiverso {
namespace {

std::vector<Brought> TwoRanks() {
  return {{3, CollectiveKind::kBarrier, ""},
          {5, CollectiveKind::kCreateTable, std::string(512, 'a')}};
}

TEST(UnpackBrought, GivesBackWhatWasPacked) {
  std::vector<Brought> all;
  ASSERT_TRUE(UnpackBrought(PackBrought(1, 7, TwoRanks()), 1, 7, {3, 5}, &all));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].rank, 3);
  EXPECT_EQ(all[0].kind, CollectiveKind::kBarrier);
  EXPECT_EQ(all[1].data, std::string(512, 'a'));
}

TEST(UnpackBrought, RefusesAnotherMeetingCircleOrRank) {
  const std::string bytes = PackBrought(1, 7, TwoRanks());
  std::vector<Brought> all;
  EXPECT_FALSE(UnpackBrought(bytes, 0, 7, {3, 5}, &all));
  EXPECT_FALSE(UnpackBrought(bytes, 1, 8, {3, 5}, &all));
  EXPECT_FALSE(UnpackBrought(bytes, 1, 7, {3}, &all));
  EXPECT_FALSE(UnpackBrought(bytes, 1, 7, {3, 4}, &all));
  EXPECT_FALSE(UnpackBrought(bytes, 1, 7, {3, 5, 6}, &all));
}

TEST(UnpackBrought, NeverTakesMoreThanARankMayBring) {
  std::vector<Brought> all = TwoRanks();
  all[1].data += "b";
  const std::string bytes = PackBrought(1, 7, all);
  EXPECT_FALSE(UnpackBrought(bytes, 1, 7, {3, 5}, &all));
}

TEST(UnpackBrought, SurvivesGarbage) {
  const std::string sound = PackBrought(1, 7, TwoRanks());
  std::mt19937_64 random(7);
  std::vector<Brought> all;
  for (size_t length = 0; length < sound.size(); ++length) {
    EXPECT_FALSE(UnpackBrought(sound.substr(0, length), 1, 7, {3, 5}, &all));
  }
  EXPECT_FALSE(UnpackBrought(sound + "c", 1, 7, {3, 5}, &all));
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = sound;
    for (size_t c = 0; c <= random() % 4; ++c) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (!UnpackBrought(bytes, 1, 7, {3, 5}, &all)) continue;
    ASSERT_EQ(all.size(), 2U);
    for (const Brought& one : all) ASSERT_LE(one.data.size(), 512U);
  }
}

}  // namespace
}  // namespace multiverso
