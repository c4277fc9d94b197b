#include <cstddef>
#include <cstring>

#include "transport/local_address.h"

namespace multiverso {

LocalAddress::LocalAddress(const std::string& name) {
  address_.sun_family = AF_UNIX;
  // A name that begins with a zero byte is in the abstract namespace.
  std::memcpy(address_.sun_path + 1, name.data(), name.size());
  bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool LocalAddress::Bind(int socket) const { return TryBind(socket); }

bool LocalAddress::EndsWithProcess() { return true; }

void LocalAddress::Remove() const {}

}  // namespace multiverso
