#include "base/exit_deadline.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/process.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "base/wait_lines.h"

namespace multiverso {
namespace {

// The launcher ends the other ranks when this one exits, so they get this time to print the error.
constexpr std::chrono::milliseconds kGrace{500};
// The exit code of Python after an exception.
constexpr int kExitCode = 1;

// Returns the value of the first of these variables of launchers that is set, or null.
template <size_t N>
const char* FirstSet(const char* const (&variables)[N]) {
  for (const char* name : variables) {
    if (const char* value = std::getenv(name)) return value;
  }
  return nullptr;
}

// MPI knows the rank only after MPI_Init, so it is taken from the launcher.
std::string ThisRank() {
  const char* const rank =
      FirstSet({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"});
  const char* const size = FirstSet({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
  const std::string process = StrCat("process ", ProcessId());
  if (rank == nullptr) return process;
  return StrCat("rank ", rank, size == nullptr ? "" : StrCat(" of ", size), " (", process, ")");
}

}  // namespace

ExitDeadline::ExitDeadline(std::string call, std::chrono::milliseconds timeout)
    : call_(std::move(call)) {
  const Status started =
      StartThread("a thread", [this, timeout] { Run(timeout); }).StoreIn(&thread_);
  if (!started.ok()) LogWarning(StrCat(call_, " has no deadline: ", started.text()));
}

ExitDeadline::~ExitDeadline() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    has_ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ExitDeadline::Run(std::chrono::milliseconds timeout) {
  timeout = std::min(timeout, kNoLimit);
  const Instant began = Clock::now();
  const Instant deadline = began + timeout;
  WaitLines lines(began);
  for (;;) {
    if (AwaitEnd(std::min(deadline, lines.next()))) return;
    const Instant now = Clock::now();
    if (now >= deadline) break;
    LogWarning(Describe(SecondsBetween(began, now)) + LimitText(timeout, kStartTimeoutOption));
    lines.Postpone(now);
  }
  const std::string error = StrCat(
      "multiverso: OperationTimeout: ", Describe(std::chrono::duration<double>(timeout).count()),
      LimitAdvice(kStartTimeoutOption),
      ". If all ranks print this, MPI cannot connect them: `multiverso doctor --mpi` looks for the "
      "reason. This process ends\n");
  std::fputs(error.c_str(), stderr);
  std::this_thread::sleep_for(kGrace);
  // Exit handlers must not run, since that of MPI would wait too.
  std::_Exit(kExitCode);
}

bool ExitDeadline::AwaitEnd(Instant until) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return has_ended_; });
}

std::string ExitDeadline::Describe(double seconds) const {
  return StrCat(ThisRank(), ": ", call_, " has not returned within ", TimeText(seconds),
                ". The usual cause is a rank that has not made this call: one that does not print "
                "this");
}

}  // namespace multiverso
