#include "engine/processes.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "engine/raw_call.h"
#include "engine/sockets.h"

namespace sim {
namespace {

int Fail(int error) {
  errno = error;
  return -1;
}

int Signal(Rank* rank, int number) {
  PassPoint();
  if (rank == nullptr || rank->has_ended) return Fail(ESRCH);
  if (number == 0) return 0;
  if (number != SIGKILL) GiveUp("the simulation has no signal " + std::to_string(number));
  if (!CurrentOptions().may_signal && rank != current->rank) return Fail(EPERM);
  KillNow(rank->number);
  return 0;
}

}  // namespace

Rank* FindProcess(int64_t pid) {
  Rank* const rank = FindRank(static_cast<int>(pid - kFirstProcess));
  return rank != nullptr && rank->machine == current->rank->machine ? rank : nullptr;
}

std::string StatOf(const Rank& rank) {
  const int64_t pid = kFirstProcess + rank.number;
  const int64_t start = 1000 + rank.number;
  return std::to_string(pid) + " (rank) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " +
         std::to_string(start) + " 0 0\n";
}

int OpenProcess(int pid) {
  PassPoint();
  const Rank* const rank = FindProcess(pid);
  return rank == nullptr || rank->has_ended ? Fail(ESRCH) : OpenEndOf(rank->number);
}

int SignalProcess(int descriptor, int signal) {
  const int rank = ProcessOf(descriptor);
  return rank < 0 ? Fail(EBADF) : Signal(FindRank(rank), signal);
}

}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

pid_t getpid() noexcept {
  if (!IsInFiber() || CurrentRank() < 0) return static_cast<pid_t>(RawCall(SYS_getpid));
  return kFirstProcess + CurrentRank();
}

// A process that no rank may look at, like the launcher of another user.
pid_t getppid() noexcept { return IsInFiber() ? 1 : static_cast<pid_t>(RawCall(SYS_getppid)); }

int kill(pid_t pid, int number) noexcept {
  if (!IsInFiber()) return static_cast<int>(RawCall(SYS_kill, pid, number));
  return pid == 1 ? Fail(EPERM) : Signal(FindProcess(pid), number);
}

int raise(int number) noexcept {
  return IsInFiber() ? kill(getpid(), number) : SIM_REAL(raise)(number);
}

// The end of a process is that of a rank. A handler of signals ends the whole program with _exit,
// which the library does not call.
[[noreturn]] void _Exit(int code) noexcept {
  if (IsInFiber()) ExitCurrent();
  _exit(code);
}
[[noreturn]] void exit(int code) noexcept {
  if (IsInFiber()) ExitCurrent();
  SIM_REAL(exit)(code);
  for (;;) continue;
}

char* getenv(const char* name) noexcept {
  if (IsInFiber()) {
    const auto found = current->rank->variables.find(name);
    if (found != current->rank->variables.end()) return found->second.data();
  }
  return SIM_REAL(getenv)(name);
}

// ---- The machine, which is the same wherever a simulation runs ----------------------------------

int gethostname(char* name, size_t bytes) noexcept {
  if (!IsInFiber()) return SIM_REAL(gethostname)(name, bytes);
  const std::string host = "machine-" + std::to_string(current->rank->machine);
  strncpy(name, host.c_str(), bytes);
  return 0;
}

int get_nprocs() noexcept { return IsInFiber() ? CurrentOptions().cores : SIM_REAL(get_nprocs)(); }

long sysconf(int name) noexcept {
  const bool is_cores = name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF;
  return IsInFiber() && is_cores ? CurrentOptions().cores : SIM_REAL(sysconf)(name);
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* cores) noexcept {
  if (!IsInFiber()) return SIM_REAL(sched_getaffinity)(pid, bytes, cores);
  CPU_ZERO_S(bytes, cores);
  for (int core = 0; core < CurrentOptions().cores; ++core) CPU_SET_S(core, bytes, cores);
  return 0;
}

int sysinfo(struct sysinfo* info) noexcept {
  if (!IsInFiber()) return SIM_REAL(sysinfo)(info);
  *info = {};
  info->mem_unit = 1;
  info->totalram = info->freeram = uint64_t{64} << 30;
  return 0;
}

// The library sets nothing that the simulation has.
int prctl(int option, ...) noexcept {
  if (!IsInFiber()) GiveUp("prctl outside of the simulation, option " + std::to_string(option));
  return 0;
}

}  // extern "C"
