#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/socket.h"
#include "base/text.h"
#include "transport/local_address.h"

namespace multiverso {
namespace {

// A process needs a moment between bind and listen, in which its socket refuses connections.
constexpr auto kBeforeListen = std::chrono::milliseconds(100);

// Returns the FNV-1a hash. The paths of sockets are too short for the name of a job.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

}  // namespace

LocalAddress::LocalAddress(const std::string& name) {
  address_.sun_family = AF_UNIX;
  CopyText(address_.sun_path,
           StrCat("/tmp/multiverso-", geteuid(), "-", std::hex, HashOf(name), ".socket"));
  bytes_ = sizeof(address_);
}

bool LocalAddress::Bind(int socket) const {
  if (TryBind(socket)) return true;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (errno != EADDRINUSE) return false;
    const int probe = NewSocket(AF_UNIX);
    const bool is_refused = probe >= 0 && !Connect(probe) && errno == ECONNREFUSED;
    if (probe >= 0) close(probe);
    errno = EADDRINUSE;
    if (!is_refused) return false;
    if (attempt == 0) std::this_thread::sleep_for(kBeforeListen);
    errno = EADDRINUSE;
  }
  Remove();
  return TryBind(socket);
}

bool LocalAddress::EndsWithProcess() { return false; }

void LocalAddress::Remove() const { unlink(address_.sun_path); }

}  // namespace multiverso
