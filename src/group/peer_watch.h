// PeerWatch: what a waiting call says about other ranks, and how it fails because of them. It has
// the text about a lost rank and about a late one, and it knows how long the last messages of a
// lost rank may take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/wait_lines.h"
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

  // Begins a wait, whose limit that option sets.
  void Begin(const char* option = kTimeoutOption) {
    began_ = Clock::now();
    lines_ = WaitLines(began_);
    option_ = option;
    loss_noticed_.reset();
  }

  Instant began() const { return began_; }

  // Returns what follows the end of a lost rank in an error: that this rank waited for it in
  // `call`.
  std::string WhileWaiting(const std::string& call) const;
  // Returns whether all messages have arrived that ranks of other nodes sent before they were lost.
  // The first call begins to count, so a rank must be lost then.
  bool MessagesHaveArrived();
  // Returns a lost rank without which this node hears nothing of the ranks of other nodes: one of
  // its service ranks, if all are lost. Otherwise returns -1.
  int LossThatSilences() const;
  // Does what the function above does, and returns -1 if all of `ranks` are on this node.
  int LossThatSilences(const std::vector<int>& ranks) const;
  // Returns PeerLost, and tells other ranks of the losses that this rank knows. The text is the end
  // of each of `ranks`, `where`, and the known facts about the last of them.
  Status Lost(const std::vector<int>& ranks, const std::string& where) const;

  // Whom a call waits for: the end of a sentence about this rank.
  struct Late {
    std::string call;     // such as " in barrier"
    std::string awaited;  // such as "rank 0, which did not call it"
    int first = -1;       // the rank about which the text has the known facts, or -1
    // The last call of that rank, if it is on another node and has told it.
    std::string last_call{};
  };
  // Returns a timeout, whose text is how long this rank has waited, and for whom.
  Status TimedOut(const Late& late) const;
  // Aborts the session with that timeout, since ranks that come later would wait for this rank, and
  // returns it.
  Status AbortTimedOut(const Late& late) const;
  // Returns whether a call that waits at `now` should log for whom it waits (LogLate).
  bool IsLineDue(Instant now) { return lines_.IsDue(now); }
  // Logs for whom this rank waits, until `deadline`, unless a rank of this node has logged a line
  // about the same rank recently.
  void LogLate(const Late& late, Instant deadline);

 private:
  std::string Describe(const char* waited, const Late& late) const;

  const Membership* members_;
  const PeerStatus* peers_;
  SessionState* state_;
  Instant began_{};
  WaitLines lines_;
  const char* option_ = kTimeoutOption;
  std::optional<Instant> loss_noticed_;
};

}  // namespace multiverso
