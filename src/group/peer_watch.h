// PeerWatch: how a waiting call fails because of other ranks. It has the text about a lost rank and
// about a late one, and it knows how long the last messages of a lost rank may take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/session_state.h"
#include "liveness/peer_status.h"
#include "node/membership.h"

namespace multiverso {

// Used by one thread.
class PeerWatch {
 public:
  // The arguments outlive the watch.
  PeerWatch(const Membership* members, const PeerStatus* peers, SessionState* state)
      : members_(members), peers_(peers), state_(state) {}

  // Begins a wait.
  void Begin() {
    began_ = Clock::now();
    loss_noticed_.reset();
  }

  Instant began() const { return began_; }

  // Returns what follows the end of a lost rank in an error: that this rank waited for it in
  // `call`.
  std::string WhileWaiting(const std::string& call) const;
  // Returns whether all messages have arrived that ranks of other nodes sent before they were lost.
  // The first call begins to count, so a rank must be lost then.
  bool MessagesHaveArrived();
  // Returns PeerLost, and tells other ranks of the losses that this rank knows. The text is the end
  // of each of `ranks`, `where`, the known facts about the last of them, and `consequence`.
  Status Lost(const std::vector<int>& ranks, const std::string& where,
              const std::string& consequence = "") const;
  // Returns a timeout, whose text is how long this rank has waited, `call` and `awaited`, and the
  // known facts about rank `first`, unless it is -1.
  Status Late(const std::string& call, const std::string& awaited, int first) const;
  // Aborts the session with the timeout that Late returns, since ranks that come later would wait
  // for this rank, and returns it.
  Status AbortLate(const std::string& call, const std::string& awaited, int first) const;

 private:
  const Membership* members_;
  const PeerStatus* peers_;
  SessionState* state_;
  Instant began_{};
  std::optional<Instant> loss_noticed_;
};

}  // namespace multiverso
