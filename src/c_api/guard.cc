#include "c_api/guard.h"

#include <string>

namespace multiverso::c_api {
namespace {

std::string& Text() {
  thread_local std::string text;
  return text;
}

FileFault& File() {
  thread_local FileFault file;
  return file;
}

PeerFault& Peer() {
  thread_local PeerFault peer;
  return peer;
}

}  // namespace

int32_t Report(const Status& status) noexcept {
  if (status.ok() || status.pending()) return static_cast<int32_t>(status.code());
  (void)Report(status.code(), status.text().c_str());
  try {
    if (status.file() != nullptr) File() = *status.file();
    if (status.peer() != nullptr) Peer() = *status.peer();
  } catch (const std::exception&) {
    File().path.clear();
    Peer().rank = -1;
  }
  return static_cast<int32_t>(status.code());
}

int32_t Report(Code code, const char* text) noexcept {
  File().path.clear();
  Peer().rank = -1;
  // Report still returns the code if there is no memory for the text.
  try {
    Text() = text;
  } catch (const std::exception&) {
    Text().clear();
  }
  return static_cast<int32_t>(code);
}

const FileFault& LastFile() { return File(); }

const PeerFault& LastPeer() { return Peer(); }

const char* LastError() { return Text().c_str(); }

}  // namespace multiverso::c_api
