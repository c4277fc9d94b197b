// Messenger: messages between the ranks of a job that spans nodes.
//
// Two messages from one rank to another with the same tag are received in the order in which they
// were sent; nothing else is ordered. Nothing here waits: messages are started and then tested.
#ifndef MULTIVERSO_TRANSPORT_MESSENGER_H_
#define MULTIVERSO_TRANSPORT_MESSENGER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// The purpose of a message. A call takes one of the tags from kFirstCallTag on and holds it until
// its last message has been received (CallTags).
enum MessageTag : int {
  kControlTag = 1,   // to a service thread: ControlChannel
  kExchangeTag = 2,  // between leaders, plus the number of the group: LeaderExchange
  kAnswerTag = 4,    // to the leader that asked for late ranks: ControlChannel
  kRequestTag = 5,   // to a service thread: ShardService
  kErrorTag = 6,     // why a reply is empty
  kClockTag = 7,     // between leaders: ClockExchange
  kFirstCallTag = 16,
  kLastCallTag = 12287,
  // Between the leaders of neighbouring nodes: ChainLink. Above the tags of values.
  kFirstChainTag = 24576,
};
// One for each table, and one for sums without a table. Every MPI has tags up to 32767.
constexpr int kTableChains = 8191;
constexpr int kAggregateTag = kFirstChainTag + kTableChains;

// Of what goes to the server with a request, which must not be taken for an answer to a call that
// the server's own rank makes at the same time.
constexpr int ValuesTag(int call_tag) { return call_tag + kLastCallTag + 1; }
static_assert(ValuesTag(kLastCallTag) < kFirstChainTag);

// Whether that may be how a messenger tells that a rank has died: who died is told by NodeGroup, a
// little later.
inline bool MayMeanLoss(const Status& status) {
  return status.code() == Code::kTransport || status.code() == Code::kPeerLost;
}

// Thread-safe.
class Messenger {
 public:
  // A message under way. Its bytes belong to it until Test or Withdraw says that it is over.
  struct Ticket {
    uint64_t handle = 0;
    bool is_open = false;
  };
  static constexpr int kAnyRank = -1;

  virtual ~Messenger() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Before anything else: nothing is sent any more to ranks of which that is true; trying is
  // PeerLostError. An MPI may crash when it sends to a process that has died.
  void RefuseIf(std::function<bool(int)> has_died) { has_died_ = std::move(has_died); }

  // Starts a message of less than 2^31 bytes.
  virtual Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) = 0;
  virtual Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) = 0;
  // Whether it is over; *received is then what a receive got. A longer message than fits is an
  // error, and then the receive is over too.
  virtual Status Test(Ticket* ticket, bool* done, int64_t* received) = 0;
  // Ends a receive for which nothing has come. False if something is coming: test it further.
  virtual bool Withdraw(Ticket* ticket) = 0;
  // A whole message, if there is one, of any rank or of that one; one of more than `most` bytes is
  // dropped, and got without any.
  virtual Status Take(int from, int tag, int64_t most, std::string* bytes, bool* got) = 0;
  // After everybody has met for the end, so that no message is under way any more.
  virtual void Close() {}

  // Sends bytes that are kept here until they have left.
  Status Post(int to, int tag, std::string bytes);
  // Lets what was posted move on. True if all of it has left.
  bool Advance();
  // Until all of it has left, or that instant. False if not.
  bool AwaitPosted(Instant until);
  // The same, and gives up the rest: nothing will be sent any more.
  bool Drain(Instant until);

 protected:
  Status CheckLives(int rank) const;

 private:
  struct Posted {
    std::string bytes;
    Ticket ticket;
  };

  std::function<bool(int)> has_died_;
  std::mutex posted_mutex_;
  std::list<Posted> posted_;  // addresses stay put: the transport holds pointers into it
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MESSENGER_H_
