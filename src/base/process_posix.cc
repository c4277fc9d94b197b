#include <signal.h>
#include <sys/types.h>

#include <cerrno>

#include "base/process.h"

namespace multiverso {

const char* PlatformName() { return "posix"; }

int64_t AllowedCores() { return OnlineCores(); }

int64_t ProcessStart(int64_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM ? 1 : 0;
}

bool CallWithExitCode(void (* /*function*/)(int code)) { return false; }

}  // namespace multiverso
