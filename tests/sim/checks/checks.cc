#include "checks/checks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "checks/traffic.h"
#include "engine/scheduler.h"
#include "memory/limits.h"
#include "memory/presence.h"
#include "memory/segment.h"
#include "session/joining.h"
#include "session/session.h"
#include "session/session_opening.h"
#include "world/network.h"

namespace sim {
namespace {

using multiverso::Clock;
using multiverso::Segment;
using multiverso::Session;
using multiverso::SessionOptions;

constexpr int64_t kMillisecond = 1000000;
constexpr int64_t kSecond = 1000 * kMillisecond;

int failures = 0;
const char* check = "";

void Expect(bool is_true, const std::string& what) {
  if (is_true) return;
  ++failures;
  std::printf("%s: expected that %s\n", check, what.c_str());
}

// Runs one simulation. `prepare` spawns its fibers.
void Simulate(const char* name, const std::function<void()>& prepare) {
  check = name;
  Options options;
  options.mean_run = 3;
  Start(options);
  prepare();
  const bool is_over = Run();
  Expect(is_over, "it ends: " + Why());
  Finish();
}

// ---- Threads and time
// ----------------------------------------------------------------------------

thread_local std::string text_of_thread = "new";

void CheckThreads() {
  Simulate("thread_local variables", [] {
    for (int rank = 0; rank < 2; ++rank) {
      Spawn(rank, [rank] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
          threads.emplace_back([=] {
            const std::string mine = std::to_string(10 * rank + i);
            Expect(text_of_thread == "new", "a thread has its own variable");
            text_of_thread = mine;
            errno = 100 + i;
            for (int turn = 0; turn < 20; ++turn) Yield();
            Expect(text_of_thread == mine, "no other thread changes the variable");
            Expect(errno == 100 + i, "no other thread changes errno");
          });
        }
        std::set<std::thread::id> ids;
        for (std::thread& thread : threads) ids.insert(thread.get_id());
        ids.insert(std::this_thread::get_id());
        Expect(ids.size() == 4, "threads have different ids");
        for (std::thread& thread : threads) thread.join();
      });
    }
  });
}

void CheckClocks() {
  Simulate("clocks", [] {
    Spawn(0, [] {
      std::mutex mutex;
      std::condition_variable condition;
      std::unique_lock<std::mutex> lock(mutex);
      const int64_t begin = Now();
      const auto never = [] { return false; };
      condition.wait_for(lock, std::chrono::seconds(2), never);
      Expect(Now() - begin >= 2 * kSecond && Now() - begin < 3 * kSecond, "a wait takes 2 s");
      condition.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(2), never);
      Expect(Now() - begin >= 4 * kSecond && Now() - begin < 5 * kSecond,
             "a wait up to a date takes 2 s");
      std::this_thread::sleep_for(std::chrono::hours(1000) / 10000);
      Expect(std::random_device{}() != std::random_device{}(), "chance has different values");
    });
  });
}

// ---- Processes
// -----------------------------------------------------------------------------------

bool IsRunning(int64_t pid) { return kill(static_cast<pid_t>(pid), 0) == 0; }

void CheckKill() {
  Simulate("a kill", [] {
    static int64_t pid = 0;
    static multiverso::SegmentLocator locator;
    static multiverso::ProcessMark mark;
    pid = 0;
    Spawn(0, [] {
      auto segment = Segment::CreateShared(4096, 0, multiverso::PageSize::kSmall);
      Expect(multiverso::MarkPresent(segment->fd(), 0).ok(), "a process can mark itself");
      locator = segment->locator();
      mark = multiverso::OwnProcess();
      pid = getpid();
      for (;;) Yield();
    });
    Spawn(1, [] {
      while (pid == 0) Yield();
      auto segment = Segment::OpenShared(locator);
      Expect(segment.ok(), "another process can open the segment");
      if (!segment.ok()) return;
      multiverso::ProcessWatch watch;
      Expect(!watch.HasEnded(0, mark) && IsRunning(pid), "the process runs");
      Expect(multiverso::IsPresent(segment->fd(), 0), "its mark is there");
      KillNow(0);
      Expect(watch.HasEnded(0, mark) && !IsRunning(pid), "the process has ended");
      Expect(!multiverso::IsPresent(segment->fd(), 0), "its mark has ended with it");
      const bool is_named = locator.path[0] != '\0';
      Expect(is_named || !Segment::OpenShared(locator).ok(), "its descriptors are closed");
      const Holdings left = LeftBy(0), now = HeldBy(0);
      Expect(left.descriptors == 1 && left.mappings >= 1, "it held a segment at its death");
      Expect(now.descriptors == 0 && now.mappings == 0, "it holds nothing any more");
    });
  });
}

void CheckEnd() {
  Simulate("the end of a process", [] {
    Spawn(0, [] {
      (void)memfd_create("left", 0);
      std::thread([] {
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      }).detach();
    });
    Spawn(1, [] {
      while (!HasEnded(0)) SleepUntil(Now() + kMillisecond);
      Expect(LeftBy(0).threads == 1 && LeftBy(0).descriptors == 1, "what it left is counted");
      Expect(HeldBy(0).threads == 0 && HeldBy(0).descriptors == 0, "what it left is gone");
      Expect(!IsDead(0), "it was not killed");
    });
  });
}

void CheckMemory() {
  Simulate("memory limits", [] {
    for (int rank = 0; rank < 2; ++rank) {
      Spawn(rank, [] {
        Expect(multiverso::CheckFitsInMemory(int64_t{1} << 30).ok(), "a gibibyte fits");
        Expect(!multiverso::CheckFitsInMemory(int64_t{1} << 50).ok(), "a pebibyte does not");
      });
    }
  });
}

// ---- An elastic session
// --------------------------------------------------------------------------

SessionOptions ElasticOptions() {
  SessionOptions options;
  options.is_elastic = true;
  std::snprintf(options.name, sizeof(options.name), "elastic");
  return options;
}

// One rank opens the session. Two join it, and one of these is killed.
void CheckElastic() {
  Simulate("an elastic session", [] {
    static int joined = 0, met = 0;
    joined = met = 0;
    const auto hub = std::make_shared<Hub>(1);
    const auto network = std::make_shared<Network>(1);
    Spawn(0, [=] {
      auto session = multiverso::OpenSession(ElasticOptions(),
                                             std::make_unique<SimTransport>(hub, network, 0));
      Expect(session.ok(), "the session opens: " + session.status().text());
      if (!session.ok()) return;
      while (joined < 2) SleepUntil(Now() + kMillisecond);
      KillNow(2);
      const multiverso::Status status = session.value()->Barrier();
      Expect(status.ok(), "a barrier leaves the dead rank out: " + status.text());
      ++met;
      (void)session.value()->Close();
    });
    for (int rank = 1; rank < 3; ++rank) {
      Spawn(rank, [rank] {
        SleepUntil(Now() + 100 * kMillisecond);
        auto session = multiverso::JoinSession(ElasticOptions(), "elastic", nullptr);
        Expect(session.ok(), "a rank joins: " + session.status().text());
        if (!session.ok()) return;
        ++joined;
        while (rank == 2) Yield();
        const multiverso::Status status = session.value()->Barrier();
        Expect(status.ok(), "a joiner takes part in a barrier: " + status.text());
        ++met;
        (void)session.value()->Close();
      });
    }
    Spawn(-1, [] {
      while (met < 2) SleepUntil(Now() + kSecond);
      Expect(Now() - StartOfTime() < 20 * kSecond, "the loss is noticed at once");
    });
  });
}

void CheckTraffic() {
  check = "traffic";
  constexpr int kNodes = 5;
  const auto sent = TrafficOfBarriers(kNodes, 3);
  const auto exchange = sent.find(multiverso::kExchangeTag);
  Expect(exchange != sent.end() && exchange->second.messages >= kNodes - 1,
         "the leaders of nodes exchange messages in a barrier");
}

}  // namespace

int RunChecks() {
  failures = 0;
  setenv("MULTIVERSO_LOG", "off", 0);
  for (void (*run)() :
       {CheckThreads, CheckClocks, CheckKill, CheckEnd, CheckMemory, CheckElastic, CheckTraffic}) {
    run();
  }
  std::printf("simulation: %d expectations failed\n", failures);
  return failures;
}

}  // namespace sim
