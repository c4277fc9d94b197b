// ClockExchange: tells the other nodes how far the workers of this one have come, and keeps the
// clocks that this node has of theirs up to date (WorkerClocks).
//
// The leaders of the nodes write to each other: at once where somebody may be waiting for it, else
// now and then, and only what has changed. What a leader says of a rank that stands in a meeting,
// waiting for others, goes with it, so that whoever reads that knows all that the rank did before.
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

// Of the leader of a node. Used by one thread at a time.
class ClockExchange {
 public:
  explicit ClockExchange(RankContext* group);

  // Takes in what has come; *any if there was something.
  Status Receive(const RoundsByTable& tables, bool* any);
  // Sends what is due.
  Status Send(const RoundsByTable& tables);
  // Whether there is something to tell that has not been sent.
  bool HasNews() const { return has_news_; }
  void Forget(int64_t table) { sent_.erase(table); }
  // Nothing changes any more: what is sent next is the last.
  void Close() { is_closing_ = true; }
  // Whether the last has been sent, and that of all others has come: messages of one leader to
  // another come in order, so that none is under way then.
  bool IsClosed() const;

 private:
  struct Standing;
  struct Seen {
    uint64_t number = 0;
    Instant since;
    bool is_told = false;
  };

  bool Handle(const std::string& bytes, const RoundsByTable& tables);
  // Ranks of this node that have stood in a meeting for a while; false if they are not due.
  std::vector<Standing> FindStanding(Instant now);
  // The clocks that have changed; *urgent if somebody may be waiting for them.
  std::string Changes(const RoundsByTable& tables, uint32_t* count, bool* urgent);

  RankContext* group_;
  std::chrono::milliseconds interval_;
  Instant sent_at_{};
  Instant looked_at_{};
  bool has_news_ = false;
  bool is_closing_ = false;
  bool last_sent_ = false;
  std::vector<bool> last_came_;                                 // by node
  std::map<int64_t, std::vector<WorkerClocks::Reading>> sent_;  // by table, of the workers here
  std::map<int64_t, std::vector<WorkerClocks::Reading>> read_;  // to be sent
  std::vector<std::vector<Seen>> seen_;                         // by rank of this node and circle
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CLOCK_EXCHANGE_H_
