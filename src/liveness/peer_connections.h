// PeerConnections: TCP connections between ranks of different nodes, whose end tells at once that a
// rank has died. On its own node a rank's death is seen by other means (NodeGroup::IsAlive).
//
// The kernel closes the connections of a process that ends, however it ends, and the other side
// learns of it within a fraction of a millisecond. So a connection that ends means death, unless
// the rank has said goodbye: it does so when the session is over for it, and what its process does
// then is its own affair. One whose caller has been told that another rank is lost says so, since
// it may end at once: who still waits for it gets to know why it went. A connection that breaks in
// another way, or cannot be had at all, means nothing: then as before peer_timeout has to pass
// (FailureDetector), as it has when a cable is cut, which ends no connection.
//
// Both sides know each other's address and token from the start of the session, over MPI. The one
// that connects shows the token of the other; that one answers with the token of the first, and is
// told that the answer has come. Only then does the connection count. Others that come to the port
// are closed, at the first wrong byte or after a while.
//
// The thread of Heartbeat, which sleeps anyway, sleeps here; nothing else does.
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
#include "base/status.h"
#include "liveness/connection_plan.h"
#include "liveness/stream.h"
#include "node/membership.h"

namespace multiverso {

// The port of a rank that has not met the others yet.
struct ConnectionPort {
  Stream stream;
  ConnectionAddress address;
};

struct ConnectionLimits {
  // How long the start of a session waits for lifelines.
  std::chrono::milliseconds start{5000};
  // How long somebody who has come to the port may take to show who it is.
  std::chrono::milliseconds introduction{10000};
};

// Thread-safe; Attend is called by one thread.
class PeerConnections {
 public:
  // Who died, and how that is known, in words that follow its name. `after`: the rank of whose loss
  // its caller had been told before, or -1.
  using Lost = std::function<void(int rank, const std::string& how, int after)>;

  static Result<std::unique_ptr<ConnectionPort>> OpenPort();
  // `addresses` are those of all ranks. Nothing happens before the first Attend.
  static Result<std::unique_ptr<PeerConnections>> Open(
      std::unique_ptr<ConnectionPort> port, const Membership& members,
      const std::vector<ConnectionAddress>& addresses, const ConnectionLimits& limits = {});

  // Sleeps until that instant or Wake, and does meanwhile what is to be done. Calls `lost` for each
  // death.
  void Attend(Instant until, const Lost& lost);
  void Wake() const { bell_.Ring(); }

  // Ok when each lifeline stands or will not; pending at the end of the slice. At the end of
  // patience those that do not stand are done without.
  Status AwaitSettled(const WaitLimit& limit);

  // The session is over for this rank, and the end of its process means nothing to the others.
  void AnnounceClose();

  // The caller has been told that that rank is lost, and may end the process at once.
  void AnnounceLoss(int rank);

  // Whether the connection with that rank has ended as those of dead processes do, at this moment:
  // before that is told to anybody. False if there was none.
  bool HasEnded(int rank) const;

  // In a forked child, for which nobody else can do anything. Async-signal-safe.
  void CloseInForkedChild();

  // How many stand.
  int standing() const;

 private:
  enum class Stage {
    kFree,
    kConnecting,  // this rank calls, and the network has not answered
    kCalling,     // it has shown the other's token
    kNameless,    // somebody has come to the port
    kAnswering,   // it has shown the token, and been shown its own
    kStanding,
  };
  enum class Kind : uint32_t { kCall = 1, kAnswer, kStands, kGoodbye, kLost };

  struct Message {
    uint32_t magic;
    Kind kind;
    int32_t from;
    int32_t to;
    int32_t lost;           // of kLost: which rank
    ConnectionToken token;  // of the receiver
  };

  struct Peer {
    int rank = 0;
    bool is_called = false;
    bool is_settled = false;  // its lifeline stands, has stood, or will not
    bool has_stood = false;
    bool is_alone = false;  // on its node
    int standing = -1;      // the place of its lifeline
    int has_lost = -1;      // of whose loss its caller knows
    std::string name;
    ConnectionAddress address;
    std::vector<NetworkAddress> ways;
    size_t next_way = 0;
    Instant next_call{};
    std::string trouble;  // what came of the last call
    std::atomic<bool> has_ended{false};
    bool was_lost = false;
    Instant lost_at{};
  };

  struct Connection {
    Stream stream;
    Stage stage = Stage::kFree;
    int peer = -1;
    Instant until{};    // when it has to stand
    std::string place;  // whom this rank calls
    char bytes[sizeof(Message)];
    size_t got = 0;
  };

  PeerConnections(std::unique_ptr<ConnectionPort> port, const Membership& members,
                  const std::vector<ConnectionAddress>& addresses, const ConnectionLimits& limits);

  // All of these with the mutex held.
  void Call(Instant now);
  void CallBy(size_t peer, const NetworkAddress& way);
  void Handle();
  // Closes what should stand by now, or have been named.
  void Expire(Instant now);
  void Settle(Instant now);
  // Something has come for it, or it is connected, or neither.
  void Advance(Connection* connection);
  // False if the message is none of a rank of this session at this point.
  bool Understand(Connection* connection, const Message& message);
  void Stand(Connection* connection);
  // It is no lifeline any more. `has_ended`: in the way in which those of dead processes do.
  void Broke(Connection* connection, bool has_ended);
  void End(Connection* connection, const std::string& why);
  bool Say(Connection* connection, Kind kind, int lost = -1);
  // To all for whom a lifeline stands, or may.
  void SayToAll(Kind kind, int lost = -1);
  std::vector<int> CollectLost(Instant now);
  Instant NextEvent(Instant until) const;
  std::vector<Awaited> Watched() const;
  Connection* FreeConnection() const;
  int PeerOf(int rank) const;

  const int rank_;
  const double peer_timeout_;
  const std::unique_ptr<ConnectionPort> port_;
  StreamBell bell_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<Peer> peers_;
  // Never moved, so that a forked child can close them whatever another thread was doing.
  const size_t most_;
  const std::unique_ptr<Connection[]> connections_;
  const std::chrono::milliseconds introduction_;
  const Instant patience_;  // when the start waits no longer
  bool has_settled_ = false;
  bool said_goodbye_ = false;
  bool said_lost_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_PEER_CONNECTIONS_H_
