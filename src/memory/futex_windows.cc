#include <algorithm>

#include "base/windows.h"
#include "memory/futex.h"

namespace multiverso {
namespace {

// Windows wakes sleepers of the same process only. Sleepers of other processes poll at this
// interval.
constexpr int64_t kPollMilliseconds = 1;

}  // namespace

void SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  const auto wait = static_cast<DWORD>(std::clamp<int64_t>(left, 0, kPollMilliseconds));
  WaitOnAddress(reinterpret_cast<uint32_t*>(word), &expected, sizeof(expected), wait);
}

void WakeWord(std::atomic<uint32_t>* word, int count) {
  if (count == 1) {
    WakeByAddressSingle(reinterpret_cast<uint32_t*>(word));
  } else {
    WakeByAddressAll(reinterpret_cast<uint32_t*>(word));
  }
}

void YieldCore() { SwitchToThread(); }

void SleepPrecisely() {}

}  // namespace multiverso
