#include "memory/futex.h"

#include <gtest/gtest.h>

#include "support/processes.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

TEST(SleepOnWord, ReturnsAtTheDeadline) {
  std::atomic<uint32_t> word{0};
  SleepOnWord(&word, 0, Clock::now() - std::chrono::seconds(1));
  const Instant until = Clock::now() + std::chrono::milliseconds(2);
  while (Clock::now() < until) SleepOnWord(&word, 0, until);
}

// A word that one thread changes while other threads sleep on it.
struct Signal {
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> sleepers{0};

  // Waits until the word is `value`.
  bool Await(uint32_t value, Instant until) {
    const auto has_come = [&] { return word.load() == value; };
    while (!SleepUntil(&word, &sleepers, until, has_come) && Clock::now() < until) {
    }
    return has_come();
  }
  void Set(uint32_t value) {
    word.store(value, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) WakeWord(&word, kWakeAll);
  }
};

TEST(SleepUntil, WakesForAnotherProcess) {
  const Shared<Signal> signal;
  Child sleeper([&] { return signal->Await(1, Patience()) ? 0 : 1; });
  EXPECT_TRUE(Eventually([&] { return signal->sleepers.load() == 1; }));
  signal->Set(1);
  EXPECT_EQ(sleeper.Wait(), 0);
  EXPECT_EQ(signal->sleepers.load(), 0U);
}

// A wake between the check of the condition and the sleep must not be lost. The sleeps are
// unbounded, so a lost wake ends the test at its time limit.
TEST(SleepUntil, MissesNoWakeInManyRounds) {
  constexpr uint32_t kRounds = 4000;
  Signal turn;
  OnThreads(2, [&](int me) {
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t mine = 2 * round + static_cast<uint32_t>(me);
      // The thread sleeps immediately, because polling first would hide a lost wake.
      while (!SleepUntil(&turn.word, &turn.sleepers, Instant::max(),
                         [&] { return turn.word.load() == mine; })) {
      }
      turn.Set(mine + 1);
    }
  });
  EXPECT_EQ(turn.word.load(), 2 * kRounds);
}

TEST(WakeWord, WakesAllSleepers) {
  Signal signal;
  OnThreads(5, [&](int me) {
    if (me != 0) {
      EXPECT_TRUE(signal.Await(1, Patience()));
      return;
    }
    EXPECT_TRUE(Eventually([&] { return signal.sleepers.load() == 4; }));
    signal.Set(1);
  });
}

}  // namespace
}  // namespace multiverso::testing
