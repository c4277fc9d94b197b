#include "liveness/peer_connections.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564c4c;
// A way that does not answer is not waited for before the next is tried.
constexpr auto kNextWay = std::chrono::milliseconds(300);
constexpr size_t kMostStrangers = 32;
// What a rank sent last, over MPI, may still be on its way. If it has neighbours on its node they
// know better how far it had come, and look after it every 200 ms.
constexpr auto kOnItsWay = std::chrono::milliseconds(50);
// How often a thread that waits for the connections checks its limit.
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kNeighboursFirst = std::chrono::milliseconds(300);

}  // namespace

Result<std::unique_ptr<ConnectionPort>> PeerConnections::OpenPort() {
  auto port = std::make_unique<ConnectionPort>();
  uint16_t number = 0;
  MV_RETURN_IF_NOT_OK(port->stream.Listen(&number));
  Result<ConnectionAddress> address = DescribeLifeline(number);
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
      peers_(PlanLifelines(members).size()),
      most_(peers_.size() * (ConnectionAddress::kMost + 2) + kMostStrangers),
      connections_(new Connection[most_]),
      introduction_(limits.introduction),
      patience_(Clock::now() + limits.start) {
  const std::vector<ConnectionPeer> plan = PlanLifelines(members);
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
    if (peer.is_called) peer.ways = WaysTo(port_->address, peer.address);
    peer.trouble = peer.ways.empty() ? "it has no address" : "no answer";
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
      Call(now);
      Expire(now);
      Settle(now);
      for (const int i : CollectLost(now)) {
        const Peer& peer = peers_[static_cast<size_t>(i)];
        const std::string process = StrCat("(process ", peer.address.process, ")");
        const bool had_lost = peer.has_lost >= 0;
        dead.push_back({peer.rank,
                        StrCat(process, had_lost ? " ended" : " died",
                               " (its connection with rank ", rank_, " ended)"),
                        peer.has_lost});
      }
      next = NextEvent(until);
      watched = Watched();
    }
    for (const Death& death : dead) lost(death.rank, death.how, death.after);
    if (now >= until) return;
    const bool was_rung = AwaitStreams(bell_, next, &watched);
    const std::lock_guard<std::mutex> guard(mutex_);
    for (const Awaited& one : watched) {
      if (!one.is_ready) continue;
      if (one.place == most_) {
        Handle();
      } else {
        Advance(&connections_[one.place]);
      }
    }
    if (was_rung) return;
  }
}

// ---- Calling, and being called ------------------------------------------------------------------

void PeerConnections::Call(Instant now) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.is_called || peer.is_settled) continue;
    const bool is_over = said_goodbye_ || now >= patience_;
    while (!is_over && peer.next_way < peer.ways.size() && now >= peer.next_call) {
      peer.next_call = now + kNextWay;
      CallBy(i, peer.ways[peer.next_way++]);
    }
    bool is_under_way = false;
    for (size_t at = 0; at < most_; ++at) {
      Connection& connection = connections_[at];
      if (connection.stage == Stage::kFree || connection.peer != static_cast<int>(i)) continue;
      if (is_over) End(&connection, "no answer");
      is_under_way = true;
    }
    peer.is_settled = is_over || (!is_under_way && peer.next_way >= peer.ways.size());
  }
}

void PeerConnections::CallBy(size_t index, const NetworkAddress& way) {
  Peer& peer = peers_[index];
  Connection* const connection = FreeConnection();
  if (connection == nullptr) return;
  connection->place = StrCat(NameOf(way), " port ", peer.address.port);
  connection->peer = static_cast<int>(index);
  connection->stage = Stage::kConnecting;
  connection->until = patience_;
  const Status begun = connection->stream.Connect(way, peer.address.port);
  if (!begun.ok()) End(connection, begun.text());
}

void PeerConnections::Handle() {
  for (size_t i = 0; i < most_; ++i) {
    Stream nobody;
    Connection* const connection = said_goodbye_ ? nullptr : FreeConnection();
    bool came = false;
    const Status status =
        port_->stream.Accept(connection == nullptr ? &nobody : &connection->stream, &came);
    if (!status.ok()) {
      // Else the thread would be woken for it without end.
      LogWarning(StrCat("rank ", rank_, " takes in no more lifelines: ", status.text()));
      port_->stream.Close();
    }
    if (!came) return;
    if (connection == nullptr) continue;
    connection->stage = Stage::kNameless;
    connection->until = Clock::now() + introduction_;
  }
}

void PeerConnections::Expire(Instant now) {
  for (size_t i = 0; i < most_; ++i) {
    Connection& connection = connections_[i];
    const bool stands = connection.stage == Stage::kFree || connection.stage == Stage::kStanding;
    if (!stands && now >= connection.until) End(&connection, "no answer");
  }
}

void PeerConnections::Settle(Instant now) {
  if (has_settled_) return;
  int missing = 0;
  const Peer* first = nullptr;
  for (Peer& peer : peers_) {
    // Those that call this rank may still do so.
    if (!peer.is_settled && now < patience_) return;
    if (!peer.is_called || peer.has_stood) continue;
    ++missing;
    if (first == nullptr) first = &peer;
  }
  has_settled_ = true;
  settled_.notify_all();
  if (first == nullptr || said_goodbye_) return;
  LogWarning(StrCat("rank ", rank_, " has no connection with ", first->name, " (", first->trouble,
                    ")", missing == 1 ? "" : StrCat(" and ", missing - 1, " more"),
                    ": a death there will be known after peer_timeout, ", peer_timeout_,
                    " s, and not at once"));
}

Status PeerConnections::AwaitSettled(const WaitLimit& limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  while (!has_settled_) {
    const Instant now = Clock::now();
    // What is not there yet is done without.
    if (now >= patience_ || now >= limit.deadline) break;
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    settled_.wait_until(guard, std::min({limit.first(), patience_, now + kLook}));
  }
  return Status::Ok();
}

// ---- One connection -----------------------------------------------------------------------------

void PeerConnections::Advance(Connection* connection) {
  if (connection->stage == Stage::kConnecting) {
    const Status connected = connection->stream.CheckConnected();
    if (!connected.ok() || !Say(connection, Kind::kCall)) {
      End(connection, connected.text());
      return;
    }
    connection->stage = Stage::kCalling;
    return;
  }
  while (connection->stage != Stage::kFree) {
    size_t got = 0;
    const auto how = connection->stream.Receive(connection->bytes + connection->got,
                                                sizeof(Message) - connection->got, &got);
    if (how == Stream::Got::kNothing) return;
    if (how != Stream::Got::kBytes) {
      Broke(connection, how == Stream::Got::kEnd);
      return;
    }
    connection->got += got;
    if (connection->got < sizeof(Message)) continue;
    connection->got = 0;
    Message message;
    std::memcpy(&message, connection->bytes, sizeof(message));
    if (!Understand(connection, message)) Broke(connection, /*has_ended=*/false);
  }
}

bool PeerConnections::Understand(Connection* connection, const Message& message) {
  const int index = connection->peer >= 0 ? connection->peer : PeerOf(message.from);
  if (message.magic != kMagic || message.to != rank_ || index < 0 ||
      peers_[static_cast<size_t>(index)].rank != message.from ||
      !(message.token == port_->address.token)) {
    return false;
  }
  Peer& peer = peers_[static_cast<size_t>(index)];
  switch (connection->stage) {
    case Stage::kNameless:
      if (message.kind != Kind::kCall || peer.is_called || peer.has_stood || said_goodbye_) {
        return false;
      }
      connection->peer = index;
      connection->stage = Stage::kAnswering;
      return Say(connection, Kind::kAnswer);
    case Stage::kCalling:
      // Another way may have been faster.
      if (message.kind != Kind::kAnswer || peer.has_stood || said_goodbye_) return false;
      if (!Say(connection, Kind::kStands)) return false;
      Stand(connection);
      return true;
    case Stage::kAnswering:
      if (message.kind != Kind::kStands || peer.has_stood) return false;
      Stand(connection);
      return true;
    case Stage::kStanding:
      if (message.kind == Kind::kLost && message.lost >= 0) {
        peer.has_lost = message.lost;
        return true;
      }
      if (message.kind != Kind::kGoodbye) return false;
      End(connection, "");
      return true;
    default:
      return false;
  }
}

void PeerConnections::Stand(Connection* connection) {
  Peer& peer = peers_[static_cast<size_t>(connection->peer)];
  connection->stage = Stage::kStanding;
  peer.has_stood = true;
  peer.is_settled = true;
  peer.standing = static_cast<int>(connection - connections_.get());
  for (size_t i = 0; i < most_; ++i) {
    Connection& other = connections_[i];
    if (&other != connection && other.stage != Stage::kFree && other.peer == connection->peer) {
      End(&other, "");
    }
  }
  const auto is_missed = [](const Peer& one) { return !one.is_called && !one.has_stood; };
  if (std::none_of(peers_.begin(), peers_.end(), is_missed)) port_->stream.Close();
}

void PeerConnections::Broke(Connection* connection, bool has_ended) {
  const bool stood = connection->stage == Stage::kStanding;
  const int index = connection->peer;
  End(connection, has_ended ? "it hung up" : "it did not answer as a rank of this session");
  if (!stood || said_goodbye_) return;
  Peer& peer = peers_[static_cast<size_t>(index)];
  // A process that ends without having read all that came resets its connections.
  if (has_ended || peer.has_lost >= 0) {
    peer.has_ended.store(true);
    peer.was_lost = true;
    peer.lost_at = Clock::now() + (peer.is_alone ? kOnItsWay : kNeighboursFirst);
    return;
  }
  if (said_lost_) return;
  LogWarning(StrCat("the connection of rank ", rank_, " with ", peer.name,
                    " broke off: a death there will be known after peer_timeout, ", peer_timeout_,
                    " s, and not at once"));
}

void PeerConnections::End(Connection* connection, const std::string& why) {
  if (connection->stage == Stage::kConnecting || connection->stage == Stage::kCalling) {
    Peer& peer = peers_[static_cast<size_t>(connection->peer)];
    if (!why.empty()) peer.trouble = StrCat(connection->place, ": ", why);
    peer.next_call = Instant();
  }
  if (connection->stage == Stage::kStanding) {
    peers_[static_cast<size_t>(connection->peer)].standing = -1;
  }
  connection->stream.Close();
  connection->stage = Stage::kFree;
  connection->peer = -1;
  connection->got = 0;
}

bool PeerConnections::Say(Connection* connection, Kind kind, int lost) {
  const Peer& peer = peers_[static_cast<size_t>(connection->peer)];
  const Message message{kMagic, kind, rank_, peer.rank, lost, peer.address.token};
  return connection->stream.Send(&message, sizeof(message));
}

void PeerConnections::SayToAll(Kind kind, int lost) {
  for (size_t i = 0; i < most_; ++i) {
    Connection& connection = connections_[i];
    // For the other side one that has been answered may stand already.
    if (connection.stage == Stage::kStanding || connection.stage == Stage::kAnswering) {
      (void)Say(&connection, kind, lost);
    }
  }
}

// ---- The end ------------------------------------------------------------------------------------

void PeerConnections::AnnounceClose() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (said_goodbye_) return;
  said_goodbye_ = true;
  SayToAll(Kind::kGoodbye);
}

void PeerConnections::AnnounceLoss(int rank) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (said_goodbye_ || said_lost_) return;
  said_lost_ = true;
  SayToAll(Kind::kLost, rank);
}

void PeerConnections::CloseInForkedChild() {
  port_->stream.CloseInForkedChild();
  for (size_t i = 0; i < most_; ++i) connections_[i].stream.CloseInForkedChild();
}

// ---- SpinPolicy
// ------------------------------------------------------------------------------------

std::vector<int> PeerConnections::CollectLost(Instant now) {
  std::vector<int> lost;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].was_lost || now < peers_[i].lost_at) continue;
    peers_[i].was_lost = false;
    lost.push_back(static_cast<int>(i));
  }
  return lost;
}

Instant PeerConnections::NextEvent(Instant until) const {
  Instant next = has_settled_ ? until : std::min(until, patience_);
  for (const Peer& peer : peers_) {
    if (peer.was_lost) next = std::min(next, peer.lost_at);
    const bool may_call = peer.is_called && !peer.is_settled && peer.next_way < peer.ways.size();
    if (may_call) next = std::min(next, peer.next_call);
  }
  for (size_t i = 0; i < most_; ++i) {
    const Connection& connection = connections_[i];
    if (connection.stage == Stage::kFree || connection.stage == Stage::kStanding) continue;
    next = std::min(next, connection.until);
  }
  return next;
}

std::vector<Awaited> PeerConnections::Watched() const {
  std::vector<Awaited> all;
  if (port_->stream.is_open()) all.push_back({most_, port_->stream.descriptor(), false, false});
  for (size_t i = 0; i < most_; ++i) {
    const Connection& connection = connections_[i];
    if (connection.stage == Stage::kFree) continue;
    const bool is_connecting = connection.stage == Stage::kConnecting;
    all.push_back({i, connection.stream.descriptor(), is_connecting, false});
  }
  return all;
}

PeerConnections::Connection* PeerConnections::FreeConnection() const {
  for (size_t i = 0; i < most_; ++i) {
    if (connections_[i].stage == Stage::kFree) return &connections_[i];
  }
  return nullptr;
}

int PeerConnections::PeerOf(int rank) const {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].rank == rank) return static_cast<int>(i);
  }
  return -1;
}

bool PeerConnections::HasEnded(int rank) const {
  const int index = PeerOf(rank);
  if (index < 0) return false;
  const Peer& peer = peers_[static_cast<size_t>(index)];
  if (peer.has_ended.load()) return true;
  // The thread that attends may not have run since.
  const std::lock_guard<std::mutex> guard(mutex_);
  return peer.standing >= 0 && connections_[static_cast<size_t>(peer.standing)].stream.HasEnded();
}

int PeerConnections::standing() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  int count = 0;
  for (size_t i = 0; i < most_; ++i) count += connections_[i].stage == Stage::kStanding ? 1 : 0;
  return count;
}

}  // namespace multiverso
