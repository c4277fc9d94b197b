#include "base/supported.h"

#include <gtest/gtest.h>

#include <set>

#include "support/status.h"

namespace multiverso {
namespace {

using testing::Contains;

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

}  // namespace
}  // namespace multiverso
