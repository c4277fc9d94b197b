// PeerConnections: TCP connections between ranks of different nodes, whose end reveals at once that
// a rank has died. Between ranks of one node, presence marks reveal a death (PeerStatus::IsAlive).
//
// The kernel closes the connections of a process that ends, however it ends, and the other side
// learns of the end within a fraction of a millisecond. So the end of a connection means death,
// unless the rank has announced the end of its session: then the end of its process does not
// matter. A rank whose caller learns of a loss announces the loss, since the process may end at
// once; ranks that wait for that rank then know the cause. A connection that breaks in another way,
// or is never established, means nothing, and a cut cable ends no connection. In these cases only
// peer_timeout reveals a death (FailureDetector).
//
// All ranks exchange their addresses and tokens over MPI when the session opens. The rank on the
// lower-numbered node calls the other rank and sends that rank's token (kCall), the other rank
// answers with the caller's token (kAnswer), and the caller confirms the answer (kConfirm). Only
// then is the connection established. A stranger at the port is disconnected after one wrong
// message or a timeout.
//
// The thread of Heartbeat attends to the connections, so that they need no thread of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/status.h"
#include "liveness/connection_plan.h"
#include "liveness/stream.h"
#include "node/membership.h"

namespace multiverso {

// The port of a rank before the other ranks know its address.
struct ConnectionPort {
  Stream stream;
  ConnectionAddress address;
};

struct ConnectionTimeouts {
  std::chrono::milliseconds start{5000};          // then a session starts without the missing ones
  std::chrono::milliseconds introduction{10000};  // for a stranger at the port
};

// Thread-safe; Attend is called by one thread.
class PeerConnections {
 public:
  // Called for a rank that died. `how` says how its death is known, as a predicate such as
  // "(process 12) died". `known_loss` is the rank whose loss its caller knew; -1 if there is none.
  using DeathHandler = std::function<void(int rank, const std::string& how, int known_loss)>;

  static Result<std::unique_ptr<ConnectionPort>> OpenPort();
  // `addresses` holds the addresses of all ranks. Nothing happens before the first Attend.
  static Result<std::unique_ptr<PeerConnections>> Open(
      std::unique_ptr<ConnectionPort> port, const Membership& members,
      const std::vector<ConnectionAddress>& addresses, const ConnectionTimeouts& timeouts = {});

  // Handles events until that instant or Wake, sleeping in between. Calls `on_death` for each
  // death.
  void Attend(Instant until, const DeathHandler& on_death);
  void Wake() const { bell_.Ring(); }

  // Returns ok when each connection is established or has failed, but also at a deadline, since a
  // session can do without connections. Before that, returns as WaitLimit::Check does.
  Status AwaitSettled(const WaitLimit& limit);

  // Tells the other ranks that the end of this process means nothing from now on.
  void AnnounceClose();

  // Tells the other ranks that this rank's caller knows of that loss, and may exit at once.
  void AnnounceLoss(int rank);

  // Returns whether the connection with that rank has ended as connections of dead processes do,
  // even if no thread has handled the end yet. Returns false if there was no connection, and for an
  // end after AnnounceClose.
  bool HasEnded(int rank);

  int num_established() const;

 private:
  enum class Stage {
    kFree,
    kConnecting,  // this rank calls, and TCP has not connected
    kCalling,     // this rank has sent the other's token
    kStranger,    // a process of unknown rank has connected to the port
    kAnswering,   // the other side has sent this rank's token, and this rank the other's
    kEstablished,
  };
  enum class MessageKind : uint32_t { kCall = 1, kAnswer, kConfirm, kClose, kLoss };

  struct Message {
    MessageKind kind;
    int32_t from;
    int32_t to;
    int32_t lost;           // of kLoss: the lost rank
    ConnectionToken token;  // of the receiver
  };
  static constexpr size_t kMessageBytes = FrameBytes<Message>();

  struct Connection;
  struct Peer {
    int rank = 0;
    bool is_called = false;   // as in ConnectionPeer
    bool is_settled = false;  // whether it was established or has failed
    bool was_established = false;
    bool is_alone = false;             // whether it is the only rank of its node
    Connection* connection = nullptr;  // its established connection
    int known_loss = -1;               // the rank whose loss its caller knows; -1 if there is none
    std::string name;
    ConnectionAddress address;
    std::vector<NetworkAddress> targets;  // the addresses to call, the best first
    size_t next_target = 0;
    Instant next_call{};
    std::string failure;  // why the last call failed
    std::atomic<bool> has_ended{false};
    bool is_to_be_reported = false;  // whether its loss is still unreported
    Instant report_at{};
  };

  struct Connection {
    Stream stream;
    Stage stage = Stage::kFree;
    Peer* peer = nullptr;  // null if it is free or with a stranger
    Instant deadline{};    // for establishing it
    std::string target;    // the address that this rank calls
    std::string bytes;     // the received part of an incomplete message
  };

  struct Death {  // the arguments of a DeathHandler
    int rank;
    std::string how;
    int known_loss;
  };

  PeerConnections(std::unique_ptr<ConnectionPort> port, const Membership& members,
                  const std::vector<ConnectionAddress>& addresses,
                  const ConnectionTimeouts& timeouts);

  // All functions below except FindPeer are called with the mutex held.
  void CallPeers(Instant now);
  void Call(Peer* peer, const NetworkAddress& address);
  void AcceptStrangers();
  void ExpireConnections(Instant now);
  // Once no connection is pending any more, records that and warns about failed calls.
  void Settle(Instant now);
  // Handles the events of a connection that AwaitStreams reported.
  void Advance(Connection* connection);
  // Returns false if no rank of this session sends such a message at this stage.
  bool Handle(Connection* connection, const Message& message);
  void Establish(Connection* connection);
  // Handles a broken connection. `has_ended`: it ended as connections of dead processes do.
  void HandleBreak(Connection* connection, bool has_ended);
  void Close(Connection* connection, const std::string& why);
  bool Send(Connection* connection, MessageKind kind, int lost = -1);
  // Sends to all peers to which a connection is or may be established.
  void SendToAll(MessageKind kind, int lost = -1);
  std::vector<Death> TakeDeaths(Instant now);  // those to be reported now
  Instant NextEvent(Instant until) const;      // when there is work even if no stream is ready
  // Returns the open streams with their index in connections_; the port comes after the last.
  std::vector<AwaitedStream> WatchedStreams() const;
  Connection* FreeConnection();  // null if all are in use
  Peer* FindPeer(int rank);      // null if this rank has no connection with that rank

  const int rank_;
  const double peer_timeout_;
  const std::unique_ptr<ConnectionPort> port_;
  StreamBell bell_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<Peer> peers_;
  // Never resized, so that a forked child can close all connections at any moment.
  std::vector<Connection> connections_;
  const std::chrono::milliseconds introduction_timeout_;
  const Instant start_deadline_;  // the start of the session waits until then
  bool has_settled_ = false;
  bool close_announced_ = false;
  bool loss_announced_ = false;
};

}  // namespace multiverso
