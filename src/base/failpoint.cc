#include "base/failpoint.h"

#if defined(MULTIVERSO_FAILPOINTS)

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace multiverso {
namespace {

// Returns the ACTION of "NAME@N=ACTION" among the comma-separated settings, or an empty string if
// no setting has that place.
std::string ActionAt(const std::string& setting, const std::string& place) {
  for (size_t begin = 0; begin < setting.size();) {
    const size_t end = std::min(setting.find(',', begin), setting.size());
    const std::string part = setting.substr(begin, end - begin);
    if (part.rfind(place + "=", 0) == 0) return part.substr(place.size() + 1);
    begin = end + 1;
  }
  return "";
}

}  // namespace

bool HitFailpoint(const char* name) {
  const char* const setting = std::getenv("MULTIVERSO_FAILPOINTS");
  if (setting == nullptr) return false;
  // The count is static, since failpoints belong to the whole process and only tests set them.
  static std::mutex mutex;
  static std::map<std::string, int> hits;
  std::string place = name;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    place += "@" + std::to_string(++hits[name]);
  }
  const std::string action = ActionAt(setting, place);
  if (action == "kill") kill(getpid(), SIGKILL);
  if (action == "sleep") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!action.empty() && action != "kill" && action != "sleep" && action != "error") {
    std::fprintf(stderr, "MULTIVERSO_FAILPOINTS: expected kill, error or sleep, received %s\n",
                 action.c_str());
    std::abort();
  }
  return action == "error";
}

}  // namespace multiverso

#endif
