#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace multiverso {

void LogWarning(const std::string& text) {
  const char* setting = std::getenv("MULTIVERSO_LOG");
  if (setting != nullptr && std::strcmp(setting, "off") == 0) return;
  // One call prints the line, so that the lines of several ranks do not mix.
  std::fprintf(stderr, "multiverso: warning: %s\n", text.c_str());
}

}  // namespace multiverso
