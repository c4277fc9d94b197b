#include "engine/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>

#include "engine/raw_call.h"

namespace sim {
namespace {

// Above all descriptors of the machine.
constexpr int kFirstSocket = 1 << 20;
constexpr int64_t kMillisecond = 1000000;

enum class Kind { kConnection, kListener, kPipe, kProcess };
struct Socket {
  Kind kind = Kind::kConnection;
  int rank = -1;  // whose it is
  bool is_open = true;
  int peer = -1;      // the socket at the other end
  int process = -1;   // the rank of a kProcess
  uint16_t port = 0;  // of a listener
  bool is_connecting = false, is_refused = false;
  int64_t usable_at = 0;                             // when connecting is over
  std::deque<std::pair<int64_t, int>> backlog;       // connections, by their arrivals
  std::deque<std::pair<int64_t, std::string>> data;  // bytes, by their arrivals
  int64_t last_arrival = 0;
  int64_t end_at = kForever;    // when the end arrives
  std::vector<Fiber*> pollers;  // that wait for anything here
};

// A deque, so that sockets stay where they are. Numbers are not given out again.
std::deque<Socket> sockets;
std::map<uint16_t, int> listeners;  // by port
uint16_t next_port = 0;

int Fail(int error) {
  errno = error;
  return -1;
}

Socket& At(int index) { return sockets[static_cast<size_t>(index)]; }
int IndexOf(int descriptor) { return descriptor - kFirstSocket; }

Socket& Find(int descriptor) {
  if (!IsSocket(descriptor)) GiveUp("a call for sockets has another descriptor");
  return At(IndexOf(descriptor));
}

int Open(Kind kind, int rank) {
  sockets.emplace_back();
  sockets.back().kind = kind;
  sockets.back().rank = rank;
  return static_cast<int>(sockets.size()) - 1;
}

void WakePollers(const Socket& socket) {
  for (Fiber* fiber : socket.pollers) WakeFiber(fiber);
}

void Close(Socket* socket) {
  if (!socket->is_open) return;
  socket->is_open = false;
  if (socket->kind == Kind::kListener) listeners.erase(socket->port);
  if (socket->peer >= 0) {
    Socket& peer = At(socket->peer);
    const int64_t latency = socket->kind == Kind::kPipe ? 0 : Latency();
    peer.end_at = std::max(peer.last_arrival, Now() + latency);
    WakePollers(peer);
  }
  for (const auto& [when, index] : socket->backlog) Close(&At(index));
  socket->backlog.clear();
}

bool HasData(const Socket& socket) {
  return !socket.data.empty() && socket.data.front().first <= Now();
}

bool HasCaller(const Socket& socket) {
  return !socket.backlog.empty() && socket.backlog.front().first <= Now();
}

bool IsReadable(const Socket& socket) {
  return socket.kind == Kind::kListener ? HasCaller(socket)
                                        : HasData(socket) || socket.end_at <= Now();
}

bool IsWritable(const Socket& socket) { return !socket.is_connecting || socket.usable_at <= Now(); }

// Returns when poll may next find something.
int64_t NextEvent(const Socket& socket) {
  int64_t next = socket.end_at;
  if (!socket.backlog.empty()) next = std::min(next, socket.backlog.front().first);
  if (!socket.data.empty()) next = std::min(next, socket.data.front().first);
  if (socket.is_connecting) next = std::min(next, socket.usable_at);
  return std::max(next, Now() + 1);
}

ssize_t Transmit(const Socket& from, const void* bytes, size_t count) {
  if (!from.is_open || from.peer < 0 || !At(from.peer).is_open) return Fail(EPIPE);
  Socket& to = At(from.peer);
  ++stats.socket_sends;
  const int64_t arrival = from.kind == Kind::kPipe
                              ? Now()
                              : std::max({to.last_arrival + 1, Now() + Latency(), from.usable_at});
  to.last_arrival = arrival;
  to.data.emplace_back(arrival, std::string(static_cast<const char*>(bytes), count));
  WakePollers(to);
  return static_cast<ssize_t>(count);
}

ssize_t Take(Socket* socket, void* out, size_t count, bool is_peek) {
  if (HasData(*socket)) {
    std::string& front = socket->data.front().second;
    const size_t taken = std::min(count, front.size());
    memcpy(out, front.data(), taken);
    if (!is_peek) {
      front.erase(0, taken);
      if (front.empty()) socket->data.pop_front();
    }
    return static_cast<ssize_t>(taken);
  }
  return socket->data.empty() && socket->end_at <= Now() ? 0 : Fail(EAGAIN);
}

// Returns how many of the descriptors are ready, and sets *next to when to ask again.
int Ask(pollfd* polled, size_t count, int64_t* next) {
  int ready = 0;
  for (size_t i = 0; i < count; ++i) {
    const Socket& socket = Find(polled[i].fd);
    polled[i].revents = 0;
    if ((polled[i].events & POLLOUT) != 0 && IsWritable(socket)) polled[i].revents |= POLLOUT;
    if ((polled[i].events & POLLIN) != 0 && IsReadable(socket)) polled[i].revents |= POLLIN;
    if (polled[i].revents != 0) {
      ++ready;
    } else {
      *next = std::min(*next, NextEvent(socket));
    }
  }
  return ready;
}

int Poll(pollfd* polled, size_t count, int timeout) {
  ++stats.polls;
  PassPoint(4);
  const int64_t until = timeout < 0 ? kForever : Now() + timeout * kMillisecond;
  for (;;) {
    int64_t next = until;
    const int ready = Ask(polled, count, &next);
    if (ready > 0 || Now() >= until) return ready;
    for (size_t i = 0; i < count; ++i) Find(polled[i].fd).pollers.push_back(current);
    Block(Key(), next, "poll");
    for (size_t i = 0; i < count; ++i) {
      std::vector<Fiber*>& pollers = Find(polled[i].fd).pollers;
      pollers.erase(std::find(pollers.begin(), pollers.end(), current));
    }
  }
}

void Start() {
  sockets.clear();
  listeners.clear();
  next_port = 20000;
}

void Release(int rank) {
  for (Socket& socket : sockets) {
    if (socket.rank == rank) {
      Close(&socket);
      socket.pollers.clear();
    }
    if (socket.process == rank) {
      socket.end_at = Now();
      WakePollers(socket);
    }
  }
}

void Count(int rank, Holdings* held) {
  for (const Socket& socket : sockets) {
    held->descriptors += socket.is_open && socket.rank == rank ? 1 : 0;
  }
}

// All addresses of a machine have the port at the same place.
uint16_t* PortOf(const sockaddr* address) {
  return &reinterpret_cast<sockaddr_in*>(const_cast<sockaddr*>(address))->sin_port;
}

// One interface of the network, with its address.
struct Interface {
  ifaddrs entry;
  sockaddr_in address;
  char name[8];
};

}  // namespace

const Seam kSockets{Start, Release, Count};

bool IsSocket(int descriptor) {
  const auto index = static_cast<size_t>(descriptor - kFirstSocket);
  return descriptor >= kFirstSocket && index < sockets.size();
}

void CloseSocket(int descriptor) { Close(&Find(descriptor)); }

int OpenEndOf(int rank) {
  const int index = Open(Kind::kProcess, CurrentRank());
  At(index).process = rank;
  return kFirstSocket + index;
}

int ProcessOf(int descriptor) { return IsSocket(descriptor) ? Find(descriptor).process : -1; }

}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

int socket(int family, int type, int protocol) noexcept {
  if (!IsInFiber()) return SIM_REAL(socket)(family, type, protocol);
  if (family != AF_INET && family != AF_INET6) GiveUp("the simulation has no such sockets");
  return kFirstSocket + Open(Kind::kConnection, CurrentRank());
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) noexcept {
  return IsInFiber() ? 0 : SIM_REAL(setsockopt)(fd, level, name, value, bytes);
}

int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) noexcept {
  if (!IsInFiber()) return SIM_REAL(getsockopt)(fd, level, name, value, bytes);
  Socket& socket = Find(fd);
  *static_cast<int*>(value) = socket.is_refused ? ECONNREFUSED : 0;  // SO_ERROR
  socket.is_connecting = false;
  return 0;
}

int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  return IsInFiber() ? 0 : SIM_REAL(bind)(fd, address, bytes);
}

int listen(int fd, int backlog) noexcept {
  if (!IsInFiber()) return SIM_REAL(listen)(fd, backlog);
  Socket& socket = Find(fd);
  socket.kind = Kind::kListener;
  socket.port = next_port++;
  listeners[socket.port] = IndexOf(fd);
  return 0;
}

int getsockname(int fd, sockaddr* address, socklen_t* bytes) noexcept {
  if (!IsInFiber()) return SIM_REAL(getsockname)(fd, address, bytes);
  *PortOf(address) = htons(Find(fd).port);
  return 0;
}

int connect(int fd, const sockaddr* address, socklen_t bytes) {
  if (!IsInFiber()) return SIM_REAL(connect)(fd, address, bytes);
  PassPoint();
  ++stats.connects;
  Socket& mine = Find(fd);
  const auto found = listeners.find(ntohs(*PortOf(address)));
  const int64_t there = Now() + Latency();
  mine.is_connecting = true;
  mine.usable_at = there + Latency();
  if (found == listeners.end()) {
    mine.is_refused = true;
  } else {
    Socket& listener = At(found->second);
    const int other = Open(Kind::kConnection, listener.rank);
    mine.peer = other;
    At(other).peer = IndexOf(fd);
    listener.backlog.emplace_back(there, other);
    std::sort(listener.backlog.begin(), listener.backlog.end());
    WakePollers(listener);
  }
  return Fail(EINPROGRESS);
}

int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  if (!IsInFiber()) return SIM_REAL(accept4)(fd, address, bytes, flags);
  PassPoint();
  Socket& listener = Find(fd);
  if (!HasCaller(listener)) return Fail(EAGAIN);
  const int index = listener.backlog.front().second;
  listener.backlog.pop_front();
  return kFirstSocket + index;
}

ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  if (!IsInFiber()) return SIM_REAL(send)(fd, bytes, count, flags);
  PassPoint();
  return Transmit(Find(fd), bytes, count);
}

ssize_t recv(int fd, void* out, size_t count, int flags) {
  if (!IsInFiber()) return SIM_REAL(recv)(fd, out, count, flags);
  PassPoint();
  return Take(&Find(fd), out, count, (flags & MSG_PEEK) != 0);
}

int pipe2(int ends[2], int flags) noexcept {
  if (!IsInFiber()) return SIM_REAL(pipe2)(ends, flags);
  for (int i = 0; i < 2; ++i) ends[i] = kFirstSocket + Open(Kind::kPipe, CurrentRank());
  Find(ends[0]).peer = IndexOf(ends[1]);
  Find(ends[1]).peer = IndexOf(ends[0]);
  return 0;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  if (IsInFiber()) PassPoint();
  if (IsInFiber() && IsSocket(fd)) return Transmit(Find(fd), bytes, count);
  return RawCall(SYS_write, fd, reinterpret_cast<long>(bytes), count);
}

ssize_t read(int fd, void* out, size_t count) {
  if (IsInFiber()) PassPoint();
  if (IsInFiber() && IsSocket(fd)) return Take(&Find(fd), out, count, false);
  return RawCall(SYS_read, fd, reinterpret_cast<long>(out), count);
}

int poll(pollfd* polled, nfds_t count, int timeout) {
  return IsInFiber() ? Poll(polled, count, timeout) : SIM_REAL(poll)(polled, count, timeout);
}

// ---- Addresses
// -----------------------------------------------------------------------------------

int getifaddrs(ifaddrs** list) noexcept {
  if (!IsInFiber()) return SIM_REAL(getifaddrs)(list);
  auto* const interface = new Interface();
  memcpy(interface->name, "eth0", 5);
  interface->address.sin_family = AF_INET;
  interface->address.sin_addr.s_addr =
      htonl(0x0a000001u + static_cast<uint32_t>(current->rank->machine));
  interface->entry.ifa_name = interface->name;
  interface->entry.ifa_flags = IFF_UP | IFF_RUNNING;
  interface->entry.ifa_addr = reinterpret_cast<sockaddr*>(&interface->address);
  *list = &interface->entry;
  return 0;
}

void freeifaddrs(ifaddrs* list) noexcept {
  if (IsInFiber()) {
    delete reinterpret_cast<Interface*>(list);
  } else {
    SIM_REAL(freeifaddrs)(list);
  }
}

}  // extern "C"
