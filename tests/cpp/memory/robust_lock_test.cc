#include "memory/robust_lock.h"

#include <gtest/gtest.h>

#include "support/processes.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

using Outcome = RobustLock::Outcome;

const FakeProbe kAllAlive;

// A lock and the data that it protects: two numbers that are equal while the lock is free.
struct Guarded {
  RobustLock lock;
  int64_t first = 0;
  int64_t second = 0;
  std::atomic<int> is_held{0};  // set by a child that holds the lock and is about to be killed

  void AddOne() {
    ++first;
    ++second;
  }
};

void AddMany(Guarded* guarded, int owner, int count) {
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(guarded->lock.Take(owner, kAllAlive, Patience()), Outcome::kTaken);
    guarded->AddOne();
    guarded->lock.Release();
  }
}

TEST(RobustLock, IsFreeInZeroedMemory) {
  alignas(RobustLock) char zero[sizeof(RobustLock)] = {};
  auto* const lock = reinterpret_cast<RobustLock*>(zero);
  EXPECT_EQ(lock->Holder(), -1);
  EXPECT_TRUE(lock->TryTake(0));
  EXPECT_EQ(lock->Holder(), 0);
  EXPECT_FALSE(lock->TryTake(0));
  EXPECT_FALSE(lock->TryTake(1));
  lock->Release();
  EXPECT_EQ(lock->word.load(), 0U);
}

TEST(RobustLock, ExcludesThreadsOfOneOrSeveralRanks) {
  for (const bool is_one_rank : {false, true}) {
    Guarded guarded;
    OnThreads(4, [&](int me) { AddMany(&guarded, is_one_rank ? 5 : me, 20000); });
    EXPECT_EQ(guarded.first, 80000);
    EXPECT_EQ(guarded.second, 80000);
    EXPECT_EQ(guarded.lock.word.load(), 0U);
  }
}

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
      guarded->AddOne();
      guarded->lock.Release();
    });
    EXPECT_EQ(recovered.load(), 1);
    EXPECT_EQ(taken.load(), 3);
  }
  EXPECT_EQ(guarded->first, 20);
  EXPECT_EQ(guarded->lock.word.load(), 0U);
}

TEST(RobustLock, SurvivesProcessesKilledAtAnyPoint) {
  const Shared<Guarded> guarded;
  FakeProbe probe;
  for (int round = 0; round < 20; ++round) {
    probe.dead = -1;
    Child victim([&] {
      for (;;) {
        if (guarded->lock.Take(7, kAllAlive, Patience()) != Outcome::kTaken) return 1;
        guarded->AddOne();
        guarded->lock.Release();
      }
    });
    for (int i = 0; i < 200 + 37 * round; ++i) {
      const Outcome outcome = guarded->lock.Take(0, probe, Patience());
      ASSERT_EQ(outcome, Outcome::kTaken);
      EXPECT_EQ(guarded->first, guarded->second);
      guarded->lock.Release();
    }
    ASSERT_EQ(victim.Kill(), -1);
    probe.dead = 7;
    // The next holder learns whether the child died with the lock, so that it can repair the data.
    const Outcome outcome = guarded->lock.Take(0, probe, Patience());
    ASSERT_NE(outcome, Outcome::kTimedOut);
    if (outcome == Outcome::kRecovered) guarded->second = guarded->first;
    EXPECT_EQ(guarded->first, guarded->second);
    guarded->lock.Release();
    ASSERT_EQ(guarded->lock.Take(0, probe, Patience()), Outcome::kTaken);
    guarded->lock.Release();
  }
}

TEST(RobustLock, IsNotTakenFromALiveHolder) {
  RobustLock lock;
  ASSERT_TRUE(lock.TryTake(2));
  const FakeProbe other_is_dead(1);
  OnThreads(2, [&](int me) {
    EXPECT_EQ(lock.Take(me, other_is_dead, Clock::now() + std::chrono::milliseconds(60)),
              Outcome::kTimedOut);
  });
  EXPECT_EQ(lock.Holder(), 2);
}

}  // namespace
}  // namespace multiverso::testing
