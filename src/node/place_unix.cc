#include <unistd.h>

#include "node/place.h"

namespace multiverso {

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? host : "unknown host";
}

}  // namespace multiverso
