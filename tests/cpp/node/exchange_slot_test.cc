#include "node/exchange_slot.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace multiverso {
namespace {

TEST(NameOfCalls, IsWhatTheCallerCalled) {
  EXPECT_STREQ(NameOf(CollectiveKind::kJoin), "init");
  EXPECT_STREQ(NameOf(CollectiveKind::kBarrier), "barrier");
  EXPECT_STREQ(NameOf(CollectiveKind::kMapTable), "the creation of a table");
  EXPECT_STREQ(NameOf(CollectiveKind::kCollectiveGet), "get(sync=True)");
  EXPECT_STREQ(NameOf(CollectiveKind::kClose), "shutdown");
  EXPECT_STREQ(NameOf(static_cast<CollectiveKind>(999)), "an unknown call");
}

struct Pair {
  int32_t first = 7;
  int32_t second = 7;
};

// As in a segment: filled with zeros.
std::unique_ptr<ExchangeSlot> Empty() { return std::make_unique<ExchangeSlot>(); }

TEST(ExchangeSlot, GivesBackWhatWasWrittenOfAnyLength) {
  const auto deposit = Empty();
  std::string brought;
  for (uint64_t meeting = 1; brought.size() <= ExchangeSlot::kMaxBytes; ++meeting) {
    deposit->Write(meeting, CollectiveKind::kSave, brought.data(), brought.size());
    EXPECT_EQ(deposit->kind(), CollectiveKind::kSave);
    ASSERT_EQ(deposit->Bytes(), brought);
    brought += static_cast<char>('a' + meeting % 26);
  }
}

TEST(ExchangeSlot, IsReadAsAValueFromAnyByteOn) {
  const auto deposit = Empty();
  const std::string brought = "abcdefghijklmnopqrstuvwxyz";
  deposit->Write(1, CollectiveKind::kBarrier, brought.data(), brought.size());
  struct Text {
    char text[9] = {};
  };
  for (size_t offset = 0; offset + sizeof(Text) <= brought.size(); ++offset) {
    const auto read = deposit->Read<Text>(offset);
    EXPECT_EQ(std::string(read.text, sizeof(read.text)), brought.substr(offset, sizeof(Text)));
  }
}

TEST(ExchangeSlot, LeavesWhatWasNotBroughtAsInANewValue) {
  const auto deposit = Empty();
  const Pair brought{1, 2};
  deposit->Write(1, CollectiveKind::kBarrier, &brought, sizeof(brought));
  deposit->Write(3, CollectiveKind::kBarrier, &brought, sizeof(brought.first));
  EXPECT_EQ(deposit->Read<Pair>().first, 1);
  EXPECT_EQ(deposit->Read<Pair>().second, 7);
  EXPECT_EQ(deposit->Read<Pair>(sizeof(brought.first)).first, 7);
  EXPECT_EQ(deposit->Read<Pair>(ExchangeSlot::kMaxBytes).first, 7);
}

TEST(ExchangeSlot, OfAMeetingIsReadUntilALaterOneIsWritten) {
  const auto deposit = Empty();
  CollectiveKind kind{};
  std::string data;
  deposit->Write(2, CollectiveKind::kLoad, "two", 3);
  ASSERT_TRUE(deposit->ReadOf(2, &kind, &data));
  EXPECT_EQ(kind, CollectiveKind::kLoad);
  EXPECT_EQ(data, "two");
  deposit->Write(4, CollectiveKind::kLoad, "four", 4);
  EXPECT_FALSE(deposit->ReadOf(2, &kind, &data));
  EXPECT_TRUE(deposit->ReadOf(4, &kind, &data));
}

}  // namespace
}  // namespace multiverso
