#include "memory/memory_credit.h"

#include <algorithm>

#include "base/text.h"

namespace multiverso {
namespace {

// The most bytes that are touched between two look-ups of the free memory.
constexpr int64_t kMaxCredit = int64_t{64} << 20;
// The part of the memory that stays free for other programs and for credit of other tables.
constexpr int64_t kSpareParts = 64;
constexpr int64_t kMinSpare = int64_t{128} << 20;
constexpr int64_t kMaxSpare = int64_t{1} << 30;

}  // namespace

Status MemoryCredit::Take(int64_t bytes, int64_t (*free)()) {
  const int64_t taken = taken_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (credit_.fetch_sub(bytes, std::memory_order_relaxed) >= bytes) return Status::Ok();
  // The spare memory is a rough part, so that of the first call serves all later ones.
  static const int64_t spare = std::clamp(MemoryCeiling() / kSpareParts, kMinSpare, kMaxSpare);
  const int64_t available = free();
  const int64_t left = available - spare - taken;
  credit_.store(std::clamp<int64_t>(left, 0, kMaxCredit), std::memory_order_relaxed);
  if (left >= 0) return Status::Ok();
  GiveBack(bytes);
  return Status(Code::kMemory,
                StrCat("cannot use ", SizeText(bytes), " more: ", SizeText(available),
                       " are free on this machine, of which ", SizeText(spare), " stay free"));
}

}  // namespace multiverso
