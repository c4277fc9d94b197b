// What a collective call costs in messages, on any number of nodes.
#pragma once

#include <map>

#include "world/network.h"

namespace sim {

// Runs a job of one rank per node that makes that many barriers, and returns the messages that were
// sent from the first barrier's beginning to the last one's end, by tag: those of the barriers, and
// heartbeats. Returns nothing if a rank fails.
std::map<int, Network::Traffic> TrafficOfBarriers(int nodes, int barriers);

// Prints the traffic of a barrier, for `simulation traffic NODES`. Returns the program's exit code.
int PrintTraffic(int nodes);

}  // namespace sim
