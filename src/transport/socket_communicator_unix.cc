#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "base/text.h"
#include "transport/local_address.h"
#include "transport/socket_communicator.h"

namespace multiverso {
namespace {

// The most bytes of a message: the list of all ranks' entries for a startup exchange.
constexpr uint32_t kMaxBytes = uint32_t{1} << 30;

Status SystemError(const char* what) {
  return Status(Code::kTransport, StrCat("a job without MPI: ", what, ": ", std::strerror(errno)));
}

// Owns a socket. Reads and writes never wait.
class Connection {
 public:
  Connection() = default;
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() { Close(); }
  Connection(Connection&& other) noexcept { *this = std::move(other); }
  Connection& operator=(Connection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(incoming_, other.incoming_);
    std::swap(outgoing_, other.outgoing_);
    return *this;
  }

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool AllSent() const { return !is_open() || outgoing_.empty(); }

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  // Connects if a process of this user listens at the address.
  void TryConnect(const LocalAddress& address) {
    const int fd = NewSocket(AF_UNIX);
    if (fd < 0) return;
    if (address.Connect(fd) && IsOwn(fd)) {
      fd_ = fd;
    } else {
      close(fd);
    }
  }

  // Returns whether a process of this user is at the other end.
  static bool IsOwn(int fd) {
#if defined(SO_PEERCRED)
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
#else
    uid_t user = 0;
    gid_t group = 0;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
#endif
  }

  void Queue(const std::string& bytes) { outgoing_ += bytes; }
  std::string TakeQueued() { return std::exchange(outgoing_, std::string()); }

  // Writes what the socket takes. Returns false if the other end is closed.
  bool Write() {
    while (!outgoing_.empty()) {
      const ssize_t sent =
          send(fd_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      outgoing_.erase(0, static_cast<size_t>(sent));
    }
    return true;
  }

  // Reads what has arrived. Returns false if the other end is closed.
  bool Read() {
    char buffer[4096];
    for (;;) {
      const ssize_t count = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      if (count == 0) return false;
      incoming_.append(buffer, static_cast<size_t>(count));
    }
  }

  // Takes a number or a message from the bytes that were read, if it is complete.
  bool Take(uint32_t* number) {
    if (incoming_.size() < sizeof(*number)) return false;
    std::memcpy(number, incoming_.data(), sizeof(*number));
    incoming_.erase(0, sizeof(*number));
    return true;
  }
  bool Take(std::string* message) {
    uint32_t length = 0;
    if (incoming_.size() < sizeof(length)) return false;
    std::memcpy(&length, incoming_.data(), sizeof(length));
    if (length > kMaxBytes || incoming_.size() - sizeof(length) < length) return false;
    *message = incoming_.substr(sizeof(length), length);
    incoming_.erase(0, sizeof(length) + length);
    return true;
  }

 private:
  int fd_ = -1;
  std::string incoming_;
  std::string outgoing_;
};

std::string BytesOf(uint32_t number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

class Sockets final : public Communicator {
 public:
  Sockets(LocalJob job, int64_t use)
      : job_(std::move(job)),
        use_(use),
        address_(StrCat("multiverso/", job_.name, "/", use)),
        peers_(static_cast<size_t>(job_.rank == 0 ? job_.size : 1)) {
    // The first bytes tell rank 0 whose connection it is.
    if (job_.rank != 0) peers_[0].Queue(BytesOf(static_cast<uint32_t>(job_.rank)));
  }
  ~Sockets() override {
    if (has_name_) address_.Remove();
  }

  Status Listen() {
    if (job_.rank != 0) return Status::Ok();
    Connection listener(NewSocket(AF_UNIX));
    if (!listener.is_open()) return SystemError("socket");
    if (!address_.Bind(listener.fd())) {
      if (errno != EADDRINUSE) return SystemError("bind");
      return Status(Code::kState, StrCat("another process is rank 0 of job '", job_.name, "'"));
    }
    has_name_ = true;
    listener_ = std::move(listener);
    return listen(listener_.fd(), job_.size) == 0 ? Status::Ok() : SystemError("listen");
  }

  int rank() const override { return job_.rank; }
  int size() const override { return job_.size; }
  std::string Describe() const override { return "Unix sockets, without MPI"; }
  bool AllRanksReachEachOther() const override { return false; }

  Status CountUse(int64_t* count) override {
    *count = use_;
    return Status::Ok();
  }

  Status Send(int to, int /*tag*/, std::string bytes) override {
    Connection& peer = peers_[static_cast<size_t>(to)];
    peer.Queue(BytesOf(static_cast<uint32_t>(bytes.size())) + bytes);
    return Advance();
  }

  Status TryReceive(int /*tag*/, Instant /*deadline*/, std::string* bytes, bool* got) override {
    *got = false;
    MV_RETURN_IF_NOT_OK(Advance());
    for (size_t peer = 0; peer < peers_.size() && !*got; ++peer) {
      if (!peers_[peer].is_open()) continue;
      const bool is_alive = peers_[peer].Read();
      *got = peers_[peer].Take(bytes);
      if (!is_alive && !*got) return Lost(peer);
    }
    return Status::Ok();
  }

  Status Advance() override {
    if (job_.rank == 0) {
      AcceptAll();
    } else if (!peers_[0].is_open()) {
      peers_[0].TryConnect(address_);
    }
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      // A closed connection may still have bytes to read, so TryReceive reports the loss.
      if (peers_[peer].is_open()) (void)peers_[peer].Write();
    }
    return Status::Ok();
  }

  bool AllSent() const override {
    for (const Connection& peer : peers_) {
      if (!peer.AllSent()) return false;
    }
    return true;
  }

  Status CheckCanDuplicate() const override {
    return Status(Code::kUnsupported,
                  "a job without MPI runs on one node: start the ranks with mpirun");
  }
  Status BeginDuplicate() override { return CheckCanDuplicate(); }
  Status PollDuplicate(std::unique_ptr<Messenger>* /*messenger*/) override {
    return CheckCanDuplicate();
  }

 private:
  void AcceptAll() {
    for (;;) {
      const int fd = AcceptSocket(listener_.fd());
      if (fd < 0) break;
      Connection accepted(fd);
      if (Connection::IsOwn(fd)) unknown_.push_back(std::move(accepted));
    }
    for (auto connection = unknown_.begin(); connection != unknown_.end();) {
      uint32_t rank = 0;
      const bool is_alive = connection->Read();
      const bool is_known = connection->Take(&rank);
      if (is_known && rank > 0 && rank < peers_.size() && !peers_[rank].is_open()) {
        Connection* const peer = &peers_[rank];
        // Messages may have been queued before the rank connected.
        connection->Queue(peer->TakeQueued());
        *peer = std::move(*connection);
      }
      if (is_known && has_name_ && AllConnected()) {
        address_.Remove();
        has_name_ = false;
      }
      connection = is_known || !is_alive ? unknown_.erase(connection) : std::next(connection);
    }
  }

  // On rank 0, whose connection to itself is closed.
  bool AllConnected() const {
    const auto is_open = [](const Connection& peer) { return peer.is_open(); };
    return std::all_of(peers_.begin() + 1, peers_.end(), is_open);
  }

  Status Lost(size_t peer) {
    peers_[peer].Close();
    PeerFault fault;
    fault.rank = static_cast<int32_t>(peer);
    return Status(Code::kPeerLost, StrCat("rank ", peer, " ended before the session was open"))
        .About(std::move(fault));
  }

  LocalJob job_;
  int64_t use_;
  LocalAddress address_;
  bool has_name_ = false;  // whether ranks can still connect to this rank, which is rank 0
  Connection listener_;
  std::vector<Connection> unknown_;  // connections to rank 0 that have not sent their rank yet
  std::vector<Connection> peers_;    // on rank 0 those of all ranks, elsewhere that to rank 0
};

// Returns how often this process has used the job's name, which is the same on all its ranks: a
// process may belong to several jobs.
int64_t CountUse(const std::string& name) {
  static std::mutex mutex;
  static auto* const uses = new std::map<std::string, int64_t>();
  const std::lock_guard<std::mutex> guard(mutex);
  return ++(*uses)[name];
}

}  // namespace

Result<std::unique_ptr<Communicator>> SocketCommunicator::Open(const LocalJob& job) {
  if (job.name.empty() || job.name.size() > LocalJob::kMaxNameBytes) {
    return Status(Code::kValue, StrCat("job_name: expected 1 to ", LocalJob::kMaxNameBytes,
                                       " bytes, received '", job.name, "'"));
  }
  if (job.size < 1 || job.rank < 0 || job.rank >= job.size) {
    return Status(Code::kValue,
                  StrCat("job_rank: expected a rank from 0 to job_size - 1, received ", job.rank,
                         " of ", job.size));
  }
  auto sockets = std::make_unique<Sockets>(job, CountUse(job.name));
  MV_RETURN_IF_NOT_OK(sockets->Listen());
  return std::unique_ptr<Communicator>(std::move(sockets));
}

}  // namespace multiverso
