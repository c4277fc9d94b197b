#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/process.h"
#include "base/text.h"

namespace multiverso {

const char* PlatformName() { return "linux"; }

int64_t AllowedCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

int64_t ProcessStart(int64_t process) {
  std::ifstream file(StrCat("/proc/", process, "/stat"));
  std::stringstream content;
  content << file.rdbuf();
  // The format is "pid (name) state parent ...", where the name may contain anything.
  const std::string text = content.str();
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  char state = 0;
  long long start = 0;
  const int found = std::sscanf(text.c_str() + name_end + 1,
                                " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                "%*d %*d %*d %lld",
                                &state, &start);
  const bool has_ended = state == 'Z' || state == 'X';
  return found == 2 && !has_ended ? start : 0;
}

bool CallWithExitCode([[maybe_unused]] void (*function)(int code)) {
#if defined(__GLIBC__)
  const auto call = [](int code, void* given) { reinterpret_cast<void (*)(int)>(given)(code); };
  return on_exit(call, reinterpret_cast<void*>(function)) == 0;
#else
  return false;
#endif
}

}  // namespace multiverso
