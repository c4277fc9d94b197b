#include "checks/traffic.h"

#include <cstdio>
#include <cstdlib>

#include "session/session.h"
#include "session/session_opening.h"

namespace sim {
namespace {

constexpr int64_t kNap = 1000000;

// What all ranks of the job know.
struct Meeting {
  int nodes;
  int barriers;
  int opened = 0, done = 0, failed = 0;
  std::map<int, Network::Traffic> traffic;
};

// Sleeps until all ranks have come that far, without messages.
void AwaitAll(const int& count, const Meeting& meeting) {
  while (count + meeting.failed < meeting.nodes) SleepUntil(Now() + kNap);
}

void RunRank(const std::shared_ptr<Hub>& hub, const std::shared_ptr<Network>& network, int rank,
             Meeting* meeting) {
  multiverso::SessionOptions options;
  options.timeout = options.start_timeout = std::chrono::hours(1);
  auto session =
      multiverso::OpenSession(options, std::make_unique<SimTransport>(hub, network, rank));
  if (!session.ok()) {
    std::printf("rank %d: %s\n", rank, session.status().text().c_str());
    ++meeting->failed;
    return;
  }
  if (++meeting->opened == meeting->nodes) network->ForgetTraffic();
  AwaitAll(meeting->opened, *meeting);
  for (int i = 0; i < meeting->barriers; ++i) {
    if (!session.value()->Barrier().ok()) ++meeting->failed;
  }
  if (++meeting->done == meeting->nodes) meeting->traffic = network->TrafficByTag();
  AwaitAll(meeting->done, *meeting);
  (void)session.value()->Close();
}

}  // namespace

std::map<int, Network::Traffic> TrafficOfBarriers(int nodes, int barriers) {
  setenv("MULTIVERSO_RANKS_PER_NODE", "1", 1);
  setenv("MULTIVERSO_LOG", "off", 0);
  Options options;
  options.mean_run = 100;
  Start(options);
  Meeting meeting{nodes, barriers};
  const auto hub = std::make_shared<Hub>(nodes);
  const auto network = std::make_shared<Network>(nodes);
  for (int rank = 0; rank < nodes; ++rank) {
    Spawn(rank, [&, rank] { RunRank(hub, network, rank, &meeting); });
  }
  const bool is_over = Run();
  if (!is_over) std::printf("%s\n", Why().c_str());
  Finish();
  unsetenv("MULTIVERSO_RANKS_PER_NODE");
  if (!is_over || meeting.failed > 0) return {};
  return meeting.traffic;
}

int PrintTraffic(int nodes) {
  const auto traffic = TrafficOfBarriers(nodes, 1);
  for (const auto& [tag, sent] : traffic) {
    std::printf("tag %d: %llu messages, %llu bytes\n", tag,
                static_cast<unsigned long long>(sent.messages),
                static_cast<unsigned long long>(sent.bytes));
  }
  return traffic.empty() ? 1 : 0;
}

}  // namespace sim
