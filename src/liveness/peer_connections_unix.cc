#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "liveness/peer_connections.h"

namespace multiverso {
namespace {

// There is room for so many connections of processes that are no ranks.
constexpr size_t kMaxStrangers = 32;
// A death is reported late, because the rank's last messages, over MPI, may still be in flight. If
// the rank's node has other ranks, they report first: they check the rank every 200 ms, and know
// which collectives it had begun.
constexpr auto kMessageDelay = std::chrono::milliseconds(50);
constexpr auto kNodeReportDelay = std::chrono::milliseconds(300);

}  // namespace

Result<std::unique_ptr<ConnectionPort>> PeerConnections::OpenPort() {
  auto port = std::make_unique<ConnectionPort>();
  uint16_t number = 0;
  MV_RETURN_IF_NOT_OK(port->stream.Listen(&number));
  Result<ConnectionAddress> address = NewAddress(number);
  if (!address.ok()) return address.status();
  port->address = address.value();
  return port;
}

Result<std::unique_ptr<PeerConnections>> PeerConnections::Open(
    std::unique_ptr<ConnectionPort> port, const Membership& members,
    const std::vector<ConnectionAddress>& addresses, const ConnectionTimeouts& timeouts) {
  std::unique_ptr<PeerConnections> connections(
      new PeerConnections(std::move(port), members, addresses, timeouts));
  MV_RETURN_IF_NOT_OK(connections->bell_.Open());
  return connections;
}

PeerConnections::PeerConnections(std::unique_ptr<ConnectionPort> port, const Membership& members,
                                 const std::vector<ConnectionAddress>& addresses,
                                 const ConnectionTimeouts& timeouts)
    : rank_(members.rank()),
      peer_timeout_(std::chrono::duration<double>(members.peer_timeout()).count()),
      port_(std::move(port)),
      peers_(PlanConnections(members).size()),
      // A rank calls a peer at several addresses at once, including loopback.
      connections_(peers_.size() * (ConnectionAddress::kMaxAddresses + 2) + kMaxStrangers),
      introduction_timeout_(timeouts.introduction),
      start_deadline_(Clock::now() + timeouts.start) {
  const std::vector<ConnectionPeer> plan = PlanConnections(members);
  std::vector<int> rank_counts(static_cast<size_t>(members.num_nodes()), 0);
  for (int rank = 0; rank < members.size(); ++rank) {
    ++rank_counts[static_cast<size_t>(members.node_of(rank))];
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    Peer& peer = peers_[i];
    peer.rank = plan[i].rank;
    peer.is_called = plan[i].is_called;
    peer.is_alone = rank_counts[static_cast<size_t>(members.node_of(peer.rank))] == 1;
    peer.name = members.NameRank(peer.rank);
    peer.address = addresses[static_cast<size_t>(peer.rank)];
    if (peer.is_called) peer.targets = AddressesOf(port_->address, peer.address);
    peer.failure = peer.targets.empty() ? "it has no address" : "no answer";
  }
}

void PeerConnections::Attend(Instant until, const DeathHandler& on_death) {
  for (;;) {
    std::vector<Death> deaths;
    std::vector<AwaitedStream> watched;
    const Instant now = Clock::now();
    Instant next;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      CallPeers(now);
      ExpireConnections(now);
      Settle(now);
      deaths = TakeDeaths(now);
      next = NextEvent(until);
      watched = WatchedStreams();
    }
    for (const Death& death : deaths) on_death(death.rank, death.how, death.known_loss);
    if (now >= until) return;
    const bool was_rung = AwaitStreams(bell_, next, &watched);
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const AwaitedStream& stream : watched) {
      if (!stream.is_ready) continue;
      if (stream.index == connections_.size()) {
        AcceptStrangers();
      } else {
        Advance(&connections_[stream.index]);
      }
    }
    if (was_rung) return;
  }
}

// ---- One connection -----------------------------------------------------------------------------

void PeerConnections::Advance(Connection* connection) {
  if (connection->stage == Stage::kConnecting) {
    const Status connected = connection->stream.CheckConnected();
    if (!connected.ok() || !Send(connection, MessageKind::kCall)) {
      Close(connection, connected.text());
      return;
    }
    connection->stage = Stage::kCalling;
    return;
  }
  while (connection->stage != Stage::kFree) {
    char buffer[kMessageBytes];
    size_t count = 0;
    const auto received =
        connection->stream.Receive(buffer, kMessageBytes - connection->bytes.size(), &count);
    if (received == Stream::Received::kNothing) return;
    if (received != Stream::Received::kBytes) {
      HandleBreak(connection, received == Stream::Received::kEnd);
      return;
    }
    connection->bytes.append(buffer, count);
    if (connection->bytes.size() < kMessageBytes) continue;
    std::string bytes;
    bytes.swap(connection->bytes);
    Message message{};
    if (!FrameReader(bytes).ReadHeader(FrameKind::kConnection, &message) ||
        !Handle(connection, message)) {
      HandleBreak(connection, /*has_ended=*/false);
    }
  }
}

bool PeerConnections::Handle(Connection* connection, const Message& message) {
  Peer* const sender = connection->peer != nullptr ? connection->peer : FindPeer(message.from);
  if (message.to != rank_ || sender == nullptr || sender->rank != message.from ||
      !(message.token == port_->address.token)) {
    return false;
  }
  Peer& peer = *sender;
  switch (connection->stage) {
    case Stage::kStranger:
      if (message.kind != MessageKind::kCall || peer.is_called || peer.was_established ||
          close_announced_) {
        return false;
      }
      connection->peer = sender;
      connection->stage = Stage::kAnswering;
      return Send(connection, MessageKind::kAnswer);
    case Stage::kCalling:
      // A connection at another address may have been established first.
      if (message.kind != MessageKind::kAnswer || peer.was_established || close_announced_)
        return false;
      if (!Send(connection, MessageKind::kConfirm)) return false;
      Establish(connection);
      return true;
    case Stage::kAnswering:
      if (message.kind != MessageKind::kConfirm || peer.was_established) return false;
      Establish(connection);
      return true;
    case Stage::kEstablished:
      if (message.kind == MessageKind::kLoss && message.lost >= 0) {
        peer.known_loss = message.lost;
        return true;
      }
      if (message.kind != MessageKind::kClose) return false;
      Close(connection, "");
      return true;
    default:
      return false;
  }
}

void PeerConnections::Establish(Connection* connection) {
  Peer& peer = *connection->peer;
  connection->stage = Stage::kEstablished;
  peer.was_established = true;
  peer.is_settled = true;
  peer.connection = connection;
  for (Connection& other : connections_) {
    if (&other != connection && other.peer == &peer) Close(&other, "");
  }
  const auto is_expected = [](const Peer& p) { return !p.is_called && !p.was_established; };
  if (std::none_of(peers_.begin(), peers_.end(), is_expected)) port_->stream.Close();
}

void PeerConnections::HandleBreak(Connection* connection, bool has_ended) {
  const bool was_established = connection->stage == Stage::kEstablished;
  Peer* const peer = connection->peer;
  Close(connection, has_ended ? "it hung up" : "it is not a rank of this session");
  if (!was_established || close_announced_) return;
  // A process that ends with unread messages resets its connections. So after an announced loss, a
  // reset counts as the end of the process too.
  if (has_ended || peer->known_loss >= 0) {
    peer->has_ended.store(true);
    peer->is_to_be_reported = true;
    peer->report_at = Clock::now() + (peer->is_alone ? kMessageDelay : kNodeReportDelay);
    return;
  }
  if (loss_announced_) return;
  LogWarning(StrCat("the connection of rank ", rank_, " with ", peer->name,
                    " broke: a death there is noticed after peer_timeout, ", peer_timeout_,
                    " s, and not at once"));
}

void PeerConnections::Close(Connection* connection, const std::string& why) {
  if (connection->stage == Stage::kConnecting || connection->stage == Stage::kCalling) {
    if (!why.empty()) connection->peer->failure = StrCat(connection->target, ": ", why);
    connection->peer->next_call = Instant();  // the next address is called at once
  }
  if (connection->stage == Stage::kEstablished) connection->peer->connection = nullptr;
  connection->stream.Close();
  connection->stage = Stage::kFree;
  connection->peer = nullptr;
  connection->bytes.clear();
}

bool PeerConnections::Send(Connection* connection, MessageKind kind, int lost) {
  const Peer& peer = *connection->peer;
  const std::string bytes =
      MakeFrame(FrameKind::kConnection, Message{kind, rank_, peer.rank, lost, peer.address.token});
  return connection->stream.Send(bytes.data(), bytes.size());
}

void PeerConnections::SendToAll(MessageKind kind, int lost) {
  for (Connection& connection : connections_) {
    // An answered connection may already be established for the other side.
    if (connection.stage == Stage::kEstablished || connection.stage == Stage::kAnswering) {
      (void)Send(&connection, kind, lost);
    }
  }
}

// ---- The end ------------------------------------------------------------------------------------

void PeerConnections::AnnounceClose() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (close_announced_) return;
  close_announced_ = true;
  SendToAll(MessageKind::kClose);
}

void PeerConnections::AnnounceLoss(int rank) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (close_announced_ || loss_announced_) return;
  loss_announced_ = true;
  SendToAll(MessageKind::kLoss, rank);
}

// ---- Queries ------------------------------------------------------------------------------------

std::vector<PeerConnections::Death> PeerConnections::TakeDeaths(Instant now) {
  std::vector<Death> deaths;
  for (Peer& peer : peers_) {
    if (!peer.is_to_be_reported || now < peer.report_at) continue;
    peer.is_to_be_reported = false;
    const char* const ended = peer.known_loss >= 0 ? ") ended" : ") died";
    deaths.push_back({peer.rank,
                      StrCat("(process ", peer.address.process, ended,
                             " (its connection with rank ", rank_, " ended)"),
                      peer.known_loss});
  }
  return deaths;
}

Instant PeerConnections::NextEvent(Instant until) const {
  Instant next = has_settled_ ? until : std::min(until, start_deadline_);
  for (const Peer& peer : peers_) {
    if (peer.is_to_be_reported) next = std::min(next, peer.report_at);
    const bool may_call =
        peer.is_called && !peer.is_settled && peer.next_target < peer.targets.size();
    if (may_call) next = std::min(next, peer.next_call);
  }
  for (const Connection& connection : connections_) {
    if (connection.stage == Stage::kFree || connection.stage == Stage::kEstablished) continue;
    next = std::min(next, connection.deadline);
  }
  return next;
}

std::vector<AwaitedStream> PeerConnections::WatchedStreams() const {
  std::vector<AwaitedStream> streams;
  if (port_->stream.is_open()) {
    streams.push_back({connections_.size(), port_->stream.descriptor(), false, false});
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i].stage == Stage::kFree) continue;
    const bool is_connecting = connections_[i].stage == Stage::kConnecting;
    streams.push_back({i, connections_[i].stream.descriptor(), is_connecting, false});
  }
  return streams;
}

PeerConnections::Connection* PeerConnections::FreeConnection() {
  for (Connection& connection : connections_) {
    if (connection.stage == Stage::kFree) return &connection;
  }
  return nullptr;
}

PeerConnections::Peer* PeerConnections::FindPeer(int rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return &peer;
  }
  return nullptr;
}

bool PeerConnections::HasEnded(int rank) {
  const Peer* const peer = FindPeer(rank);
  if (peer == nullptr) return false;
  if (peer->has_ended.load()) return true;
  // The thread that attends to the connections may not have seen the end yet. A rank that is told
  // of a close ends the connection, although it lives.
  const std::lock_guard<std::mutex> guard(mutex_);
  return !close_announced_ && peer->connection != nullptr && peer->connection->stream.HasEnded();
}

int PeerConnections::num_established() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return static_cast<int>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection& c) { return c.stage == Stage::kEstablished; }));
}

}  // namespace multiverso
