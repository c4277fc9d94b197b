#include "engine/clock.h"

#include <sys/random.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "engine/raw_call.h"
#include "engine/simulator.h"

namespace sim {
namespace {

constexpr int64_t kSecond = 1000000000;
// What the clock of the date shows when the others show zero: a day in 2023.
constexpr int64_t kDate = 1700000000 * kSecond;

int64_t OffsetOf(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? kDate : 0;
}

int64_t Read(clockid_t clock) {
  PassPoint();
  return Now() + OffsetOf(clock);
}

void SleepFor(int64_t ns) {
  ++stats.sleeps;
  Block(Key(), Now() + (ns > 0 ? ns : 0) + Delay(), "sleep");
}

}  // namespace

int64_t NanosecondsOf(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t FromClock(clockid_t clock, const timespec& time) {
  return NanosecondsOf(time) - OffsetOf(clock);
}

int64_t Delay() { return static_cast<int64_t>(Random() % 60000); }

}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  if (!IsInFiber()) {
    return static_cast<int>(RawCall(SYS_clock_gettime, clock, reinterpret_cast<long>(out)));
  }
  const int64_t now = Read(clock);
  out->tv_sec = now / kSecond;
  out->tv_nsec = now % kSecond;
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t now = IsInFiber() ? Read(CLOCK_REALTIME) / kSecond : SIM_REAL(time)(nullptr);
  if (out != nullptr) *out = now;
  return now;
}

int gettimeofday(timeval* out, void* zone) noexcept {
  if (!IsInFiber()) return SIM_REAL(gettimeofday)(out, zone);
  const int64_t now = Read(CLOCK_REALTIME);
  out->tv_sec = now / kSecond;
  out->tv_usec = now % kSecond / 1000;
  return 0;
}

int nanosleep(const timespec* duration, timespec* left) {
  if (!IsInFiber()) return SIM_REAL(nanosleep)(duration, left);
  SleepFor(NanosecondsOf(*duration));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* duration, timespec* left) {
  if (!IsInFiber()) return SIM_REAL(clock_nanosleep)(clock, flags, duration, left);
  const bool is_absolute = (flags & TIMER_ABSTIME) != 0;
  SleepFor(is_absolute ? FromClock(clock, *duration) - Now() : NanosecondsOf(*duration));
  return 0;
}

int usleep(useconds_t microseconds) {
  if (!IsInFiber()) return SIM_REAL(usleep)(microseconds);
  SleepFor(int64_t{microseconds} * 1000);
  return 0;
}

unsigned sleep(unsigned seconds) {
  if (!IsInFiber()) return SIM_REAL(sleep)(seconds);
  SleepFor(seconds * kSecond);
  return 0;
}

int sched_yield() noexcept {
  if (!IsInFiber()) return SIM_REAL(sched_yield)();
  ++stats.yields;
  PassPoint(8);
  Yield();
  return 0;
}

// ---- Chance
// --------------------------------------------------------------------------------------

int getentropy(void* out, size_t bytes) {
  if (!IsInFiber()) return SIM_REAL(getentropy)(out, bytes);
  auto* const to = static_cast<unsigned char*>(out);
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(Random());
  return 0;
}

ssize_t getrandom(void* out, size_t bytes, unsigned flags) {
  if (!IsInFiber()) return SIM_REAL(getrandom)(out, bytes, flags);
  getentropy(out, bytes);
  return static_cast<ssize_t>(bytes);
}

}  // extern "C"

// The C++ library would ask the processor, whose instruction nothing can replace.
namespace std {
random_device::result_type random_device::_M_getval() {
  return IsInFiber() ? static_cast<result_type>(Random()) : 4;
}
}  // namespace std
