#include "base/text.h"
#include "base/windows.h"
#include "node/place.h"

namespace multiverso {

std::string HostName() {
  wchar_t host[256] = {};
  DWORD length = static_cast<DWORD>(sizeof(host) / sizeof(host[0]));
  if (GetComputerNameExW(ComputerNameDnsHostname, host, &length) == 0) return "unknown host";
  return windows::ToUtf8(host);
}

std::string MemoryDomain() {
  // Segments are files of the user's temporary folder, which is one per machine and user.
  wchar_t folder[MAX_PATH + 2] = {};
  GetTempPathW(static_cast<DWORD>(sizeof(folder) / sizeof(folder[0])), folder);
  return StrCat(HostName(), "/", windows::ToUtf8(folder));
}

std::string NetworkDomain() { return HostName(); }

}  // namespace multiverso
