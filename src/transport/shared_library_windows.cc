#include "base/windows.h"
#include "transport/shared_library.h"

namespace multiverso {

std::vector<std::string> MpiLibraryNames() { return {"msmpi.dll", "impi.dll"}; }

std::vector<std::string> LoadedMpiLibraries() {
  std::vector<std::string> loaded;
  for (const std::string& name : MpiLibraryNames()) {
    if (FindLoadedLibrary(name) != nullptr) loaded.push_back(name);
  }
  return loaded;
}

void* OpenLibrary(const std::string& path) {
  return reinterpret_cast<void*>(LoadLibraryW(windows::ToUtf16(path).c_str()));
}

void* FindLoadedLibrary(const std::string& path) {
  return reinterpret_cast<void*>(GetModuleHandleW(windows::ToUtf16(path).c_str()));
}

void* SymbolOf(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace multiverso
