#include "node/exchange_slot.h"

#include <gtest/gtest.h>

#include <memory>

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
  while (written.size() <= ExchangeSlot::kMaxBytes) {
    slot->Write(CollectiveKind::kSave, written.data(), written.size());
    EXPECT_EQ(slot->kind(), CollectiveKind::kSave);
    ASSERT_EQ(slot->Bytes(), written);
    written += static_cast<char>('a' + written.size() % 26);
  }
}

TEST(ExchangeSlot, ReadsBytesBeyondThePayloadAsDefaults) {
  const auto slot = EmptySlot();
  const Pair written{1, 2};
  slot->Write(CollectiveKind::kBarrier, &written, sizeof(written));
  slot->Write(CollectiveKind::kBarrier, &written, sizeof(written.first));
  EXPECT_EQ(slot->Read<Pair>().first, 1);
  EXPECT_EQ(slot->Read<Pair>().second, 7);
  EXPECT_EQ(slot->Read<Pair>(sizeof(written.first)).first, 7);
  EXPECT_EQ(slot->Read<Pair>(ExchangeSlot::kMaxBytes).first, 7);
}

}  // namespace
}  // namespace multiverso
