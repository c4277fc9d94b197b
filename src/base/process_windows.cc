#include <algorithm>

#include "base/process.h"
#include "base/windows.h"

namespace multiverso {

const char* PlatformName() { return "windows"; }

int64_t ProcessId() { return static_cast<int64_t>(GetCurrentProcessId()); }

int64_t ProcessStart(int64_t process) { return process == ProcessId() ? 1 : 0; }

int64_t OnlineCores() {
  return std::max<int64_t>(1, GetActiveProcessorCount(ALL_PROCESSOR_GROUPS));
}

int64_t AllowedCores() { return OnlineCores(); }

bool CallInForkedChildren(void (* /*function*/)()) { return true; }

bool CallWithExitCode(void (* /*function*/)(int code)) { return false; }

}  // namespace multiverso
