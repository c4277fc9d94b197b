// PeerConnections: TCP connections between ranks of different nodes, whose end reveals at once that
// a rank has died. On a rank's own node, presence marks do so (PeerStatus::IsAlive).
//
// The kernel closes the connections of a process that ends, however it ends, and the other side
// learns of the end within a fraction of a millisecond. So the end of a connection means death,
// unless the rank has announced the end of its session: then the end of its process does not
// matter. A rank whose caller learns of a loss announces the loss, since the process may end at
// once; ranks that wait for that rank then know the cause. A connection that breaks in another way,
// or is never established, means nothing, and a cut cable ends no connection. In these cases only
// peer_timeout reveals a death (FailureDetector).
//
// Both sides know each other's address and token from the start of the session, over MPI. The
// caller sends the token of the other side, which answers with the caller's token, and the caller
// confirms the answer. Only then is the connection established. Strangers at the port are
// disconnected at the first wrong byte or after a timeout.
//
// The thread of Heartbeat attends to the connections, so that they need no thread of their own.
#ifndef MULTIVERSO_LIVENESS_PEER_CONNECTIONS_H_
#define MULTIVERSO_LIVENESS_PEER_CONNECTIONS_H_

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

struct ConnectionLimits {
  // How long the start of a session waits for connections.
  std::chrono::milliseconds start{5000};
  // How long a stranger at the port may take to identify itself.
  std::chrono::milliseconds introduction{10000};
};

// Thread-safe; Attend is called by one thread.
class PeerConnections {
 public:
  // Called for a rank that died. `how` says how its death is known, as a predicate such as
  // "(process 12) died". `after` is the rank whose loss the dead rank's caller knew, or -1.
  using Lost = std::function<void(int rank, const std::string& how, int after)>;

  static Result<std::unique_ptr<ConnectionPort>> OpenPort();
  // `addresses` holds the addresses of all ranks. Nothing happens before the first Attend.
  static Result<std::unique_ptr<PeerConnections>> Open(
      std::unique_ptr<ConnectionPort> port, const Membership& members,
      const std::vector<ConnectionAddress>& addresses, const ConnectionLimits& limits = {});

  // Handles events until that instant or Wake, sleeping in between. Calls `lost` for each death.
  void Attend(Instant until, const Lost& lost);
  void Wake() const { bell_.Ring(); }

  // Returns ok when each connection is established, has failed, or has taken too long. Returns
  // pending at the end of the slice.
  Status AwaitSettled(const WaitLimit& limit);

  // Tells the other ranks that the end of this process means nothing from now on.
  void AnnounceClose();

  // Tells the other ranks that this rank's caller knows of that loss, and may exit at once.
  void AnnounceLoss(int rank);

  // Returns whether the connection with that rank has ended as connections of dead processes do,
  // even if no thread has handled the end yet. Returns false if there was no connection.
  bool HasEnded(int rank) const;

  // Called in a forked child, which has only the calling thread. Async-signal-safe.
  void CloseInForkedChild();

  int num_established() const;

 private:
  enum class Stage {
    kFree,
    kConnecting,  // this rank calls, and TCP has not connected
    kCalling,     // this rank has sent the other's token
    kUnknown,     // a stranger has connected to the port
    kAnswering,   // the other side has sent this rank's token, and received its own
    kEstablished,
  };
  enum class Kind : uint32_t { kCall = 1, kAnswer, kConfirm, kClose, kLoss };

  struct Message {
    Kind kind;
    int32_t from;
    int32_t to;
    int32_t lost;           // of kLoss: the lost rank
    ConnectionToken token;  // of the receiver
  };
  static constexpr size_t kMessageBytes = FrameBytes<Message>();

  struct Peer {
    int rank = 0;
    bool is_called = false;
    bool is_settled = false;  // whether it was established or has failed
    bool was_established = false;
    bool is_alone = false;  // whether it is the only rank of its node
    int connection = -1;    // the index of its established connection
    int has_lost = -1;      // the rank whose loss its caller knows, or -1
    std::string name;
    ConnectionAddress address;
    std::vector<NetworkAddress> addresses;
    size_t next_address = 0;
    Instant next_call{};
    std::string failure;  // why the last call failed
    std::atomic<bool> has_ended{false};
    bool is_to_be_reported = false;  // whether its loss is still unreported
    Instant report_at{};
  };

  struct Connection {
    Stream stream;
    Stage stage = Stage::kFree;
    int peer = -1;
    Instant until{};     // the deadline for establishing it
    std::string target;  // the address that this rank calls
    std::string bytes;   // the received part of an incomplete message
  };

  PeerConnections(std::unique_ptr<ConnectionPort> port, const Membership& members,
                  const std::vector<ConnectionAddress>& addresses, const ConnectionLimits& limits);

  // All functions below except IndexOf are called with the mutex held.
  void CallPeers(Instant now);
  void Call(size_t peer, const NetworkAddress& address);
  void AcceptStrangers();
  void ExpireConnections(Instant now);
  // Records when no connection is pending any more, and warns about missing ones.
  void Settle(Instant now);
  // Handles the events of a connection that AwaitStreams reported.
  void Advance(Connection* connection);
  // Returns false if no rank of this session sends such a message at this stage.
  bool Handle(Connection* connection, const Message& message);
  void Establish(Connection* connection);
  // Handles a broken connection. `has_ended`: it ended as connections of dead processes do.
  void HandleBreak(Connection* connection, bool has_ended);
  void Close(Connection* connection, const std::string& why);
  bool Send(Connection* connection, Kind kind, int lost = -1);
  // Sends to all peers to which a connection is or may be established.
  void SendToAll(Kind kind, int lost = -1);
  std::vector<int> TakeLost(Instant now);
  Instant NextEvent(Instant until) const;
  std::vector<Awaited> WatchedStreams() const;
  Connection* FreeConnection() const;
  int IndexOf(int rank) const;

  const int rank_;
  const double peer_timeout_;
  const std::unique_ptr<ConnectionPort> port_;
  StreamBell bell_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<Peer> peers_;
  // connections_ is never moved, so that a forked child can close all of them at any moment.
  const size_t max_connections_;
  const std::unique_ptr<Connection[]> connections_;
  const std::chrono::milliseconds introduction_;
  const Instant start_deadline_;  // the start of the session waits until then
  bool has_settled_ = false;
  bool close_announced_ = false;
  bool loss_announced_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_PEER_CONNECTIONS_H_
