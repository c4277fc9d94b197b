// Stream: a TCP connection, or the port at which they come in. Nothing here waits but AwaitStreams.
//
// PeerConnections are made of these. What is sent over them are a few bytes at their beginning and
// at their end; what counts is that the kernel ends those of a process that ends, however it ends.
#ifndef MULTIVERSO_LIVENESS_STREAM_H_
#define MULTIVERSO_LIVENESS_STREAM_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// Where a machine can be reached. Travels as bytes.
struct NetworkAddress {
  enum Family : uint8_t { kNone = 0, kIpV4 = 4, kIpV6 = 6 };
  uint8_t family = kNone;
  uint8_t bytes[16] = {};  // in network order; 4 of IPv4
};

std::string NameOf(const NetworkAddress& address);
NetworkAddress LoopbackAddress();
// Those of this machine that others may reach: of interfaces that are up, but for loopback and
// addresses that mean something on one link only.
std::vector<NetworkAddress> MachineAddresses();

// Numbers that nobody can guess. False if the system has none.
bool FillWithRandom(void* bytes, size_t count);

// Owns a descriptor, which children that execute a program do not inherit.
class Stream {
 public:
  Stream() = default;
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_open() const { return descriptor_.load() >= 0; }
  int descriptor() const { return descriptor_.load(); }
  void Close();
  // In a forked child, which must not keep its parent's connections open. Async-signal-safe.
  void CloseInForkedChild();

  // A free port of all the machine's addresses.
  Status Listen(uint16_t* port);
  // Begins; the stream becomes writable when that has succeeded or failed (CheckConnected).
  Status Connect(const NetworkAddress& to, uint16_t port);
  Status CheckConnected() const;
  // Takes in a connection that has come to the port. *came is false if there is none.
  Status Accept(Stream* connection, bool* came);

  // All of it at once, which a few bytes are. False if not.
  bool Send(const void* data, size_t bytes);
  enum class Got { kBytes, kNothing, kEnd, kError };
  // At most so many bytes. kEnd: the other side has ended it, and all that it sent has been read.
  Got Receive(void* data, size_t most, size_t* bytes);
  // Whether the other side has ended it, and there is nothing left to be read.
  bool HasEnded() const;

 private:
  void Take(int descriptor) { descriptor_.store(descriptor); }

  std::atomic<int> descriptor_{-1};
};

// A stream that is waited for, by its place among its owner's.
struct Awaited {
  size_t place = 0;
  int descriptor = -1;
  bool to_write = false;
  bool is_ready = false;  // afterwards: it can be used, or has ended
};

// What a thread that sleeps in AwaitStreams is woken with.
class StreamBell {
 public:
  StreamBell() = default;
  ~StreamBell();
  StreamBell(const StreamBell&) = delete;
  StreamBell& operator=(const StreamBell&) = delete;

  Status Open();
  // Thread-safe. Wakes who sleeps, or who sleeps next.
  void Ring() const;

 private:
  friend bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<Awaited>* all);
  int descriptor_ = -1;
};

// Sleeps until one of them is ready, that instant, or the bell is rung: true then.
bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<Awaited>* all);

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_STREAM_H_
