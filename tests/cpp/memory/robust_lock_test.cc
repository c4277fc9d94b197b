#include "memory/robust_lock.h"

#include <gtest/gtest.h>

#include "support/processes.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

using Outcome = RobustLock::Outcome;

const FakeProbe kAllAlive;

// A lock and a number that it protects.
struct Guarded {
  RobustLock lock;
  int64_t value = 0;
  std::atomic<int> is_held{0};  // set by a child that holds the lock and is about to be killed
};

TEST(RobustLock, TimesOutWithoutTheLockAndNamesTheHolder) {
  RobustLock lock;
  ASSERT_TRUE(lock.TryTake(3));
  const auto now = Clock::now();
  for (const Instant deadline : {Instant::min(), now, now + std::chrono::milliseconds(50)}) {
    EXPECT_EQ(lock.Take(1, kAllAlive, deadline), Outcome::kTimedOut);
    EXPECT_EQ(lock.Holder(), 3);
  }
  lock.Release();
  EXPECT_EQ(lock.Holder(), -1);
  EXPECT_EQ(lock.Take(1, kAllAlive, Instant::min()), Outcome::kTaken);
}

TEST(RobustLock, ReleaseWakesTheSleepers) {
  RobustLock lock;
  ASSERT_TRUE(lock.TryTake(0));
  std::atomic<int> taken{0};
  OnThreads(4, [&](int me) {
    if (me == 0) {
      // The lock is released only when a thread sleeps that the release must wake.
      EXPECT_TRUE(Eventually([&] { return lock.word.load() > 1U; }));
      lock.Release();
      return;
    }
    EXPECT_EQ(lock.Take(me, kAllAlive, Patience()), Outcome::kTaken);
    taken.fetch_add(1);
    lock.Release();
  });
  EXPECT_EQ(taken.load(), 3);
  EXPECT_EQ(lock.word.load(), 0U);
}

TEST(RobustLock, IsRecoveredExactlyOnceFromAKilledHolder) {
  constexpr int kDead = 7;
  const Shared<Guarded> guarded;
  const FakeProbe probe(kDead);
  for (int round = 0; round < 5; ++round) {
    guarded->is_held.store(0);
    Child holder([&] {
      if (!guarded->lock.TryTake(kDead)) return 1;
      guarded->is_held.store(1);
      return SleepForGood();
    });
    ASSERT_TRUE(Eventually([&] { return guarded->is_held.load() == 1; }));
    ASSERT_EQ(holder.Kill(), -1);
    std::atomic<int> taken{0};
    std::atomic<int> recovered{0};
    OnThreads(4, [&](int me) {
      const Outcome outcome = guarded->lock.Take(me, probe, Patience());
      ASSERT_NE(outcome, Outcome::kTimedOut);
      (outcome == Outcome::kRecovered ? recovered : taken).fetch_add(1);
      ++guarded->value;
      guarded->lock.Release();
    });
    EXPECT_EQ(recovered.load(), 1);
    EXPECT_EQ(taken.load(), 3);
  }
  EXPECT_EQ(guarded->value, 20);
  EXPECT_EQ(guarded->lock.word.load(), 0U);
}

}  // namespace
}  // namespace multiverso::testing
