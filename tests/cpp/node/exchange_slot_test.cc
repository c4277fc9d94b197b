#include "node/exchange_slot.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace multiverso {
namespace {

struct Pair {
  int32_t first = 7;
  int32_t second = 7;
};

// Returns a slot filled with zeros, like a slot in a new segment.
std::unique_ptr<ExchangeSlot> EmptySlot() { return std::make_unique<ExchangeSlot>(); }

TEST(ExchangeSlot, ReturnsPayloadsOfAnyLength) {
  const auto slot = EmptySlot();
  std::string written;
  for (uint64_t sequence = 1; written.size() <= ExchangeSlot::kMaxBytes; ++sequence) {
    slot->Write(sequence, CollectiveKind::kSave, written.data(), written.size());
    EXPECT_EQ(slot->kind(), CollectiveKind::kSave);
    ASSERT_EQ(slot->Bytes(), written);
    written += static_cast<char>('a' + sequence % 26);
  }
}

TEST(ExchangeSlot, ReadsBytesBeyondThePayloadAsDefaults) {
  const auto slot = EmptySlot();
  const Pair written{1, 2};
  slot->Write(1, CollectiveKind::kBarrier, &written, sizeof(written));
  slot->Write(3, CollectiveKind::kBarrier, &written, sizeof(written.first));
  EXPECT_EQ(slot->Read<Pair>().first, 1);
  EXPECT_EQ(slot->Read<Pair>().second, 7);
  EXPECT_EQ(slot->Read<Pair>(sizeof(written.first)).first, 7);
  EXPECT_EQ(slot->Read<Pair>(ExchangeSlot::kMaxBytes).first, 7);
}

TEST(ExchangeSlot, IsReadableUntilALaterCollectiveIsWritten) {
  const auto slot = EmptySlot();
  CollectiveKind kind{};
  std::string data;
  slot->Write(2, CollectiveKind::kLoad, "two", 3);
  ASSERT_TRUE(slot->ReadIfCurrent(2, &kind, &data));
  EXPECT_EQ(kind, CollectiveKind::kLoad);
  EXPECT_EQ(data, "two");
  slot->Write(4, CollectiveKind::kLoad, "four", 4);
  EXPECT_FALSE(slot->ReadIfCurrent(2, &kind, &data));
  EXPECT_TRUE(slot->ReadIfCurrent(4, &kind, &data));
}

}  // namespace
}  // namespace multiverso
