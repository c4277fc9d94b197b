#include "transport/deposit.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace multiverso {
namespace {

TEST(NameOfCalls, IsWhatTheCallerCalled) {
  EXPECT_STREQ(NameOf(CallKind::kJoin), "init");
  EXPECT_STREQ(NameOf(CallKind::kBarrier), "barrier");
  EXPECT_STREQ(NameOf(CallKind::kMapTable), "the creation of a table");
  EXPECT_STREQ(NameOf(CallKind::kCollectiveGet), "get(sync=True)");
  EXPECT_STREQ(NameOf(CallKind::kClose), "shutdown");
  EXPECT_STREQ(NameOf(static_cast<CallKind>(999)), "an unknown call");
}

struct Pair {
  int32_t first = 7;
  int32_t second = 7;
};

// As in a segment: filled with zeros.
std::unique_ptr<Deposit> Empty() { return std::make_unique<Deposit>(); }

TEST(Deposit, GivesBackWhatWasWrittenOfAnyLength) {
  const auto deposit = Empty();
  std::string brought;
  for (uint64_t meeting = 1; brought.size() <= Deposit::kMostBytes; ++meeting) {
    deposit->Write(meeting, CallKind::kSave, brought.data(), brought.size());
    EXPECT_EQ(deposit->kind(), CallKind::kSave);
    ASSERT_EQ(deposit->Bytes(), brought);
    brought += static_cast<char>('a' + meeting % 26);
  }
}

TEST(Deposit, IsReadAsAValueFromAnyByteOn) {
  const auto deposit = Empty();
  const std::string brought = "abcdefghijklmnopqrstuvwxyz";
  deposit->Write(1, CallKind::kBarrier, brought.data(), brought.size());
  struct Text {
    char text[9] = {};
  };
  for (size_t offset = 0; offset + sizeof(Text) <= brought.size(); ++offset) {
    const auto read = deposit->Read<Text>(offset);
    EXPECT_EQ(std::string(read.text, sizeof(read.text)), brought.substr(offset, sizeof(Text)));
  }
}

TEST(Deposit, LeavesWhatWasNotBroughtAsInANewValue) {
  const auto deposit = Empty();
  const Pair brought{1, 2};
  deposit->Write(1, CallKind::kBarrier, &brought, sizeof(brought));
  deposit->Write(3, CallKind::kBarrier, &brought, sizeof(brought.first));
  EXPECT_EQ(deposit->Read<Pair>().first, 1);
  EXPECT_EQ(deposit->Read<Pair>().second, 7);
  EXPECT_EQ(deposit->Read<Pair>(sizeof(brought.first)).first, 7);
  EXPECT_EQ(deposit->Read<Pair>(Deposit::kMostBytes).first, 7);
}

TEST(Deposit, OfAMeetingIsReadUntilALaterOneIsWritten) {
  const auto deposit = Empty();
  CallKind kind{};
  std::string data;
  deposit->Write(2, CallKind::kLoad, "two", 3);
  ASSERT_TRUE(deposit->ReadOf(2, &kind, &data));
  EXPECT_EQ(kind, CallKind::kLoad);
  EXPECT_EQ(data, "two");
  deposit->Write(4, CallKind::kLoad, "four", 4);
  EXPECT_FALSE(deposit->ReadOf(2, &kind, &data));
  EXPECT_TRUE(deposit->ReadOf(4, &kind, &data));
}

}  // namespace
}  // namespace multiverso
