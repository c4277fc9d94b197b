// SIGTERM in processes that a rank has started. Batch systems send it to all processes of a job as
// a notice, which concerns only the ranks; the rank itself sends it to end such a process. Only the
// sender tells the two apart, and Python does not tell a handler who has sent a signal.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/text.h"
#include "c_api/guard.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

// The process whose SIGTERM ends this one, and what the signal did before.
std::atomic<pid_t> starter{0};
struct sigaction earlier{};

// Runs as a handler of SIGTERM, so it makes only calls that are safe there.
void IgnoreOthers(int number, siginfo_t* info, void* context) {
  const int old_errno = errno;
  const pid_t parent = starter.load(std::memory_order_relaxed);
  const bool is_told = info->si_pid == parent || (kill(parent, 0) != 0 && errno == ESRCH);
  errno = old_errno;
  if (!is_told) return;
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    earlier.sa_sigaction(number, info, context);
  } else if (earlier.sa_handler == SIG_DFL) {
    (void)sigaction(number, &earlier, nullptr);
    (void)raise(number);  // It is blocked here, and ends the process when this function returns.
  } else if (earlier.sa_handler != SIG_IGN) {
    earlier.sa_handler(number);
  }
}

}  // namespace
}  // namespace multiverso::c_api

int32_t MV_IgnoreNotice(int64_t parent) {
  using multiverso::Code;
  using multiverso::Status;
  using namespace multiverso::c_api;
  return Guard([&]() -> Status {
    if (parent <= 0) {
      return Status(Code::kValue,
                    multiverso::StrCat("MV_IgnoreNotice: expected a process, received ", parent));
    }
    starter.store(static_cast<pid_t>(parent), std::memory_order_relaxed);
    struct sigaction found{};
    (void)sigaction(SIGTERM, nullptr, &found);
    if ((found.sa_flags & SA_SIGINFO) != 0 && found.sa_sigaction == &IgnoreOthers) {
      return Status::Ok();
    }
    earlier = found;
    struct sigaction handler{};
    handler.sa_sigaction = &IgnoreOthers;
    // A handler of Python runs only when the call that it has interrupted returns.
    const int restarts = found.sa_handler == SIG_DFL ? SA_RESTART : found.sa_flags & SA_RESTART;
    handler.sa_flags = SA_SIGINFO | restarts;
    sigemptyset(&handler.sa_mask);
    (void)sigaction(SIGTERM, &handler, nullptr);
    return Status::Ok();
  });
}
