// The clock of the library with failpoints: with MULTIVERSO_CLOCK_FACTOR=5, a deadline of ten
// seconds passes after two, and messages still say ten.
//
// The linker replaces the functions below in that library only (cmake/failpoints.cmake). All
// processes of a machine that have the same factor agree about the time, as without one.
#if defined(MULTIVERSO_FAILPOINTS)

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t Factor() {
  static const int64_t factor = [] {
    const char* const text = std::getenv("MULTIVERSO_CLOCK_FACTOR");
    const int number = text == nullptr ? 1 : std::atoi(text);
    return int64_t{number < 1 ? 1 : number};
  }();
  return factor;
}

int64_t NanosecondsOf(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

timespec TimespecOf(int64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / kSecond), static_cast<long>(nanoseconds % kSecond)};
}

// Returns the real time of a time of the library. It is rounded up, so that no wait ends early.
timespec RealOf(const timespec& time) {
  return TimespecOf((NanosecondsOf(time) + Factor() - 1) / Factor());
}

bool IsScaled(clockid_t clock) {
  return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
}

}  // namespace

extern "C" {

int __real_clock_gettime(clockid_t clock, timespec* time);
int __real_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until);
int __real_nanosleep(const timespec* time, timespec* remaining);
int __real_poll(pollfd* polled, nfds_t count, int milliseconds);
long __real_syscall(long number, ...);

int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  const int result = __real_clock_gettime(clock, time);
  if (result == 0 && IsScaled(clock)) *time = TimespecOf(NanosecondsOf(*time) * Factor());
  return result;
}

// The name is that of std::chrono::steady_clock::now, which is not compiled into the library.
std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  timespec time{};
  (void)__wrap_clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(NanosecondsOf(time)));
}

int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
  const timespec real = IsScaled(clock) ? RealOf(*until) : *until;
  return __real_pthread_cond_clockwait(condition, mutex, clock, &real);
}

int __wrap_nanosleep(const timespec* time, timespec* remaining) {
  const timespec real = RealOf(*time);
  const int result = __real_nanosleep(&real, remaining);
  if (result != 0 && remaining != nullptr) {
    *remaining = TimespecOf(NanosecondsOf(*remaining) * Factor());
  }
  return result;
}

int __wrap_poll(pollfd* polled, nfds_t count, int milliseconds) {
  const int factor = static_cast<int>(Factor());
  return __real_poll(polled, count,
                     milliseconds > 0 ? (milliseconds + factor - 1) / factor : milliseconds);
}

// Like that of the C library, it passes on six arguments, whether the caller has given them or not.
long __wrap_syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec real{};
  const auto* const time = reinterpret_cast<const timespec*>(arguments[3]);
  if (number == SYS_futex && arguments[1] == FUTEX_WAIT && time != nullptr) {
    real = RealOf(*time);
    arguments[3] = reinterpret_cast<long>(&real);
  }
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                        arguments[4], arguments[5]);
}

}  // extern "C"

#endif
