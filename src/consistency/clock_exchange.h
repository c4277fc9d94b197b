// ClockExchange: tells the other nodes how far the workers of this node have come, and keeps this
// node's copy of the other nodes' clocks up to date (WorkerClocks).
//
// The leaders of the nodes write to each other: immediately if a worker may be waiting, otherwise
// periodically, and only what has changed. The fact that a rank waits in a collective travels with
// the clocks, so a reader of that fact also knows all calls that the rank made before.
#ifndef MULTIVERSO_CONSISTENCY_CLOCK_EXCHANGE_H_
#define MULTIVERSO_CONSISTENCY_CLOCK_EXCHANGE_H_

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

// Belongs to the leader of a node. Used by one thread at a time.
class ClockExchange {
 public:
  explicit ClockExchange(RankContext* context);

  // Handles the messages that have arrived; sets *any if there were some.
  Status Receive(const RoundsByTable& tables, bool* any);
  // Sends the messages that are due.
  Status Send(const RoundsByTable& tables);
  // Whether there are changes that have not been sent.
  bool HasChanges() const { return has_changes_; }
  void Forget(int64_t table) { sent_.erase(table); }
  // Announces that nothing changes any more: the next message is the last one.
  void Close() { is_closing_ = true; }
  // Whether the last message has been sent and the last messages of all others have arrived.
  // Messages from one leader to another arrive in order, so no message is in flight then.
  bool IsClosed() const;

 private:
  struct WaitingRank;
  struct Seen {
    uint64_t number = 0;
    Instant since;
    bool is_told = false;
  };

  bool Handle(const std::string& bytes, const RoundsByTable& tables);
  // Returns the ranks of this node that have waited in a collective for a while; false if no check
  // is due.
  std::vector<WaitingRank> FindWaiting(Instant now);
  // Packs the clocks that have changed; sets *urgent if a worker may be waiting for them.
  std::string Changes(const RoundsByTable& tables, uint32_t* count, bool* urgent);

  RankContext* context_;
  std::chrono::milliseconds interval_;
  Instant sent_at_{};
  Instant looked_at_{};
  bool has_changes_ = false;
  bool is_closing_ = false;
  bool last_sent_ = false;
  std::vector<bool> last_came_;  // by node
  std::map<int64_t, std::vector<WorkerClocks::Snapshot>>
      sent_;  // by table, of the workers on this node
  std::map<int64_t, std::vector<WorkerClocks::Snapshot>> read_;  // to be sent
  std::vector<std::vector<Seen>> seen_;                          // by rank of this node and group
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CLOCK_EXCHANGE_H_
