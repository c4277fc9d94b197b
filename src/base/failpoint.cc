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

// Returns the ACTION of the setting PLACE=ACTION among the comma-separated `settings`, where
// `place` is NAME@N: the N-th hit of failpoint NAME. Returns "" if there is no such setting.
std::string ActionAt(const std::string& settings, const std::string& place) {
  for (size_t begin = 0; begin < settings.size();) {
    const size_t end = std::min(settings.find(',', begin), settings.size());
    const std::string setting = settings.substr(begin, end - begin);
    if (setting.rfind(place + "=", 0) == 0) return setting.substr(place.size() + 1);
    begin = end + 1;
  }
  return "";
}

}  // namespace

bool HitFailpoint(const char* name) {
  const char* const settings = std::getenv("MULTIVERSO_FAILPOINTS");
  if (settings == nullptr) return false;
  // The counts are static, since failpoints belong to the whole process and only tests set them.
  static std::mutex mutex;
  static std::map<std::string, int> hits;
  static std::string counted_for;
  std::string place = name;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    if (counted_for != settings) hits.clear();
    counted_for = settings;
    place += "@" + std::to_string(++hits[name]);
  }
  const std::string action = ActionAt(settings, place);
  if (action == "kill") kill(getpid(), SIGKILL);
  // A signal to the process would let this thread go on until another thread has received it.
  if (action == "stop") (void)std::raise(SIGSTOP);
  if (action == "sleep") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!action.empty() && action != "kill" && action != "stop" && action != "sleep" &&
      action != "error") {
    std::fprintf(stderr,
                 "MULTIVERSO_FAILPOINTS: expected kill, stop, error or sleep, received %s\n",
                 action.c_str());
    std::abort();
  }
  return action == "error";
}

}  // namespace multiverso

#endif
