#include "base/windows.h"
#include "transport/shared_library.h"

namespace multiverso {

std::vector<std::string> MpiNames() { return {"msmpi.dll", "impi.dll"}; }

std::vector<std::string> LoadedMpis() {
  std::vector<std::string> paths;
  for (const std::string& name : MpiNames()) {
    if (FindLoadedLibrary(name) != nullptr) paths.push_back(name);
  }
  return paths;
}

void* OpenLibrary(const std::string& path) {
  return reinterpret_cast<void*>(LoadLibraryW(windows::Wide(path).c_str()));
}

void* FindLoadedLibrary(const std::string& path) {
  return reinterpret_cast<void*>(GetModuleHandleW(windows::Wide(path).c_str()));
}

void* SymbolOf(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace multiverso
