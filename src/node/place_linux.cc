#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "node/place.h"

namespace multiverso {
namespace {

std::string ReadLine(const char* path) {
  char line[128] = {};
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return "";
  if (std::fgets(line, sizeof(line), file) == nullptr) line[0] = '\0';
  std::fclose(file);
  line[std::strcspn(line, "\n")] = '\0';
  return line;
}

// Returns a text that identifies the kernel and the namespace at that path.
std::string NameNamespace(const char* path) {
  struct stat info{};
  stat(path, &info);
  // Every machine uses the same namespace numbers, so the kernel is named too: by its boot id or,
  // where /proc hides that, by the host name.
  std::string kernel = ReadLine("/proc/sys/kernel/random/boot_id");
  if (kernel.empty()) kernel = HostName();
  return StrCat(kernel, "/", info.st_ino);
}

}  // namespace

std::string MemoryDomain() { return StrCat(NameNamespace("/proc/self/ns/pid"), "/", geteuid()); }

std::string NetworkDomain() { return NameNamespace("/proc/self/ns/net"); }

}  // namespace multiverso
