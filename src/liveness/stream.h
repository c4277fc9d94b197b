// Stream: a TCP connection, or a listening port. Only AwaitStreams waits.
//
// PeerConnections sends only a few bytes over a stream, at the beginning and at the end. The
// purpose of a stream is that the kernel closes it when its process ends, however the process ends.
#ifndef MULTIVERSO_LIVENESS_STREAM_H_
#define MULTIVERSO_LIVENESS_STREAM_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// An address of a machine. It is sent to all ranks.
struct NetworkAddress {
  enum Family : uint8_t { kNone = 0, kIpV4 = 4, kIpV6 = 6 };
  uint8_t family = kNone;
  uint8_t bytes[16] = {};  // in network order; IPv4 uses 4 bytes
};

std::string NameOf(const NetworkAddress& address);
NetworkAddress LoopbackAddress();
// Returns the addresses of this machine that other machines may reach: those of interfaces that are
// up, except loopback and link-local ones.
std::vector<NetworkAddress> MachineAddresses();

// Fills in bytes that cannot be guessed. Returns false if the system provides none.
bool FillWithRandom(void* bytes, size_t count);

// Owns a descriptor, which is closed on exec.
class Stream {
 public:
  Stream() = default;
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_open() const { return descriptor_.load() >= 0; }
  int descriptor() const { return descriptor_.load(); }
  void Close();
  // Called in a forked child, which must not keep its parent's connections open. Async-signal-safe.
  void CloseInForkedChild();

  // Listens at a free port of all addresses of the machine.
  Status Listen(uint16_t* port);
  // Begins to connect. The stream becomes writable when that has succeeded or failed, and
  // CheckConnected then returns the outcome.
  Status Connect(const NetworkAddress& to, uint16_t port);
  Status CheckConnected() const;
  // Accepts a connection at the port. Sets *came to false if no connection is waiting.
  Status Accept(Stream* connection, bool* came);

  // Sends a few bytes at once. Returns false if not all of the bytes were sent.
  bool Send(const void* data, size_t bytes);
  enum class Got { kBytes, kNothing, kEnd, kError };
  // Receives at most `most` bytes. Returns kEnd if the other side has closed and all was read.
  Got Receive(void* data, size_t most, size_t* bytes);
  // Returns whether the other side has closed the stream and all bytes were read.
  bool HasEnded() const;

 private:
  void Take(int descriptor) { descriptor_.store(descriptor); }

  std::atomic<int> descriptor_{-1};
};

// A stream to wait for, with its index among the streams of its owner.
struct Awaited {
  size_t place = 0;
  int descriptor = -1;
  bool to_write = false;
  bool is_ready = false;  // after the wait: it can be used, or has ended
};

// Wakes a thread that sleeps in AwaitStreams.
class StreamBell {
 public:
  StreamBell() = default;
  ~StreamBell();
  StreamBell(const StreamBell&) = delete;
  StreamBell& operator=(const StreamBell&) = delete;

  Status Open();
  // Thread-safe. Ends the current or the next sleep.
  void Ring() const;

 private:
  friend bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<Awaited>* all);
  int descriptor_ = -1;
};

// Sleeps until a stream is ready, the bell rings, or `until` has passed. Returns whether the bell
// has rung.
bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<Awaited>* all);

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_STREAM_H_
