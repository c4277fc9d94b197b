// LateInquiry: the question of a leader that waits in a collective: which ranks of other nodes have
// not begun it? Each node answers with their names and last calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "group/control_channel.h"

namespace multiverso {

// Used by one thread.
class LateInquiry {
 public:
  // Asks all other nodes. The channel outlives the inquiry.
  LateInquiry(ControlChannel* channel, int group, uint64_t sequence);

  // Receives the answers that have arrived. Returns whether all nodes have answered.
  bool Collect();
  // Returns whether a node that has not answered yet should have done so.
  bool IsOver() const { return Clock::now() >= deadline_; }

  const std::vector<int>& unanswered_nodes() const { return unanswered_nodes_; }
  // Returns the last calls of the late ranks, by rank.
  const std::map<int, std::string>& last_calls() const { return last_calls_; }
  // Returns the last call of one of them, or "".
  std::string LastCallOf(int rank) const;

 private:
  ControlChannel* channel_;
  int group_;
  uint64_t sequence_;
  Instant deadline_;
  std::vector<int> unanswered_nodes_;
  std::map<int, std::string> last_calls_;
};

}  // namespace multiverso
