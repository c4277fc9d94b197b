// System calls that the library makes by number.
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <string>

#include "engine/clock.h"
#include "engine/memory.h"
#include "engine/processes.h"
#include "engine/raw_call.h"
#include "engine/reordering.h"
#include "engine/simulator.h"

namespace sim {
namespace {

long Fail(int error) {
  errno = error;
  return -1;
}

// Waits while the word has that value. `timeout` is a duration, or null.
long AwaitWord(const uint32_t* word, uint32_t value, const timespec* timeout) {
  PassPoint();
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return Fail(EAGAIN);
  ++stats.futex_waits;
  const int64_t until = timeout == nullptr ? kForever : Now() + NanosecondsOf(*timeout) + Delay();
  if (!Block(KeyOfWord(word), until, "futex")) return 0;
  ++stats.futex_timeouts;
  return Fail(ETIMEDOUT);
}

long Futex(const long* a) {
  const auto* const word = reinterpret_cast<const uint32_t*>(a[0]);
  const int operation = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
  if (operation == FUTEX_WAIT) {
    return AwaitWord(word, static_cast<uint32_t>(a[2]), reinterpret_cast<const timespec*>(a[3]));
  }
  if (operation != FUTEX_WAKE)
    GiveUp("the simulation has no futex operation " + std::to_string(operation));
  ++stats.futex_wakes;
  const int woken = Wake(KeyOfWord(word), static_cast<int>(a[2]));
  PassPoint(4);
  return woken;
}

long Call(long number, const long* a) {
  OrderMemory();
  switch (number) {
    case SYS_futex:
      return Futex(a);
    case SYS_pidfd_open:
      return OpenProcess(static_cast<int>(a[0]));
    case SYS_pidfd_send_signal:
      return SignalProcess(static_cast<int>(a[0]), static_cast<int>(a[1]));
    case SYS_get_mempolicy:  // a machine with one memory
    case SYS_mbind:
      return Fail(ENOSYS);
    default:
      GiveUp("the simulation has no system call " + std::to_string(number));
  }
}

}  // namespace
}  // namespace sim

// A call may have fewer arguments than are read here, as in the C library, whose function is not
// compiled with AddressSanitizer.
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (sim::IsInFiber()) return sim::Call(number, arguments);
  return sim::RawCall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                      arguments[5]);
}
