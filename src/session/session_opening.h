// SessionOpening: how the ranks become a session.
//
// Everybody tells everybody who it is, over the transport; those who can map each other's memory
// are a node; the first rank of the node makes the control segment and the others map it; then
// they meet in it for the first time, and from there on need the transport no more. If there are
// several nodes the transport also gives them a messenger, the service threads are started, and
// each rank waits a while for its lifelines, so that from then on no death goes unseen.
#ifndef MULTIVERSO_SESSION_SESSION_OPENING_H_
#define MULTIVERSO_SESSION_SESSION_OPENING_H_

#include <memory>
#include <string>
#include <vector>

#include "base/operation.h"
#include "liveness/peer_connections.h"
#include "memory/segment.h"
#include "session/heartbeat.h"
#include "session/node_service.h"
#include "session/session.h"

namespace multiverso {

class SessionOpening final : public Operation {
 public:
  SessionOpening(const SessionOptions& options, std::unique_ptr<Transport> transport);

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

  // After Step returned ok.
  std::unique_ptr<Session> TakeSession() { return std::move(session_); }

 private:
  enum class Phase { kStart, kHello, kControl, kConnect, kMapped, kLifelines, kMeet };

  Status BeginHello();
  // Knows who is where; makes the control segment on the first rank of the node.
  Status BeginControl(const std::vector<std::string>& hellos);
  // Where other nodes can connect to this rank; nowhere, if they need not or cannot.
  ConnectionAddress OpenPort();
  // Maps the control segment on the others.
  Status MapControl(const std::vector<std::string>& outcomes);
  // Tells everybody how that went.
  Status BeginMapped();
  Status Join(const std::vector<std::string>& outcomes);

  SessionOptions options_;
  std::unique_ptr<Transport> transport_;
  Phase phase_ = Phase::kStart;
  Membership members_;
  Segment control_;
  Status mapped_;
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<ConnectionPort> port_;
  std::vector<ConnectionAddress> addresses_;
  std::unique_ptr<RankContext> group_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Session> session_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_SESSION_OPENING_H_
