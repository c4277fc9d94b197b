// Threads, and what they wait for: mutexes, conditions, locks for readers, and initializations.
//
// Outside of fibers, these functions are those of the C library. An object is never used on both
// sides while it is locked.
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "engine/clock.h"
#include "engine/raw_call.h"
#include "engine/simulator.h"

namespace sim {
namespace {

// Returns whether a lock is a static variable. It excludes all ranks here, so a rank that holds it
// stays in the world.
bool IsStatic(const void* lock) {
  extern char first __asm__("__data_start");
  extern char end __asm__("_end");
  return lock >= &first && lock < &end;
}

// ---- Mutexes ------------------------------------------------------------------------------------

// The fields of the C library's mutex serve the same purpose here, and are zero when it is free.
bool TryLock(pthread_mutex_t* mutex) {
  auto& fields = mutex->__data;
  const int me = current->id + 1;
  const bool is_recursive = (fields.__kind & 3) == PTHREAD_MUTEX_RECURSIVE_NP;
  if (fields.__lock != 0 && !(is_recursive && fields.__owner == me)) return false;
  if (fields.__lock == 0 && IsStatic(mutex)) EnterWorld();
  fields.__lock = 1;
  fields.__owner = me;
  ++fields.__count;
  return true;
}

int LockUntil(pthread_mutex_t* mutex, int64_t until) {
  ++stats.locks;
  PassPoint();
  while (!TryLock(mutex)) {
    ++stats.blocked_locks;
    if (Block(KeyOf(Waits::kMutex, mutex), until, "mutex")) return ETIMEDOUT;
  }
  return 0;
}

void Unlock(pthread_mutex_t* mutex) {
  auto& fields = mutex->__data;
  if (fields.__lock == 0) GiveUp("a thread unlocks a mutex that is free");
  if (--fields.__count > 0) return;
  fields.__lock = fields.__owner = 0;
  Wake(KeyOf(Waits::kMutex, mutex), 1);
  if (IsStatic(mutex)) LeaveWorld();
}

// ---- Conditions ---------------------------------------------------------------------------------

int Await(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t until) {
  Unlock(mutex);
  bool timed_out = false;
  // A wait may end for no reason, of which programs must take account.
  if (Random() % 64 == 0) {
    Yield();
  } else {
    timed_out = Block(KeyOf(Waits::kCondition, condition), until, "condition");
  }
  (void)LockUntil(mutex, kForever);
  return timed_out ? ETIMEDOUT : 0;
}

int Signal(pthread_cond_t* condition, int count) {
  Wake(KeyOf(Waits::kCondition, condition), count);
  PassPoint();
  return 0;
}

// ---- Locks for readers --------------------------------------------------------------------------

int TryShare(pthread_rwlock_t* lock) {
  if (lock->__data.__cur_writer != 0) return EBUSY;
  ++lock->__data.__readers;
  if (IsStatic(lock)) EnterWorld();
  return 0;
}

int TryOwn(pthread_rwlock_t* lock) {
  if (lock->__data.__cur_writer != 0 || lock->__data.__readers != 0) return EBUSY;
  lock->__data.__cur_writer = current->id + 1;
  if (IsStatic(lock)) EnterWorld();
  return 0;
}

int LockUntil(pthread_rwlock_t* lock, int (*try_lock)(pthread_rwlock_t*), int64_t until) {
  PassPoint();
  while (try_lock(lock) != 0) {
    if (Block(KeyOf(Waits::kReaders, lock), until, "lock for readers")) return ETIMEDOUT;
  }
  return 0;
}

// ---- Initializations ----------------------------------------------------------------------------

// The states of pthread_once_t.
constexpr int kOnceRuns = 1;
constexpr int kOnceDone = 2;

// The compiler's guard of a static variable: the first byte says that the variable exists, and the
// others are free for what the runtime needs.
struct Guard {
  char exists;
  char is_being_made;
};

void EndGuard(Guard* guard, bool exists) {
  guard->is_being_made = 0;
  guard->exists = exists ? 1 : 0;
  if (!IsInFiber()) return;
  LeaveWorld();
  Wake(KeyOf(Waits::kOnce, guard), kAll);
}

}  // namespace
}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_create)(thread, attributes, start, argument);
  PassPoint();
  Rank* const rank = current->rank;
  if (rank->threads_to_refused > 0 && --rank->threads_to_refused == 0) return EAGAIN;
  ++stats.threads;
  Fiber* const fiber = NewFiber(current->rank, nullptr);
  fiber->body = [=] { fiber->result = start(argument); };
  *thread = reinterpret_cast<pthread_t>(fiber);
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  if (!IsInFiber()) return SIM_REAL(pthread_join)(thread, result);
  PassPoint();
  auto* const fiber = reinterpret_cast<Fiber*>(thread);
  while (fiber->state != FiberState::kDone) {
    Block(KeyOf(Waits::kJoin, fiber), kForever, "join");
  }
  if (result != nullptr) *result = fiber->result;
  return 0;
}

int pthread_detach(pthread_t thread) noexcept {
  return IsInFiber() ? 0 : SIM_REAL(pthread_detach)(thread);
}

pthread_t pthread_self() noexcept {
  return IsInFiber() ? reinterpret_cast<pthread_t>(current) : SIM_REAL(pthread_self)();
}

// The destructors of thread_local variables run when the fiber ends, with its copy of the
// variables.
int __cxa_thread_atexit(void (*destroy)(void*), void* object, void*) noexcept {
  if (IsInFiber()) current->at_end.emplace_back([=] { destroy(object); });
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return IsInFiber() ? LockUntil(mutex, kForever) : SIM_REAL(pthread_mutex_lock)(mutex);
}
int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) noexcept {
  return IsInFiber() ? LockUntil(mutex, FromClock(CLOCK_REALTIME, *until))
                     : SIM_REAL(pthread_mutex_timedlock)(mutex, until);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const timespec* until) noexcept {
  return IsInFiber() ? LockUntil(mutex, FromClock(clock, *until))
                     : SIM_REAL(pthread_mutex_clocklock)(mutex, clock, until);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_mutex_trylock)(mutex);
  PassPoint();
  return TryLock(mutex) ? 0 : EBUSY;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_mutex_unlock)(mutex);
  Unlock(mutex);
  PassPoint();
  return 0;
}

// The clock of a condition whose wait names none is that of its attributes, which nothing here
// sets.
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return IsInFiber() ? Await(condition, mutex, kForever)
                     : SIM_REAL(pthread_cond_wait)(condition, mutex);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  return IsInFiber() ? Await(condition, mutex, FromClock(CLOCK_REALTIME, *until))
                     : SIM_REAL(pthread_cond_timedwait)(condition, mutex, until);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  return IsInFiber() ? Await(condition, mutex, FromClock(clock, *until))
                     : SIM_REAL(pthread_cond_clockwait)(condition, mutex, clock, until);
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  return IsInFiber() ? Signal(condition, 1) : SIM_REAL(pthread_cond_signal)(condition);
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  return IsInFiber() ? Signal(condition, kAll) : SIM_REAL(pthread_cond_broadcast)(condition);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return IsInFiber() ? LockUntil(lock, TryShare, kForever) : SIM_REAL(pthread_rwlock_rdlock)(lock);
}
int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_rwlock_tryrdlock)(lock);
  PassPoint();
  return TryShare(lock);
}
int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock,
                               const timespec* until) noexcept {
  return IsInFiber() ? LockUntil(lock, TryShare, FromClock(clock, *until))
                     : SIM_REAL(pthread_rwlock_clockrdlock)(lock, clock, until);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return IsInFiber() ? LockUntil(lock, TryOwn, kForever) : SIM_REAL(pthread_rwlock_wrlock)(lock);
}
int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_rwlock_trywrlock)(lock);
  PassPoint();
  return TryOwn(lock);
}
int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock,
                               const timespec* until) noexcept {
  return IsInFiber() ? LockUntil(lock, TryOwn, FromClock(clock, *until))
                     : SIM_REAL(pthread_rwlock_clockwrlock)(lock, clock, until);
}
int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  if (!IsInFiber()) return SIM_REAL(pthread_rwlock_unlock)(lock);
  auto& fields = lock->__data;
  if (fields.__cur_writer != 0) {
    fields.__cur_writer = 0;
  } else {
    --fields.__readers;
  }
  if (IsStatic(lock)) LeaveWorld();
  if (fields.__readers == 0) Wake(KeyOf(Waits::kReaders, lock), kAll);
  PassPoint();
  return 0;
}

int pthread_once(pthread_once_t* once, void (*function)()) {
  if (!IsInFiber()) return SIM_REAL(pthread_once)(once, function);
  PassPoint();
  while (*once == kOnceRuns) Block(KeyOf(Waits::kOnce, once), kForever, "once");
  if (*once == kOnceDone) return 0;
  *once = kOnceRuns;
  {
    const World world;
    try {
      function();
    } catch (...) {
      *once = 0;
      Wake(KeyOf(Waits::kOnce, once), kAll);
      throw;
    }
  }
  *once = kOnceDone;
  Wake(KeyOf(Waits::kOnce, once), kAll);
  return 0;
}

int __cxa_guard_acquire(Guard* guard) noexcept {
  if (guard->exists != 0) return 0;
  if (IsInFiber()) PassPoint();
  while (guard->is_being_made != 0) Block(KeyOf(Waits::kOnce, guard), kForever, "static variable");
  if (guard->exists != 0) return 0;
  guard->is_being_made = 1;
  EnterWorld();
  return 1;
}
void __cxa_guard_release(Guard* guard) noexcept { EndGuard(guard, true); }
void __cxa_guard_abort(Guard* guard) noexcept { EndGuard(guard, false); }

// There are no signals in the simulation.
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  return IsInFiber() ? 0 : SIM_REAL(pthread_sigmask)(how, set, before);
}
int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  if (!IsInFiber()) return SIM_REAL(sigaction)(number, action, before);
  if (before != nullptr) *before = {};
  return 0;
}

}  // extern "C"
