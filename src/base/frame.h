// Frame: the format of the messages listed in FrameKind: a magic number, the kind of message, a
// header and further bytes. Values are sent as they are in memory (raw_bytes.h). A receiver never
// trusts a message: FrameReader checks the magic number, the kind and the bounds of every read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/raw_bytes.h"

namespace multiverso {

enum class FrameKind : uint32_t {
  kStartup = 1,    // StartupTransport
  kConnection,     // PeerConnections
  kControl,        // ControlChannel: a control message
  kLateRanks,      // ControlChannel: the answer to the question for late ranks
  kContributions,  // LeaderExchange
  kClocks,         // ClockExchange
  kRequest,        // the header of a request to a server (table/request_message.h)
  kEndedCall,      // a call that ended before its values were sent (the same)
};

constexpr uint32_t kFrameMagic = 0x4d56464d;  // "MVFM"

// Returns the size of a frame with that header and no further bytes.
template <class Header>
constexpr int64_t FrameBytes() {
  return static_cast<int64_t>(sizeof(kFrameMagic) + sizeof(FrameKind) + sizeof(Header));
}

// Returns a frame, to which the caller may append values (AppendRaw).
template <class Header>
std::string MakeFrame(FrameKind kind, const Header& header) {
  std::string bytes;
  AppendRaw(kFrameMagic, &bytes);
  AppendRaw(kind, &bytes);
  AppendRaw(header, &bytes);
  return bytes;
}

// Reads a frame from its beginning. `bytes` must outlive the reader.
class FrameReader {
 public:
  explicit FrameReader(const std::string& bytes) : bytes_(bytes) {}

  // Returns false unless `bytes` is a frame of that kind with a complete header.
  template <class Header>
  bool ReadHeader(FrameKind kind, Header* header) {
    uint32_t magic = 0;
    FrameKind actual_kind{};
    return Read(&magic) && magic == kFrameMagic && Read(&actual_kind) && actual_kind == kind &&
           Read(header);
  }
  // Reads the next value. Returns false if fewer bytes remain.
  template <class T>
  bool Read(T* value) {
    return ReadRaw(bytes_, &position_, value);
  }
  // Reads the next `count` bytes. Returns false if fewer bytes remain.
  bool ReadText(size_t count, std::string* text) {
    if (remaining() < count) return false;
    text->assign(bytes_, position_, count);
    position_ += count;
    return true;
  }
  size_t remaining() const { return bytes_.size() - position_; }

 private:
  const std::string& bytes_;
  size_t position_ = 0;
};

}  // namespace multiverso
