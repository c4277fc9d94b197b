#include "shard/stripe_lock.h"

#include <gtest/gtest.h>

#include "support/memory_shard.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

const std::atomic<uint64_t> kVersion{0};

void Write(StripeLock* lock, int owner) {
  const FakeProbe probe;
  ASSERT_EQ(lock->Take(owner, probe, Patiently().deadline), RobustLock::Outcome::kTaken);
  const StripeGuard<StripeUse::kWriting> holding(lock, kVersion);
}

class ReadUnlocked : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "reads take the lock under ThreadSanitizer";
#endif
  }

  StripeLock lock_;
};

TEST_F(ReadUnlocked, SucceedsWithoutAWriter) {
  int reads = 0;
  EXPECT_TRUE(lock_.ReadUnlocked([&] { ++reads; }));
  Write(&lock_, 0);
  EXPECT_TRUE(lock_.ReadUnlocked([&] { ++reads; }));
  EXPECT_EQ(reads, 2);
}

TEST_F(ReadUnlocked, SucceedsWhileAReaderHoldsTheLock) {
  ASSERT_TRUE(lock_.TryTake(0));
  const StripeGuard<StripeUse::kReading> holding(&lock_, kVersion);
  EXPECT_TRUE(lock_.ReadUnlocked([] {}));
}

TEST_F(ReadUnlocked, IsNotAttemptedDuringAWrite) {
  ASSERT_TRUE(lock_.TryTake(0));
  const StripeGuard<StripeUse::kWriting> holding(&lock_, kVersion);
  EXPECT_FALSE(lock_.ReadUnlocked([] { ADD_FAILURE() << "read during a write"; }));
}

TEST_F(ReadUnlocked, FailsIfAWriterInterfered) {
  EXPECT_FALSE(lock_.ReadUnlocked([&] { Write(&lock_, 0); }));
  EXPECT_FALSE(lock_.ReadUnlocked([&] {
    ASSERT_TRUE(lock_.TryTake(0));
    lock_.BeginWrite(kVersion);
  }));
}

TEST_F(ReadUnlocked, FailsAfterADeadWriterUntilTheNextWrite) {
  ASSERT_TRUE(lock_.TryTake(7));
  lock_.BeginWrite(kVersion);
  FakeProbe probe;
  probe.dead = 7;
  ASSERT_EQ(lock_.Take(0, probe, Patiently().deadline), RobustLock::Outcome::kRecovered);
  {
    const StripeGuard<StripeUse::kReading> holding(&lock_, kVersion);
  }
  EXPECT_FALSE(lock_.ReadUnlocked([] {}));
  Write(&lock_, 0);
  EXPECT_TRUE(lock_.ReadUnlocked([] {}));
}

TEST(StripeLock, CountsEveryWriteOfManyThreads) {
  constexpr uint32_t kWrites = 50000;
  StripeLock lock;
  OnThreads(4, [&](int me) {
    for (uint32_t i = 0; i < kWrites; ++i) Write(&lock, me);
  });
  EXPECT_EQ(lock.sequence.load(), 2 * 4 * kWrites);
  EXPECT_EQ(lock.word.load(), 0U);
}

TEST(StripeLock, NotesTheVersionOfTheLastChange) {
  std::atomic<uint64_t> version{3};
  StripeLock lock;
  ASSERT_TRUE(lock.TryTake(0));
  {
    const StripeGuard<StripeUse::kWriting> holding(&lock, version);
    EXPECT_FALSE(lock.IsAtRest());
  }
  EXPECT_TRUE(lock.IsAtRest());
  EXPECT_EQ(lock.changed_at.load(), 4U);
  version = 5;
  ASSERT_TRUE(lock.TryTake(0));
  {
    const StripeGuard<StripeUse::kReading> holding(&lock, version);
  }
  EXPECT_EQ(lock.changed_at.load(), 4U);
  lock.NoteChange(version);
  EXPECT_EQ(lock.changed_at.load(), 6U);
}

}  // namespace
}  // namespace multiverso::testing
