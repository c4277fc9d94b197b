#include "session/node_service.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/start_thread.h"
#include "base/text.h"
#include "memory/futex.h"

namespace multiverso {
namespace {

// The sleep beside a caller that does this thread's work: the latency of a request that comes when
// the caller has just left.
constexpr std::chrono::microseconds kNapBesideCaller{200};
constexpr long kDefaultMaxSleepMs = 40;  // NOLINT: the type of strtol
// The longest sleep of a node that has had no message for long, unless heartbeats are due more
// often.
constexpr std::chrono::milliseconds kMaxIdleSleep{250};

std::chrono::microseconds MaxIdleSleep(const Membership& members) {
  // A heartbeat is due every tenth of peer_timeout, or every second.
  const auto quarter =
      std::chrono::duration_cast<std::chrono::microseconds>(members.peer_timeout()) / 40;
  return std::min<std::chrono::microseconds>(kMaxIdleSleep, quarter);
}

}  // namespace

Result<std::unique_ptr<NodeService>> NodeService::Start(RankContext* context) {
  long max_sleep_ms = kDefaultMaxSleepMs;  // NOLINT
  std::chrono::microseconds max_idle_sleep = MaxIdleSleep(context->members());
  if (const char* setting = std::getenv("MULTIVERSO_SERVICE_MAX_SLEEP_MS")) {
    char* end = nullptr;
    errno = 0;
    max_sleep_ms = std::strtol(setting, &end, 10);
    if (end == setting || *end != '\0' || errno != 0 || max_sleep_ms < 1 || max_sleep_ms > 1000) {
      return Status(Code::kValue, StrCat("MULTIVERSO_SERVICE_MAX_SLEEP_MS: expected a number from "
                                         "1 to 1000, received '",
                                         setting, "'"));
    }
    max_idle_sleep = std::chrono::milliseconds(max_sleep_ms);
  }
  std::unique_ptr<NodeService> service(new NodeService(context));
  const Membership& members = context->members();
  const std::vector<int> service_ranks = members.service_ranks(members.node());
  const bool serves =
      std::find(service_ranks.begin(), service_ranks.end(), members.rank()) != service_ranks.end();
  if (!serves && !context->members().is_leader()) return service;
  const Backoff backoff(std::chrono::milliseconds(max_sleep_ms), max_idle_sleep);
  MV_ASSIGN_OR_RETURN(service->thread_,
                      StartThread("the service thread",
                                  [backoff, serving = service.get()] { serving->Serve(backoff); }));
  return service;
}

NodeService::NodeService(RankContext* context)
    : context_(context),
      shards_(context),
      rounds_(context,
              [this] {
                const bool received = context_->control_channel()->Poll();
                return shards_.Poll() || received;
              }),
      bell_(&own_bell_),
      sleepers_(&own_sleepers_) {
  if (!context->members().is_leader()) return;
  bell_ = &context->memory()->control()->bell;
  sleepers_ = &context->memory()->control()->bell_sleepers;
}

NodeService::~NodeService() {
  stop_.store(true);
  bell_->fetch_add(1);
  WakeWord(bell_, kWakeAll);
  if (thread_.joinable()) thread_.join();
}

void NodeService::Serve(Backoff backoff) {
  SleepPrecisely();
  while (!stop_.load()) {
    const uint32_t rings = bell_->load();
    if (rounds_.HasCallers()) {
      std::this_thread::sleep_for(kNapBesideCaller);
      continue;
    }
    const bool received = context_->control_channel()->Poll();
    const bool moved_rounds = rounds_.Poll();
    if (shards_.Poll() || moved_rounds || received) backoff.Reset();
    const bool is_busy = shards_.IsBusy() || rounds_.IsAwaitingMessage();
    const Instant now = Clock::now();
    auto nap = backoff.Next(now, is_busy ? ShardService::kEagerWhenBusy : Backoff::kEager);
    if (rounds_.IsAwaitingMessage()) nap = std::min(nap, RoundService::kMaxAwaitingSleep);
    if (nap.count() == 0) {
      YieldCore();
      continue;
    }
    const auto is_woken = [&] { return stop_.load() || bell_->load() != rings; };
    if (SleepUntil(bell_, sleepers_, now + nap, is_woken)) backoff.Reset();
  }
}

}  // namespace multiverso
