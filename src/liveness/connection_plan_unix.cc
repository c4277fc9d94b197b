#include <algorithm>

#include "base/process.h"
#include "base/text.h"
#include "liveness/connection_plan.h"
#include "node/place.h"

namespace multiverso {
namespace {

// The largest job in which each rank holds a connection with every rank of the other nodes.
constexpr int kMaxSmallJob = 32;

// Returns whether two nodes of a larger job are connected.
bool AreConnected(int node, int other, int num_nodes) {
  const int difference = node < other ? other - node : node - other;
  const int distance = std::min(difference, num_nodes - difference);
  return distance == 1 || distance == 2 || distance == num_nodes / 2;
}

}  // namespace

Result<ConnectionAddress> NewAddress(uint16_t port) {
  ConnectionAddress mine;
  mine.process = ProcessId();
  mine.port = port;
  if (!FillWithRandom(mine.token.bytes, sizeof(mine.token.bytes))) {
    return Status(Code::kTransport, "the system provides no random numbers");
  }
  CopyText(mine.network, NetworkDomain());
  for (const NetworkAddress& address : MachineAddresses()) {
    if (mine.num_addresses == ConnectionAddress::kMaxAddresses) break;
    mine.addresses[mine.num_addresses++] = address;
  }
  return mine;
}

std::vector<NetworkAddress> AddressesOf(const ConnectionAddress& mine,
                                        const ConnectionAddress& other) {
  if (other.port == 0) return {};
  const int count = std::min<int>(other.num_addresses, ConnectionAddress::kMaxAddresses);
  std::vector<NetworkAddress> addresses(other.addresses, other.addresses + count);
  if (std::strncmp(mine.network, other.network, sizeof(mine.network)) == 0) {
    addresses.insert(addresses.begin(), LoopbackAddress());
  }
  return addresses;
}

std::vector<ConnectionPeer> PlanConnections(const Membership& members) {
  std::vector<std::vector<int>> ranks_of(static_cast<size_t>(members.num_nodes()));
  for (int rank = 0; rank < members.size(); ++rank) {
    ranks_of[static_cast<size_t>(members.node_of(rank))].push_back(rank);
  }
  const int here = members.node();
  const bool is_small = members.size() <= kMaxSmallJob;
  const std::vector<int>& mine = ranks_of[static_cast<size_t>(here)];
  const auto local_rank = static_cast<size_t>(members.local_rank());
  std::vector<ConnectionPeer> peers;
  for (int node = 0; node < members.num_nodes(); ++node) {
    if (node == here) continue;
    const std::vector<int>& theirs = ranks_of[static_cast<size_t>(node)];
    if (is_small) {
      for (const int rank : theirs) peers.push_back(ConnectionPeer{rank, here < node});
      continue;
    }
    if (!AreConnected(here, node, members.num_nodes())) continue;
    // Both nodes number their pairs of ranks alike, so the two ranks of a pair expect the same
    // connection.
    for (size_t pair = 0; pair < std::max(mine.size(), theirs.size()); ++pair) {
      if (pair % mine.size() != local_rank) continue;
      peers.push_back(ConnectionPeer{theirs[pair % theirs.size()], here < node});
    }
  }
  std::sort(peers.begin(), peers.end(),
            [](const ConnectionPeer& a, const ConnectionPeer& b) { return a.rank < b.rank; });
  return peers;
}

}  // namespace multiverso
