// Runs one barrier of a job in the simulator: simulation [SEED].
#include <cstdio>
#include <cstdlib>

#include "engine/scheduler.h"
#include "session/session.h"
#include "session/session_opening.h"
#include "world/network.h"

namespace {

void Program(const std::shared_ptr<sim::Hub>& hub, const std::shared_ptr<sim::Network>& network,
             int rank) {
  auto opened = multiverso::OpenSession(multiverso::SessionOptions(),
                                        std::make_unique<sim::SimTransport>(hub, network, rank));
  if (!opened.ok()) return;
  const multiverso::Status status = opened.value()->Barrier();
  std::printf("rank %d: %s\n", rank, status.ok() ? "ok" : status.text().c_str());
  (void)opened.value()->Close();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kRanks = 4;
  setenv("MULTIVERSO_RANKS_PER_NODE", "2", 1);
  sim::Options options;
  options.seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  sim::Start(options);
  const auto hub = std::make_shared<sim::Hub>(kRanks);
  const auto network = std::make_shared<sim::Network>(kRanks);
  sim::OnDeath([&](int rank) { network->Die(rank); });
  for (int rank = 0; rank < kRanks; ++rank) {
    sim::Spawn(rank, [=] { Program(hub, network, rank); });
  }
  const bool ran = sim::Run();
  if (!ran) std::printf("%s\n", sim::Why().c_str());
  std::printf("hash %016llx\n", static_cast<unsigned long long>(sim::Hash()));
  sim::Finish();
  return ran ? 0 : 1;
}
