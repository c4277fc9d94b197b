#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/socket.h"
#include "base/text.h"
#include "liveness/stream.h"

namespace multiverso {
namespace {

// The kernel queues up to this many connections until the rank accepts them.
constexpr int kBacklog = 1024;
constexpr int64_t kMaxWaitMs = 60000;  // since poll takes an int

Status Failure(const char* call) {
  return Status(Code::kTransport, StrCat(call, ": ", std::strerror(errno)));
}

// Writes the address in the form of the system's calls, and returns its length.
socklen_t Fill(const NetworkAddress& address, uint16_t port, sockaddr_storage* out) {
  *out = {};
  if (address.family == NetworkAddress::kIpV4) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(out);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, address.bytes, sizeof(v4->sin_addr));
    return sizeof(*v4);
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(out);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  std::memcpy(&v6->sin6_addr, address.bytes, sizeof(v6->sin6_addr));
  return sizeof(*v6);
}

// Listens at a free port of all addresses of that family. Returns -1 if that fails.
int ListenAt(int family, uint16_t* port) {
  const int descriptor = NewSocket(family, IPPROTO_TCP);
  if (descriptor < 0) return -1;
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int off = 0;
  // An IPv6 socket also serves IPv4 only if IPV6_V6ONLY is off.
  const bool has_ipv4 = family == AF_INET ||
                        setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!has_ipv4 || bind(descriptor, address, bytes) != 0 || listen(descriptor, kBacklog) != 0 ||
      getsockname(descriptor, address, &bytes) != 0) {
    const int error = errno;
    close(descriptor);
    errno = error;
    return -1;
  }
  *port = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in*>(&any)->sin_port
                                  : reinterpret_cast<sockaddr_in6*>(&any)->sin6_port);
  return descriptor;
}

// Sets *address to the address of the entry. Returns false unless other machines may reach it.
bool ReadAddress(const ifaddrs& entry, NetworkAddress* address) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 ||
      (entry.ifa_flags & IFF_LOOPBACK) != 0) {
    return false;
  }
  *address = NetworkAddress();
  if (entry.ifa_addr->sa_family == AF_INET) {
    address->family = NetworkAddress::kIpV4;
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr);
    std::memcpy(address->bytes, &v4->sin_addr, sizeof(v4->sin_addr));
    return true;
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  address->family = NetworkAddress::kIpV6;
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  std::memcpy(address->bytes, &v6->sin6_addr, sizeof(v6->sin6_addr));
  return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

}  // namespace

// The open streams of this process, which a forked child closes. While this object lives, no thread
// can fork, so that a child finds every open descriptor in the list, and the mutex unlocked.
class OpenStreams {
 public:
  OpenStreams() {
    // If the registration fails for want of memory, forked children keep the connections open.
    [[maybe_unused]] static const int failure =
        pthread_atfork([] { mutex_.lock(); }, [] { mutex_.unlock(); }, CloseInForkedChild);
    mutex_.lock();
  }
  ~OpenStreams() { mutex_.unlock(); }
  OpenStreams(const OpenStreams&) = delete;
  OpenStreams& operator=(const OpenStreams&) = delete;

  void Add(Stream* stream) { streams_->push_back(stream); }
  void Remove(Stream* stream) {
    streams_->erase(std::remove(streams_->begin(), streams_->end(), stream), streams_->end());
  }

 private:
  // Only makes calls that are allowed in the child of a process with several threads.
  static void CloseInForkedChild() {
    for (Stream* const stream : *streams_) close(stream->descriptor_.exchange(-1));
    streams_->clear();
    mutex_.unlock();
  }

  static std::mutex mutex_;
  static std::vector<Stream*>* const streams_;
};

std::mutex OpenStreams::mutex_;
// The list is never destroyed, since a process may fork while it exits.
std::vector<Stream*>* const OpenStreams::streams_ = new std::vector<Stream*>;

std::string NameOf(const NetworkAddress& address) {
  char text[INET6_ADDRSTRLEN] = "no address";
  const bool v4 = address.family == NetworkAddress::kIpV4;
  if (address.family != NetworkAddress::kNone) {
    inet_ntop(v4 ? AF_INET : AF_INET6, address.bytes, text, sizeof(text));
  }
  return text;
}

NetworkAddress LoopbackAddress() {
  NetworkAddress address;
  address.family = NetworkAddress::kIpV4;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  return address;
}

std::vector<NetworkAddress> MachineAddresses() {
  std::vector<NetworkAddress> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    NetworkAddress address;
    if (ReadAddress(*entry, &address)) addresses.push_back(address);
  }
  freeifaddrs(all);
  return addresses;
}

bool FillWithRandom(void* bytes, size_t count) { return getentropy(bytes, count) == 0; }

void Stream::Close() {
  if (!is_open()) return;
  OpenStreams streams;
  streams.Remove(this);
  close(descriptor_.exchange(-1));
}

Status Stream::Listen(uint16_t* port) {
  OpenStreams streams;
  int descriptor = ListenAt(AF_INET6, port);
  if (descriptor < 0) descriptor = ListenAt(AF_INET, port);
  if (descriptor < 0) return Failure("listen");
  descriptor_.store(descriptor);
  streams.Add(this);
  return Status::Ok();
}

Status Stream::Connect(const NetworkAddress& to, uint16_t port) {
  sockaddr_storage address{};
  const socklen_t bytes = Fill(to, port, &address);
  OpenStreams streams;
  const int descriptor = NewSocket(address.ss_family, IPPROTO_TCP);
  if (descriptor < 0) return Failure("socket");
  const int result = connect(descriptor, reinterpret_cast<const sockaddr*>(&address), bytes);
  if (result != 0 && errno != EINPROGRESS && errno != EINTR) {
    const Status failure = Failure("connect");
    close(descriptor);
    return failure;
  }
  descriptor_.store(descriptor);
  streams.Add(this);
  return Status::Ok();
}

Status Stream::CheckConnected() const {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(descriptor(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error == 0) return Status::Ok();
  return Status(Code::kTransport, StrCat("connect: ", std::strerror(error)));
}

Status Stream::Accept(Stream* connection, bool* accepted) {
  OpenStreams streams;
  const int descriptor = AcceptSocket(descriptor_);
  *accepted = descriptor >= 0;
  if (*accepted) {
    connection->descriptor_.store(descriptor);
    streams.Add(connection);
    return Status::Ok();
  }
#if !defined(ENONET)
  constexpr int ENONET = ENETDOWN;
#endif
  // A connection may end before accept, and Linux reports its network errors in accept too.
  for (const int error : {EAGAIN, EINTR, ECONNABORTED, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN,
                          ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH}) {
    if (errno == error) return Status::Ok();
  }
  return Failure("accept");
}

bool Stream::Send(const void* data, size_t bytes) {
  return send(descriptor(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes);
}

Stream::Received Stream::Receive(void* data, size_t max_bytes, size_t* bytes) {
  *bytes = 0;
  const ssize_t count = recv(descriptor(), data, max_bytes, MSG_DONTWAIT);
  if (count == 0) return Received::kEnd;
  if (count < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kError;
  *bytes = static_cast<size_t>(count);
  return Received::kBytes;
}

bool Stream::HasEnded() const {
  char byte = 0;
  return recv(descriptor(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

StreamBell::~StreamBell() {
  for (const int end : ends_) {
    if (end >= 0) close(end);
  }
}

Status StreamBell::Open() {
  if (NewPipe(ends_)) return Status::Ok();
  for (int& end : ends_) end = -1;
  return Failure("pipe");
}

void StreamBell::Ring() const {
  // The write fails only if the pipe is full of unread rings, and then the bell is set anyway.
  [[maybe_unused]] const ssize_t written = write(ends_[1], "r", 1);
}

bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<AwaitedStream>* streams) {
  std::vector<pollfd> polled = {{bell.ends_[0], POLLIN, 0}};
  for (const AwaitedStream& stream : *streams) {
    const short event = stream.to_write ? POLLOUT : POLLIN;
    polled.push_back({stream.descriptor, event, 0});
  }
  // Without rounding up, poll would return repeatedly in the last millisecond.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  const auto wait = std::clamp<int64_t>(left.count(), 0, kMaxWaitMs);
  if (poll(polled.data(), polled.size(), static_cast<int>(wait)) <= 0) return false;
  char rings[256];
  if (polled[0].revents != 0) {
    [[maybe_unused]] const ssize_t count = read(bell.ends_[0], rings, sizeof(rings));
  }
  for (size_t i = 0; i < streams->size(); ++i) (*streams)[i].is_ready = polled[i + 1].revents != 0;
  return polled[0].revents != 0;
}

}  // namespace multiverso
