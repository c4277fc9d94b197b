// Functions of the C library that block, read the real time or chance, or make processes, and that
// the simulation does not have. In a fiber, they end the program with their names, so that a change
// of the library cannot make a simulation hang or differ from run to run. Outside of fibers, they
// do what they always do.
#include <string>

#include "engine/raw_call.h"
#include "engine/simulator.h"

namespace sim {
namespace {

// Any of these functions takes at most six arguments in registers of integers.
using Function = long (*)(long, long, long, long, long, long);

void CheckOutside(const char* name) {
  if (IsInFiber()) GiveUp(std::string("the simulation does not have the function ") + name);
}

}  // namespace
}  // namespace sim

// The assembler's name leaves the function's declaration in the headers alone.
#define SIM_REFUSE(name)                                                                  \
  extern "C" long sim_refused_##name(long a, long b, long c, long d, long e,              \
                                     long f) __asm__(#name);                              \
  extern "C" long sim_refused_##name(long a, long b, long c, long d, long e, long f) {    \
    sim::CheckOutside(#name);                                                             \
    static const auto found = reinterpret_cast<sim::Function>(sim::FindInLibrary(#name)); \
    return found(a, b, c, d, e, f);                                                       \
  }

SIM_REFUSE(fork)
SIM_REFUSE(vfork)
SIM_REFUSE(system)
SIM_REFUSE(popen)
SIM_REFUSE(posix_spawn)
SIM_REFUSE(execve)
SIM_REFUSE(wait)
SIM_REFUSE(waitpid)
SIM_REFUSE(waitid)
SIM_REFUSE(select)
SIM_REFUSE(pselect)
SIM_REFUSE(ppoll)
SIM_REFUSE(epoll_create1)
SIM_REFUSE(epoll_wait)
SIM_REFUSE(eventfd)
SIM_REFUSE(timerfd_create)
SIM_REFUSE(timer_create)
SIM_REFUSE(setitimer)
SIM_REFUSE(alarm)
SIM_REFUSE(pause)
SIM_REFUSE(sigwait)
SIM_REFUSE(sigtimedwait)
SIM_REFUSE(sigsuspend)
SIM_REFUSE(sem_wait)
SIM_REFUSE(sem_timedwait)
SIM_REFUSE(sem_clockwait)
SIM_REFUSE(pthread_barrier_wait)
SIM_REFUSE(pthread_spin_lock)
SIM_REFUSE(pthread_cancel)
SIM_REFUSE(pthread_exit)
SIM_REFUSE(pthread_kill)
SIM_REFUSE(pthread_timedjoin_np)
SIM_REFUSE(pthread_tryjoin_np)
SIM_REFUSE(pthread_rwlock_timedrdlock)
SIM_REFUSE(pthread_rwlock_timedwrlock)
SIM_REFUSE(thrd_create)
SIM_REFUSE(mtx_lock)
SIM_REFUSE(cnd_wait)
SIM_REFUSE(rand)
SIM_REFUSE(random)
SIM_REFUSE(arc4random)
SIM_REFUSE(clock)
SIM_REFUSE(timespec_get)
SIM_REFUSE(times)
SIM_REFUSE(getrusage)
SIM_REFUSE(dup)
SIM_REFUSE(dup2)
SIM_REFUSE(dup3)
SIM_REFUSE(pipe)
SIM_REFUSE(socketpair)
SIM_REFUSE(accept)
SIM_REFUSE(shutdown)
SIM_REFUSE(recvfrom)
SIM_REFUSE(sendto)
SIM_REFUSE(recvmsg)
SIM_REFUSE(sendmsg)
SIM_REFUSE(getaddrinfo)
SIM_REFUSE(lockf)
SIM_REFUSE(shm_open)
SIM_REFUSE(mremap)
SIM_REFUSE(mlock)
SIM_REFUSE(quick_exit)
