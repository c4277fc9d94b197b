#include "session/node_service.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/backoff.h"
#include "base/text.h"
#include "memory/futex.h"

namespace multiverso {
namespace {

constexpr int kLastLooks = 10;
constexpr long kMaxSleepMs = 40;  // NOLINT: the type of strtol

// Keeps signals from the threads started in its scope: they are for the program's own.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Result<std::unique_ptr<NodeService>> NodeService::Start(NodeGroup* group) {
  long longest = kMaxSleepMs;  // NOLINT
  if (const char* setting = std::getenv("MULTIVERSO_SERVICE_MAX_SLEEP_MS")) {
    char* end = nullptr;
    errno = 0;
    longest = std::strtol(setting, &end, 10);
    if (end == setting || *end != '\0' || errno != 0 || longest < 1 || longest > 1000) {
      return Status(Code::kValue, StrCat("MULTIVERSO_SERVICE_MAX_SLEEP_MS: expected a number from "
                                         "1 to 1000, received '",
                                         setting, "'"));
    }
  }
  std::unique_ptr<NodeService> service(new NodeService(group));
  const Membership& members = group->members();
  const std::vector<int> serving = members.service_ranks(members.node());
  if (std::find(serving.begin(), serving.end(), members.rank()) == serving.end()) return service;
  const WithoutSignals without_signals;
  try {
    service->thread_ =
        std::thread(&NodeService::Serve, service.get(), std::chrono::milliseconds(longest));
  } catch (const std::system_error& error) {
    return Status(Code::kMemory, StrCat("cannot start the service thread: ", error.what()));
  }
  return service;
}

NodeService::~NodeService() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // What others sent just before everybody met for the end may not have been taken in.
  for (int i = 0; i < kLastLooks; ++i) {
    (void)group_->intercom()->Poll();
    (void)shards_.Poll();
  }
}

void NodeService::Serve(std::chrono::microseconds longest_sleep) {
  Backoff backoff(longest_sleep);
  for (;;) {
    const bool news = group_->intercom()->Poll();
    if (shards_.Poll() || news) backoff.Reset();
    const auto nap =
        backoff.Next(Clock::now(), shards_.IsBusy() ? ShardService::kUnderWay : Backoff::kEager);
    if (nap.count() == 0) YieldCore();
    std::unique_lock<std::mutex> guard(mutex_);
    if (nap.count() > 0 && !stop_) stop_changed_.wait_for(guard, nap);
    if (stop_) return;
  }
}

}  // namespace multiverso
