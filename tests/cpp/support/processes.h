// Processes of a test: children that run a function, memory that they share with their parent, a
// probe that reports a process as dead, and checks of what a process leaves behind.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "base/clock.h"
#include "memory/robust_lock.h"

namespace multiverso::testing {

// The longest wait of a test for an event that must happen.
#if defined(__SANITIZE_THREAD__)  // There, a job of 33 nodes in one process takes minutes.
constexpr auto kPatience = std::chrono::seconds(300);
#else
constexpr auto kPatience = std::chrono::seconds(30);
#endif
inline Instant Patience() { return Clock::now() + kPatience; }

// Polls `done` until it returns true or kPatience has passed. Returns its last value.
template <class Done>
bool Eventually(Done done) {
  const Instant deadline = Patience();
  while (!done()) {
    if (Clock::now() >= deadline) return done();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// A T that forked children share with their parent.
template <class T>
class Shared {
 public:
  Shared() {
    void* const memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    value_ = new (memory) T{};
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }
  T* get() const { return value_; }

 private:
  T* value_;
};

// A forked process that runs `body` and exits with its result. A child that is still running is
// killed at the end of the scope.
class Child {
 public:
  template <class Body>
  explicit Child(const Body& body) : pid_(fork()) {
    // An exception must not return to the tests of the parent.
    if (pid_ == 0) [&]() noexcept { _exit(body()); }();
  }
  ~Child() { (void)Kill(); }
  Child(Child&& other) noexcept : pid_(other.pid_) { other.pid_ = -1; }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }

  // Returns the exit code of the child, -1 if a signal ended the child, or -2 if the child is still
  // running after kPatience.
  int Wait() {
    int status = 0;
    if (!Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -2;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Kills the child with SIGKILL and returns the result of Wait, or 0 if Wait has seen it end.
  int Kill() {
    if (pid_ <= 0) return 0;
    kill(pid_, SIGKILL);
    return Wait();
  }

 private:
  pid_t pid_;
};

// Returns the number of directory entries that begin with `prefix`.
inline int CountEntries(const char* directory, const std::string& prefix) {
  int count = 0;
  DIR* const listing = opendir(directory);
  if (listing == nullptr) return 0;
  while (const dirent* entry = readdir(listing)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) ++count;
  }
  closedir(listing);
  return count;
}

// Reports every holder of a lock except `dead` as alive.
struct FakeProbe final : OwnerProbe {
  explicit FakeProbe(int dead_owner = -1) : dead(dead_owner) {}
  bool IsAlive(int owner) const override { return owner != dead; }
  int dead;
};

inline int OpenDescriptors() { return CountEntries("/proc/self/fd", ""); }

// Sleeps in a child until the child is killed, but at most for longer than its parent waits.
inline int SleepForGood() {
  std::this_thread::sleep_for(2 * kPatience);
  return 1;
}

}  // namespace multiverso::testing
