// Messenger: messages between the ranks of a job that spans nodes.
//
// Messages from one rank to another with the same tag are received in the order in which they were
// sent; nothing else is ordered. Send and Receive start a message, and Test reports its end. No
// function waits unless its comment says so.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// The purpose of a message. A call on a table takes a tag from kFirstCallTag on for its answers,
// and holds the tag until the last answer has been received (CallTags).
enum MessageTag : int {
  kControlTag = 1,   // to a service thread: ControlChannel
  kExchangeTag = 2,  // between leaders, plus the number of the group: LeaderExchange
  kAnswerTag = 4,    // to the leader that asked for late ranks: ControlChannel
  kRequestTag = 5,   // to a service thread: ShardService
  kEndTag = 6,       // to a service thread, that a call has ended: ShardService
  kClockTag = 7,     // between leaders: ClockExchange
  kSumTag = 8,       // between leaders, pieces of the sums of tables: PieceLink
  kExitTag = 9,      // to and from rank 0, over a messenger of its own: ExitMeeting
  kFirstCallTag = 16,
  kLastCallTag = 8191,
};

// Returns the tag of the row ids and values that follow a request to a server. It differs from the
// call's tag, since the server's own rank may have a call with that tag in flight.
constexpr int ValuesTag(int call_tag) { return call_tag + kLastCallTag + 1; }

// Returns the tag of the message that says why an answer to that call is empty.
constexpr int ErrorTag(int call_tag) { return call_tag + 2 * (kLastCallTag + 1); }

// The tag of the pieces of aggregates that leaders send each other (PieceLink).
constexpr int kAggregateTag = ErrorTag(kLastCallTag) + 1;
// Every MPI allows tags up to 32767.
static_assert(kAggregateTag <= 32767);

// Returns whether a messenger's failure may mean that a rank has died.
inline bool MayMeanLoss(const Status& status) {
  return status.code() == Code::kTransport || status.code() == Code::kPeerLost;
}

// Several threads may use a messenger concurrently.
class Messenger {
 public:
  // A message in flight, which uses the caller's bytes until Test or Withdraw reports its end.
  struct Ticket {
    uint64_t handle = 0;
    bool is_open = false;
  };
  static constexpr int kAnyRank = -1;

  virtual ~Messenger() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Makes sends fail with PeerLostError if `has_died` is true for the receiver and the tag, because
  // an MPI may crash when it sends to a dead process. Call this before any other function.
  void RefuseIf(std::function<bool(int, int)> has_died) { has_died_ = std::move(has_died); }

  // Send and Receive start a message of less than 2^31 bytes.
  virtual Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) = 0;
  virtual Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) = 0;
  // Sets *done to whether the message is over. At the end of a receive, *received is the number of
  // bytes received. A message longer than the buffer ends the receive with an error.
  virtual Status Test(Ticket* ticket, bool* done, int64_t* received) = 0;
  // What became of a receive that the caller withdrew.
  enum class Withdrawn {
    kCancelled,  // no message has begun to arrive: another receive may get it
    kReceived,   // the message had arrived, or the receive was already over
    kArriving,   // the message is arriving, and still uses the caller's bytes: test it further
  };
  virtual Withdrawn Withdraw(Ticket* ticket) = 0;
  // Receives a message from rank `from` or kAnyRank, if one has begun to arrive, and waits for its
  // end. A message of more than `max_bytes` is dropped and received as an empty message.
  virtual Status Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) = 0;
  // Begins to receive a message from rank `from` or kAnyRank, if one has begun to arrive. The
  // ticket is then open until Test or Withdraw reports the end, unless the message is complete
  // already. `bytes` must stay where they are. A message of more than `max_bytes` ends with an
  // error.
  virtual Status Accept(int from, int tag, int64_t max_bytes, std::string* bytes, Ticket* ticket,
                        bool* got) {
    ticket->is_open = false;
    return Take(from, tag, max_bytes, bytes, got);
  }
  // Closes the messenger: completes the posted messages, and drops those of other ranks that were
  // not received. Call this when all ranks have agreed to end and no other message is in flight.
  virtual void Close() {}

  // Sends bytes, which the messenger keeps until they are sent. Returns TransportError if another
  // thread hangs in Advance, since MPI may wait for a lost rank there.
  Status Post(int to, int tag, std::string bytes);
  // Makes progress with posted messages, unless another thread does so. Returns whether all posted
  // messages are over.
  bool Advance();
  // Waits until all posted messages are over, at most until `until`. Returns false if some are not.
  bool AwaitPosted(Instant until);
  // Waits as AwaitPosted does, then abandons the other messages. Send no message afterwards.
  void Drain(Instant until);

 protected:
  // Returns PeerLostError if `rank` has died according to RefuseIf.
  Status CheckAlive(int rank, int tag) const;

 private:
  struct Posted {
    std::string bytes;
    Ticket ticket;
  };

  std::function<bool(int, int)> has_died_;
  std::mutex posted_mutex_;
  std::list<Posted> posted_;  // a list, since the transport holds pointers to its elements
};

}  // namespace multiverso
