// ClockExchange: sends the clocks of this node's workers to the other nodes, and keeps this node's
// copies of the other nodes' clocks up to date (WorkerClocks).
//
// The round leaders of the nodes send each other the clocks that have changed: immediately if a
// worker may be waiting for them, otherwise periodically. The same message says which ranks wait in
// a collective call, so who knows of the wait also knows all calls that the rank made before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"

namespace multiverso {

using RoundsByTable = std::map<int64_t, std::shared_ptr<NodeRounds>>;

// Belongs to a round leader. One thread at a time uses the exchange.
class ClockExchange {
 public:
  explicit ClockExchange(RankContext* context);

  // Handles the messages that have arrived. Sets *any if there was one.
  Status Receive(const RoundsByTable& tables, bool* any);
  // Sends a message to each other leader if one is due.
  Status Send(const RoundsByTable& tables);
  // Returns whether some changed clocks have not been sent.
  bool HasChanges() const { return has_changes_; }
  // Forgets what was sent of a table that no longer exists.
  void Forget(int64_t table) { sent_clocks_.erase(table); }
  // Announces that this node's clocks no longer change. The next message is then the last.
  void Close() { is_closing_ = true; }
  // Returns whether this node's last message has been sent and every other node's last message has
  // arrived. Messages between leaders arrive in order, so no message to this node is in flight.
  bool IsClosed() const;

 private:
  struct WaitingRank;
  // The collective call of one group in which a rank of this node was last seen.
  struct WaitRecord {
    uint64_t sequence = 0;
    Instant since;
    bool is_reported = false;
  };

  bool Handle(const std::string& bytes, const RoundsByTable& tables);
  // Returns the ranks of this node that have waited in a collective call for a while and have not
  // been reported. Returns no ranks if no check is due.
  std::vector<WaitingRank> FindWaiting(Instant now);
  // Packs the clocks that have changed. Sets *urgent if a worker may be waiting for a clock.
  std::string PackChanges(const RoundsByTable& tables, uint32_t* count, bool* urgent);

  RankContext* context_;
  std::chrono::milliseconds interval_;
  Instant sent_at_{};
  Instant checked_at_{};
  bool has_changes_ = false;
  bool is_closing_ = false;
  bool has_sent_last_ = false;
  std::vector<bool> last_has_come_;  // whether a node's last message has arrived, by node
  // By table and worker of this node, what was sent last, and what is to be sent.
  std::map<int64_t, std::vector<WorkerClocks::Snapshot>> sent_clocks_;
  std::map<int64_t, std::vector<WorkerClocks::Snapshot>> clocks_to_send_;
  std::vector<std::vector<WaitRecord>> waits_;  // by rank of this node and group
};

}  // namespace multiverso
