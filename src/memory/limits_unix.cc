#include <unistd.h>

#include "memory/limits.h"

namespace multiverso {

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

}  // namespace multiverso
