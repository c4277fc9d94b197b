#include "liveness/peer_connections.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The time for an address to answer before the next one is tried.
constexpr auto kNextAddress = std::chrono::milliseconds(300);
constexpr size_t kMaxStrangers = 32;
// The last messages of a rank, over MPI, may still be in flight. The other ranks of its node check
// the rank every 200 ms and know which collectives it had begun, so they report first.
constexpr auto kMessageDelay = std::chrono::milliseconds(50);
constexpr auto kNodeReportsFirst = std::chrono::milliseconds(300);
// How often a thread that waits for the connections checks its limit.
constexpr auto kCheckInterval = std::chrono::milliseconds(20);

}  // namespace

Result<std::unique_ptr<ConnectionPort>> PeerConnections::OpenPort() {
  auto port = std::make_unique<ConnectionPort>();
  uint16_t number = 0;
  MV_RETURN_IF_NOT_OK(port->stream.Listen(&number));
  Result<ConnectionAddress> address = DescribeAddress(number);
  if (!address.ok()) return address.status();
  port->address = address.value();
  return port;
}

Result<std::unique_ptr<PeerConnections>> PeerConnections::Open(
    std::unique_ptr<ConnectionPort> port, const Membership& members,
    const std::vector<ConnectionAddress>& addresses, const ConnectionLimits& limits) {
  std::unique_ptr<PeerConnections> connections(
      new PeerConnections(std::move(port), members, addresses, limits));
  MV_RETURN_IF_NOT_OK(connections->bell_.Open());
  return connections;
}

PeerConnections::PeerConnections(std::unique_ptr<ConnectionPort> port, const Membership& members,
                                 const std::vector<ConnectionAddress>& addresses,
                                 const ConnectionLimits& limits)
    : rank_(members.rank()),
      peer_timeout_(std::chrono::duration<double>(members.peer_timeout()).count()),
      port_(std::move(port)),
      peers_(PlanConnections(members).size()),
      max_connections_(peers_.size() * (ConnectionAddress::kMaxAddresses + 2) + kMaxStrangers),
      connections_(new Connection[max_connections_]),
      introduction_(limits.introduction),
      start_deadline_(Clock::now() + limits.start) {
  const std::vector<ConnectionPeer> plan = PlanConnections(members);
  std::vector<int> ranks_of(static_cast<size_t>(members.num_nodes()), 0);
  for (int rank = 0; rank < members.size(); ++rank) {
    ++ranks_of[static_cast<size_t>(members.node_of(rank))];
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    Peer& peer = peers_[i];
    peer.rank = plan[i].rank;
    peer.is_called = plan[i].is_called;
    peer.is_alone = ranks_of[static_cast<size_t>(members.node_of(peer.rank))] == 1;
    peer.name = members.NameRank(peer.rank);
    peer.address = addresses[static_cast<size_t>(peer.rank)];
    if (peer.is_called) peer.addresses = AddressesOf(port_->address, peer.address);
    peer.failure = peer.addresses.empty() ? "it has no address" : "no answer";
  }
}

void PeerConnections::Attend(Instant until, const Lost& lost) {
  for (;;) {
    struct Death {
      int rank;
      std::string how;
      int after;
    };
    std::vector<Death> dead;
    std::vector<Awaited> watched;
    const Instant now = Clock::now();
    Instant next;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      CallPeers(now);
      ExpireConnections(now);
      Settle(now);
      for (const int i : TakeLost(now)) {
        const Peer& peer = peers_[static_cast<size_t>(i)];
        const std::string process = StrCat("(process ", peer.address.process, ")");
        const bool had_lost = peer.has_lost >= 0;
        dead.push_back({peer.rank,
                        StrCat(process, had_lost ? " ended" : " died",
                               " (its connection with rank ", rank_, " ended)"),
                        peer.has_lost});
      }
      next = NextEvent(until);
      watched = WatchedStreams();
    }
    for (const Death& death : dead) lost(death.rank, death.how, death.after);
    if (now >= until) return;
    const bool was_rung = AwaitStreams(bell_, next, &watched);
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const Awaited& one : watched) {
      if (!one.is_ready) continue;
      if (one.place == max_connections_) {
        AcceptStrangers();
      } else {
        Advance(&connections_[one.place]);
      }
    }
    if (was_rung) return;
  }
}

// ---- Calling, and being called ------------------------------------------------------------------

void PeerConnections::CallPeers(Instant now) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.is_called || peer.is_settled) continue;
    const bool is_over = close_announced_ || now >= start_deadline_;
    while (!is_over && peer.next_address < peer.addresses.size() && now >= peer.next_call) {
      peer.next_call = now + kNextAddress;
      Call(i, peer.addresses[peer.next_address++]);
    }
    bool is_under_way = false;
    for (size_t at = 0; at < max_connections_; ++at) {
      Connection& connection = connections_[at];
      if (connection.stage == Stage::kFree || connection.peer != static_cast<int>(i)) continue;
      if (is_over) Close(&connection, "no answer");
      is_under_way = true;
    }
    peer.is_settled = is_over || (!is_under_way && peer.next_address >= peer.addresses.size());
  }
}

void PeerConnections::Call(size_t index, const NetworkAddress& address) {
  Peer& peer = peers_[index];
  Connection* const connection = FreeConnection();
  if (connection == nullptr) return;
  connection->target = StrCat(NameOf(address), " port ", peer.address.port);
  connection->peer = static_cast<int>(index);
  connection->stage = Stage::kConnecting;
  connection->until = start_deadline_;
  const Status begun = connection->stream.Connect(address, peer.address.port);
  if (!begun.ok()) Close(connection, begun.text());
}

void PeerConnections::AcceptStrangers() {
  for (size_t i = 0; i < max_connections_; ++i) {
    Stream nobody;
    Connection* const connection = close_announced_ ? nullptr : FreeConnection();
    bool came = false;
    const Status status =
        port_->stream.Accept(connection == nullptr ? &nobody : &connection->stream, &came);
    if (!status.ok()) {
      // An open port would stay ready, and the thread would never sleep.
      LogWarning(StrCat("rank ", rank_, " accepts no more connections: ", status.text()));
      port_->stream.Close();
    }
    if (!came) return;
    if (connection == nullptr) continue;
    connection->stage = Stage::kUnknown;
    connection->until = Clock::now() + introduction_;
  }
}

void PeerConnections::ExpireConnections(Instant now) {
  for (size_t i = 0; i < max_connections_; ++i) {
    Connection& connection = connections_[i];
    const bool stands = connection.stage == Stage::kFree || connection.stage == Stage::kEstablished;
    if (!stands && now >= connection.until) Close(&connection, "no answer");
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
    settled_.wait_until(guard, std::min({limit.earliest(), start_deadline_, now + kCheckInterval}));
  }
  return Status::Ok();
}

// ---- One connection -----------------------------------------------------------------------------

void PeerConnections::Advance(Connection* connection) {
  if (connection->stage == Stage::kConnecting) {
    const Status connected = connection->stream.CheckConnected();
    if (!connected.ok() || !Send(connection, Kind::kCall)) {
      Close(connection, connected.text());
      return;
    }
    connection->stage = Stage::kCalling;
    return;
  }
  while (connection->stage != Stage::kFree) {
    char buffer[kMessageBytes];
    size_t got = 0;
    const auto how =
        connection->stream.Receive(buffer, kMessageBytes - connection->bytes.size(), &got);
    if (how == Stream::Got::kNothing) return;
    if (how != Stream::Got::kBytes) {
      HandleBreak(connection, how == Stream::Got::kEnd);
      return;
    }
    connection->bytes.append(buffer, got);
    if (connection->bytes.size() < kMessageBytes) continue;
    const std::string bytes = std::move(connection->bytes);
    connection->bytes.clear();
    Message message{};
    if (!FrameReader(bytes).ReadHeader(FrameKind::kConnection, &message) ||
        !Handle(connection, message)) {
      HandleBreak(connection, /*has_ended=*/false);
    }
  }
}

bool PeerConnections::Handle(Connection* connection, const Message& message) {
  const int index = connection->peer >= 0 ? connection->peer : IndexOf(message.from);
  if (message.to != rank_ || index < 0 || peers_[static_cast<size_t>(index)].rank != message.from ||
      !(message.token == port_->address.token)) {
    return false;
  }
  Peer& peer = peers_[static_cast<size_t>(index)];
  switch (connection->stage) {
    case Stage::kUnknown:
      if (message.kind != Kind::kCall || peer.is_called || peer.was_established ||
          close_announced_) {
        return false;
      }
      connection->peer = index;
      connection->stage = Stage::kAnswering;
      return Send(connection, Kind::kAnswer);
    case Stage::kCalling:
      // A connection at another address may have been established first.
      if (message.kind != Kind::kAnswer || peer.was_established || close_announced_) return false;
      if (!Send(connection, Kind::kConfirm)) return false;
      Establish(connection);
      return true;
    case Stage::kAnswering:
      if (message.kind != Kind::kConfirm || peer.was_established) return false;
      Establish(connection);
      return true;
    case Stage::kEstablished:
      if (message.kind == Kind::kLoss && message.lost >= 0) {
        peer.has_lost = message.lost;
        return true;
      }
      if (message.kind != Kind::kClose) return false;
      Close(connection, "");
      return true;
    default:
      return false;
  }
}

void PeerConnections::Establish(Connection* connection) {
  Peer& peer = peers_[static_cast<size_t>(connection->peer)];
  connection->stage = Stage::kEstablished;
  peer.was_established = true;
  peer.is_settled = true;
  peer.connection = static_cast<int>(connection - connections_.get());
  for (size_t i = 0; i < max_connections_; ++i) {
    Connection& other = connections_[i];
    if (&other != connection && other.stage != Stage::kFree && other.peer == connection->peer) {
      Close(&other, "");
    }
  }
  const auto is_missed = [](const Peer& one) { return !one.is_called && !one.was_established; };
  if (std::none_of(peers_.begin(), peers_.end(), is_missed)) port_->stream.Close();
}

void PeerConnections::HandleBreak(Connection* connection, bool has_ended) {
  const bool stood = connection->stage == Stage::kEstablished;
  const int index = connection->peer;
  Close(connection, has_ended ? "it hung up" : "it is not a rank of this session");
  if (!stood || close_announced_) return;
  Peer& peer = peers_[static_cast<size_t>(index)];
  // A process that ends with unread messages resets its connections. So after an announced loss, a
  // reset counts as the end of the process too.
  if (has_ended || peer.has_lost >= 0) {
    peer.has_ended.store(true);
    peer.is_to_be_reported = true;
    peer.report_at = Clock::now() + (peer.is_alone ? kMessageDelay : kNodeReportsFirst);
    return;
  }
  if (loss_announced_) return;
  LogWarning(StrCat("the connection of rank ", rank_, " with ", peer.name,
                    " broke: a death there is noticed after peer_timeout, ", peer_timeout_,
                    " s, and not at once"));
}

void PeerConnections::Close(Connection* connection, const std::string& why) {
  if (connection->stage == Stage::kConnecting || connection->stage == Stage::kCalling) {
    Peer& peer = peers_[static_cast<size_t>(connection->peer)];
    if (!why.empty()) peer.failure = StrCat(connection->target, ": ", why);
    peer.next_call = Instant();
  }
  if (connection->stage == Stage::kEstablished) {
    peers_[static_cast<size_t>(connection->peer)].connection = -1;
  }
  connection->stream.Close();
  connection->stage = Stage::kFree;
  connection->peer = -1;
  connection->bytes.clear();
}

bool PeerConnections::Send(Connection* connection, Kind kind, int lost) {
  const Peer& peer = peers_[static_cast<size_t>(connection->peer)];
  const std::string bytes =
      MakeFrame(FrameKind::kConnection, Message{kind, rank_, peer.rank, lost, peer.address.token});
  return connection->stream.Send(bytes.data(), bytes.size());
}

void PeerConnections::SendToAll(Kind kind, int lost) {
  for (size_t i = 0; i < max_connections_; ++i) {
    Connection& connection = connections_[i];
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
  SendToAll(Kind::kClose);
}

void PeerConnections::AnnounceLoss(int rank) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (close_announced_ || loss_announced_) return;
  loss_announced_ = true;
  SendToAll(Kind::kLoss, rank);
}

void PeerConnections::CloseInForkedChild() {
  port_->stream.CloseInForkedChild();
  for (size_t i = 0; i < max_connections_; ++i) connections_[i].stream.CloseInForkedChild();
}

// ---- Looking -----------------------------------------------------------------------------------

std::vector<int> PeerConnections::TakeLost(Instant now) {
  std::vector<int> lost;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].is_to_be_reported || now < peers_[i].report_at) continue;
    peers_[i].is_to_be_reported = false;
    lost.push_back(static_cast<int>(i));
  }
  return lost;
}

Instant PeerConnections::NextEvent(Instant until) const {
  Instant next = has_settled_ ? until : std::min(until, start_deadline_);
  for (const Peer& peer : peers_) {
    if (peer.is_to_be_reported) next = std::min(next, peer.report_at);
    const bool may_call =
        peer.is_called && !peer.is_settled && peer.next_address < peer.addresses.size();
    if (may_call) next = std::min(next, peer.next_call);
  }
  for (size_t i = 0; i < max_connections_; ++i) {
    const Connection& connection = connections_[i];
    if (connection.stage == Stage::kFree || connection.stage == Stage::kEstablished) continue;
    next = std::min(next, connection.until);
  }
  return next;
}

std::vector<Awaited> PeerConnections::WatchedStreams() const {
  std::vector<Awaited> all;
  if (port_->stream.is_open())
    all.push_back({max_connections_, port_->stream.descriptor(), false, false});
  for (size_t i = 0; i < max_connections_; ++i) {
    const Connection& connection = connections_[i];
    if (connection.stage == Stage::kFree) continue;
    const bool is_connecting = connection.stage == Stage::kConnecting;
    all.push_back({i, connection.stream.descriptor(), is_connecting, false});
  }
  return all;
}

PeerConnections::Connection* PeerConnections::FreeConnection() const {
  for (size_t i = 0; i < max_connections_; ++i) {
    if (connections_[i].stage == Stage::kFree) return &connections_[i];
  }
  return nullptr;
}

int PeerConnections::IndexOf(int rank) const {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].rank == rank) return static_cast<int>(i);
  }
  return -1;
}

bool PeerConnections::HasEnded(int rank) const {
  const int index = IndexOf(rank);
  if (index < 0) return false;
  const Peer& peer = peers_[static_cast<size_t>(index)];
  if (peer.has_ended.load()) return true;
  // The thread that attends to the connections may not have seen the end yet.
  const std::lock_guard<std::mutex> guard(mutex_);
  return peer.connection >= 0 &&
         connections_[static_cast<size_t>(peer.connection)].stream.HasEnded();
}

int PeerConnections::num_established() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  int count = 0;
  for (size_t i = 0; i < max_connections_; ++i)
    count += connections_[i].stage == Stage::kEstablished ? 1 : 0;
  return count;
}

}  // namespace multiverso
