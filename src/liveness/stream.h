// Stream: a TCP connection, or a listening port. Only AwaitStreams waits.
//
// PeerConnections sends only a few bytes over a stream, at the beginning and at the end. It needs
// streams because the kernel closes them when their process ends, however the process ends.
#pragma once

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
  uint8_t bytes[16] = {};  // in network order; IPv4 uses the first 4
};

std::string NameOf(const NetworkAddress& address);
NetworkAddress LoopbackAddress();
// Returns the addresses of this machine that other machines may reach: those of interfaces that are
// up, except loopback interfaces and link-local IPv6 addresses.
std::vector<NetworkAddress> MachineAddresses();

// Fills in bytes that cannot be guessed. Returns false if the system provides none.
bool FillWithRandom(void* bytes, size_t count);

// Owns a descriptor, which is closed on exec, and in forked children: as long as a child has a copy
// of a connection, the other side does not notice the death of this process.
class Stream {
 public:
  Stream() = default;
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_open() const { return descriptor_.load() >= 0; }
  int descriptor() const { return descriptor_.load(); }
  void Close();

  // Listens at a free port, *port, of all addresses of the machine.
  Status Listen(uint16_t* port);
  // Begins to connect. The stream becomes writable when that has succeeded or failed, and
  // CheckConnected then returns the outcome.
  Status Connect(const NetworkAddress& to, uint16_t port);
  Status CheckConnected() const;
  // Accepts a connection at the port. Sets *accepted to whether a connection was waiting.
  Status Accept(Stream* connection, bool* accepted);

  // Sends a few bytes at once. Returns false if not all of the bytes were sent.
  bool Send(const void* data, size_t bytes);
  enum class Received { kBytes, kNothing, kEnd, kError };
  // Receives *bytes <= max_bytes. Returns kEnd if the other side has closed and all was read.
  Received Receive(void* data, size_t max_bytes, size_t* bytes);
  // Returns whether the other side has closed the stream and all bytes were read.
  bool HasEnded() const;

 private:
  friend class OpenStreams;

  std::atomic<int> descriptor_{-1};
};

// A stream to wait for, with its index among the streams of its owner.
struct AwaitedStream {
  size_t index = 0;
  int descriptor = -1;
  bool to_write = false;  // wait until it can be written, not read
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
  friend bool AwaitStreams(const StreamBell& bell, Instant until,
                           std::vector<AwaitedStream>* streams);
  int ends_[2] = {-1, -1};  // of a pipe
};

// Sleeps until a stream is ready, the bell rings, or `until` has passed, at most a minute. Returns
// whether the bell has rung.
bool AwaitStreams(const StreamBell& bell, Instant until, std::vector<AwaitedStream>* streams);

}  // namespace multiverso
