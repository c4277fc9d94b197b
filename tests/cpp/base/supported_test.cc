#include "base/supported.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/status.h"

namespace multiverso {
namespace {

using testing::Contains;
using testing::IsError;
using testing::IsOk;

std::vector<Feature> AllFeatures() {
  std::vector<Feature> all;
  for (int i = 0; i < static_cast<int>(Feature::kEnd); ++i) all.push_back(static_cast<Feature>(i));
  return all;
}

TEST(Supported, EveryFeatureHasItsOwnName) {
  std::set<std::string> names;
  for (const Feature feature : AllFeatures()) names.insert(InfoOf(feature).name);
  EXPECT_EQ(names.size(), AllFeatures().size());
}

TEST(Supported, EveryFeatureIsPartOfARefusal) {
  FeatureSet used;
  for (size_t i = 0; i < NumRefusals(); ++i) used = used | RefusalAt(i).features;
  EXPECT_EQ(used.count(), static_cast<int>(Feature::kEnd));
}

// The form of all messages: which option, what was expected, and what was received.
TEST(Supported, EverySentenceSaysWhatWasExpectedAndReceived) {
  std::set<std::string> sentences;
  for (size_t i = 0; i < NumRefusals(); ++i) {
    const std::string sentence = RefusalAt(i).sentence;
    EXPECT_TRUE(Contains(sentence, "expected "));
    EXPECT_TRUE(Contains(sentence, "received "));
    EXPECT_NE(sentence.back(), '.') << sentence;
    EXPECT_TRUE(sentences.insert(sentence).second) << "twice: " << sentence;
  }
}

TEST(Supported, ARefusalAppliesOnlyIfAllItsFeaturesAreInUse) {
  for (size_t i = 0; i < NumRefusals(); ++i) {
    const Refusal& refusal = RefusalAt(i);
    EXPECT_EQ(FindRefusal(refusal.features), &refusal);
    EXPECT_TRUE(IsError(CheckSupported(refusal.features), refusal.code, refusal.sentence));
    for (const Feature without : AllFeatures()) {
      if (!refusal.features.Has(without)) continue;
      FeatureSet rest;
      for (const Feature feature : AllFeatures()) {
        rest = rest.With(feature, feature != without && refusal.features.Has(feature));
      }
      EXPECT_TRUE(IsOk(CheckSupported(rest))) << InfoOf(without).name;
    }
  }
  EXPECT_TRUE(IsOk(CheckSupported(FeatureSet())));
}

TEST(Supported, TheFirstRefusalOfTheTableIsReported) {
  FeatureSet all;
  for (const Feature feature : AllFeatures()) all = all.With(feature);
  EXPECT_EQ(FindRefusal(all), &RefusalAt(0));
}

TEST(Supported, JsonHasEveryFeatureAndSentence) {
  const std::string json = SupportedAsJson();
  for (const Feature feature : AllFeatures()) {
    EXPECT_TRUE(Contains(json, std::string("\"name\":\"") + InfoOf(feature).name + "\""));
  }
  for (size_t i = 0; i < NumRefusals(); ++i) EXPECT_TRUE(Contains(json, RefusalAt(i).sentence));
  EXPECT_TRUE(Contains(json, "{\"features\":[\"sync\",\"continue\"],\"code\":"));
}

}  // namespace
}  // namespace multiverso
