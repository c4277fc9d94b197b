#include "memory/presence.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "base/process.h"
#include "memory/segment.h"
#include "support/processes.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

class Presence : public ::testing::Test {
 protected:
  void SetUp() override { segment_ = ValueOf(Segment::CreateShared(4096)); }

  int fd() const { return segment_.fd(); }

  // Starts a process that is marked as present under number `index`.
  Child StartPresent(int index) {
    marked_->store(0);
    Child child([this, index] {
      // The child opens the segment by its locator, as another rank would.
      const Result<Segment> mine = Segment::OpenShared(segment_.locator());
      if (!mine.ok() || !MarkPresent(mine.value().fd(), index).ok()) return 1;
      marked_->store(1);
      return SleepForGood();
    });
    EXPECT_TRUE(Eventually([&] { return marked_->load() == 1; }));
    return child;
  }

  Segment segment_;
  Shared<std::atomic<int>> marked_;
};

TEST_F(Presence, EndsWhenTheProcessIsKilled) {
  Child child = StartPresent(3);
  EXPECT_TRUE(IsPresent(fd(), 3));
  EXPECT_FALSE(IsPresent(fd(), 2));
  EXPECT_FALSE(IsPresent(fd(), 4));
  ASSERT_EQ(child.Kill(), -1);
  EXPECT_FALSE(IsPresent(fd(), 3));
}

TEST_F(Presence, IsFalseForAZombie) {
  Child child = StartPresent(1);
  ASSERT_EQ(kill(child.pid(), SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(IsPresent(fd(), 1));
}

TEST_F(Presence, LastsWhileTheProcessIsSuspended) {
  Child child = StartPresent(1);
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_TRUE(IsPresent(fd(), 1));
}

TEST_F(Presence, OutlivesTheForkedChildrenOfTheProcess) {
  ASSERT_TRUE(MarkPresent(fd(), 5).ok());
  // The first child ends with the inherited descriptor open, which does not remove the mark.
  for (int i = 0; i < 2; ++i) {
    Child child([&] {
      const Result<Segment> mine = Segment::OpenShared(segment_.locator());
      return mine.ok() && IsPresent(mine.value().fd(), 5) ? 0 : 1;
    });
    EXPECT_EQ(child.Wait(), 0);
  }
}

TEST_F(Presence, LastsWhenTheProcessOpensAndClosesTheFileAgain) {
  ASSERT_TRUE(MarkPresent(fd(), 5).ok());
  EXPECT_TRUE(Segment::OpenShared(segment_.locator()).ok());
  const Segment other = ValueOf(Segment::OpenShared(segment_.locator()));
  EXPECT_TRUE(IsPresent(other.fd(), 5));
}

TEST_F(Presence, EndsWithTheProcessIfItsForkedChildHasClosedTheDescriptor) {
  Shared<std::atomic<int>> grandchild;
  Child child([&] {
    Segment mine = ValueOf(Segment::OpenShared(segment_.locator()));
    if (!MarkPresent(mine.fd(), 6).ok()) return 1;
    const pid_t forked = fork();
    if (forked == 0) {
      mine.Seal();
      marked_->store(1);
      return SleepForGood();
    }
    grandchild->store(forked);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return marked_->load() == 1 && grandchild->load() > 0; }));
  EXPECT_TRUE(IsPresent(fd(), 6));
  ASSERT_EQ(child.Kill(), -1);
  EXPECT_FALSE(IsPresent(fd(), 6));
  EXPECT_EQ(kill(grandchild->load(), SIGKILL), 0);
}

TEST_F(Presence, RejectsASecondProcessWithTheSameNumber) {
  const Child child = StartPresent(2);
  EXPECT_TRUE(IsError(MarkPresent(fd(), 2), Code::kInternal, "byte 2"));
}

TEST_F(Presence, IsAssumedWhenTheQueryFails) { EXPECT_TRUE(IsPresent(-1, 0)); }

#if defined(__linux__)
TEST_F(Presence, OfASuspendedProcessEndsWithIt) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "needs Linux";
  const Shared<ProcessMark> process;
  Child child([&] {
    *process = OwnProcess();
    marked_->store(1);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return marked_->load() == 1; }));
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  ProcessWatch watch;
  ProcessMark in_another_namespace = *process;
  ++in_another_namespace.name_space;
  EXPECT_FALSE(watch.End(0, in_another_namespace));
  ProcessMark of_an_earlier_process = *process;
  --of_an_earlier_process.start;
  EXPECT_TRUE(watch.End(0, of_an_earlier_process));  // which has ended
  EXPECT_FALSE(watch.End(0, OwnProcess()));
  EXPECT_FALSE(watch.HasEnded(0, *process));
  EXPECT_TRUE(watch.End(0, *process));
  EXPECT_TRUE(Eventually([&] { return watch.HasEnded(0, *process); }));
  EXPECT_EQ(child.Wait(), -1);
  EXPECT_TRUE(watch.End(0, *process));
}

// Forks past the C library, as some runtimes do, so that nothing closes descriptors in the child.
pid_t ForkPastTheLibrary() {
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

TEST_F(Presence, OfAProcessThatHasEndedIsNotThatOfItsChild) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "needs Linux";
  const Shared<ProcessMark> process;
  const Shared<std::atomic<int>> grandchild;
  Child child([&] {
    const Result<Segment> mine = Segment::OpenShared(segment_.locator());
    if (!mine.ok() || !MarkPresent(mine.value().fd(), 1).ok()) return 1;
    *process = OwnProcess();
    const pid_t forked = ForkPastTheLibrary();
    if (forked == 0) return SleepForGood();
    grandchild->store(forked);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return grandchild->load() != 0; }));
  ProcessWatch watch;  // It keeps a descriptor, and new ones have none.
  EXPECT_FALSE(watch.HasEnded(1, *process));
  EXPECT_FALSE(watch.HasEnded(1, *process));
  EXPECT_FALSE(watch.HasEnded(1, OwnProcess()));  // Another process has the number.
  EXPECT_FALSE(watch.HasEnded(1, *process));
  ASSERT_EQ(kill(child.pid(), SIGKILL), 0);
  // It has ended even before its parent has waited for it.
  EXPECT_TRUE(Eventually([&] { return watch.HasEnded(1, *process); }));
  EXPECT_TRUE(ProcessWatch().HasEnded(1, *process));
  EXPECT_FALSE(watch.HasEnded(1, OwnProcess()));
  EXPECT_EQ(child.Kill(), -1);
  EXPECT_TRUE(watch.HasEnded(1, *process));
  EXPECT_TRUE(ProcessWatch().HasEnded(1, *process));
  EXPECT_TRUE(IsPresent(fd(), 1));  // The child of the process has the lock.
  kill(grandchild->load(), SIGKILL);
}

int NextDescriptor() {
  const int descriptor = dup(0);
  close(descriptor);
  return descriptor;
}

TEST(ProcessWatch, KeepsFewDescriptors) {
  const int before = NextDescriptor();
  {
    ProcessWatch watch;
    for (int number = 0; number < 100; ++number) {
      EXPECT_FALSE(watch.HasEnded(number, OwnProcess()));
    }
    EXPECT_LE(NextDescriptor(), before + 30);  // Others may lie in between.
  }
  EXPECT_EQ(NextDescriptor(), before);
}

TEST(ProcessWatch, IsFalseIfItIsNotCertain) {
  ProcessMark process = OwnProcess();
  EXPECT_FALSE(ProcessWatch().HasEnded(1, process));
  EXPECT_FALSE(ProcessWatch().HasEnded(1, ProcessMark{}));
  ProcessMark elsewhere = process;
  elsewhere.name_space += 1;
  elsewhere.id = 0x3fffffff;
  EXPECT_FALSE(ProcessWatch().HasEnded(1, elsewhere));
  if (process.start == 0) return;
  process.start -= 1;  // An earlier process with this id.
  EXPECT_TRUE(ProcessWatch().HasEnded(1, process));
}
#endif

}  // namespace
}  // namespace multiverso::testing
