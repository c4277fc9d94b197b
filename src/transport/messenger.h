// Messenger: messages between the ranks of a job that spans nodes.
//
// Messages from one rank to another with the same tag are received in the order in which they were
// sent; nothing else is ordered. Messages are started and then tested; no call waits unless it says
// so.
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
// There is one such tag for each table and one for sums without a table. Every MPI allows tags up
// to 32767.
constexpr int kTableChains = 8191;
constexpr int kAggregateTag = kFirstChainTag + kTableChains;

// The tag of values that follow a request to a server. It differs from the call's tag, since the
// server's own rank may have a call with the same tag in flight.
constexpr int ValuesTag(int call_tag) { return call_tag + kLastCallTag + 1; }
static_assert(ValuesTag(kLastCallTag) < kFirstChainTag);

// Whether a messenger's failure may mean that a rank has died. Which one it is becomes known a
// little later (PeerStatus).
inline bool MayMeanLoss(const Status& status) {
  return status.code() == Code::kTransport || status.code() == Code::kPeerLost;
}

// Thread-safe.
class Messenger {
 public:
  // A message in flight. It uses the caller's bytes until Test or Withdraw reports that it is over.
  struct Ticket {
    uint64_t handle = 0;
    bool is_open = false;
  };
  static constexpr int kAnyRank = -1;

  virtual ~Messenger() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends to ranks for which this is true fail with PeerLostError: an MPI may crash when it sends
  // to a dead process. Called before anything else.
  void RefuseIf(std::function<bool(int)> has_died) { has_died_ = std::move(has_died); }

  // Starts a message of less than 2^31 bytes.
  virtual Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) = 0;
  virtual Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) = 0;
  // Whether it is over; *received is then the number of bytes received. A message that is longer
  // than the buffer is an error and ends the receive.
  virtual Status Test(Ticket* ticket, bool* done, int64_t* received) = 0;
  // Cancels a receive. False if a message is arriving already: test it further.
  virtual bool Withdraw(Ticket* ticket) = 0;
  // Receives a message from that rank or any, if there is one. A message of more than `most` bytes
  // is dropped and received as empty.
  virtual Status Take(int from, int tag, int64_t most, std::string* bytes, bool* got) = 0;
  // Called after all ranks have agreed on the end, when no message is in flight.
  virtual void Close() {}

  // Sends bytes, which are kept here until they are sent.
  Status Post(int to, int tag, std::string bytes);
  // Makes progress with posted messages. True if all are sent.
  bool Advance();
  // Waits until all are sent, or that instant. False if some are not.
  bool AwaitPosted(Instant until);
  // Drains like the function above, and abandons the remaining messages: no message may be sent
  // afterwards.
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
  std::list<Posted> posted_;  // a list, since the transport holds pointers to its elements
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MESSENGER_H_
