// How the connections of PeerConnections are established: which peers are called, and who calls.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "liveness/peer_connections.h"

namespace multiverso {
namespace {

// The time for an address to answer before the next one is tried.
constexpr auto kAddressTimeout = std::chrono::milliseconds(300);

}  // namespace

void PeerConnections::CallPeers(Instant now) {
  for (Peer& peer : peers_) {
    if (!peer.is_called || peer.is_settled) continue;
    const bool is_over = close_announced_ || now >= start_deadline_;
    while (!is_over && peer.next_target < peer.targets.size() && now >= peer.next_call) {
      peer.next_call = now + kAddressTimeout;
      Call(&peer, peer.targets[peer.next_target++]);
    }
    bool is_under_way = false;
    for (Connection& connection : connections_) {
      if (connection.peer != &peer) continue;
      if (is_over) Close(&connection, "no answer");
      is_under_way = true;
    }
    peer.is_settled = is_over || (!is_under_way && peer.next_target >= peer.targets.size());
  }
}

void PeerConnections::Call(Peer* peer, const NetworkAddress& address) {
  Connection* const connection = FreeConnection();
  if (connection == nullptr) return;
  connection->target = StrCat(NameOf(address), " port ", peer->address.port);
  connection->peer = peer;
  connection->stage = Stage::kConnecting;
  connection->deadline = start_deadline_;
  const Status begun = connection->stream.Connect(address, peer->address.port);
  if (!begun.ok()) Close(connection, begun.text());
}

void PeerConnections::AcceptStrangers() {
  for (size_t i = 0; i < connections_.size(); ++i) {
    Stream refused;  // accepted, and closed at once
    Connection* const connection = close_announced_ ? nullptr : FreeConnection();
    bool accepted = false;
    const Status status =
        port_->stream.Accept(connection == nullptr ? &refused : &connection->stream, &accepted);
    if (!status.ok()) {
      // If the port stayed open, it would stay ready, and the thread would never sleep.
      LogWarning(StrCat("rank ", rank_, " accepts no more connections: ", status.text()));
      port_->stream.Close();
    }
    if (!accepted) return;
    if (connection == nullptr) continue;
    connection->stage = Stage::kStranger;
    connection->deadline = Clock::now() + introduction_timeout_;
  }
}

void PeerConnections::ExpireConnections(Instant now) {
  for (Connection& connection : connections_) {
    if (connection.stage == Stage::kFree || connection.stage == Stage::kEstablished) continue;
    if (now >= connection.deadline) Close(&connection, "no answer");
  }
}

void PeerConnections::Settle(Instant now) {
  if (has_settled_) return;
  int missing = 0;
  const Peer* first = nullptr;
  for (Peer& peer : peers_) {
    // A peer that calls this rank may do so until the deadline.
    if (!peer.is_settled && now < start_deadline_) return;
    if (!peer.is_called || peer.was_established) continue;
    ++missing;
    if (first == nullptr) first = &peer;
  }
  has_settled_ = true;
  settled_.notify_all();
  if (first == nullptr || close_announced_) return;
  LogWarning(StrCat("rank ", rank_, " has no connection with ", first->name, " (", first->failure,
                    ")", missing == 1 ? "" : StrCat(" and ", missing - 1, " more"),
                    ": a death there is noticed after peer_timeout, ", peer_timeout_,
                    " s, and not at once"));
}

Status PeerConnections::AwaitSettled(const WaitLimit& limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  while (!has_settled_) {
    const Instant now = Clock::now();
    if (now >= start_deadline_ || now >= limit.deadline) break;
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    settled_.wait_until(guard, std::min(limit.NextCheck(now), start_deadline_));
  }
  return Status::Ok();
}

}  // namespace multiverso
