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
std::string InNamespace(const char* path) {
  struct stat which{};
  stat(path, &which);
  std::string kernel = ReadLine("/proc/sys/kernel/random/boot_id");
  // Namespace numbers repeat on all machines, so the kernel is needed too. A kernel without a boot
  // id is identified by the host name.
  if (kernel.empty()) kernel = HostName();
  return StrCat(kernel, "/", which.st_ino);
}

}  // namespace

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? host : "unknown host";
}

std::string MemoryDomain() { return StrCat(InNamespace("/proc/self/ns/pid"), "/", geteuid()); }

std::string NetworkDomain() { return InNamespace("/proc/self/ns/net"); }

}  // namespace multiverso
