#include <dlfcn.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "transport/shared_library.h"

namespace multiverso {
namespace {

// Accepts libmpi.so.40, libmpich.so, libmpi_cray.so and so on, but not the Fortran libmpi_mpifh.so.
// On macOS the names are libmpi.40.dylib and so on.
bool LooksLikeMpi(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  for (const char* stem : {"libmpi.", "libmpich.", "libmpi_cray.", "libmpi_gnu", "libmpi-"}) {
    if (name.compare(0, std::strlen(stem), stem) == 0) return true;
  }
  return false;
}

#if !defined(__APPLE__)
int AppendIfMpi(struct dl_phdr_info* info, size_t /*size*/, void* data) {
  if (info->dlpi_name != nullptr && LooksLikeMpi(info->dlpi_name)) {
    static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
  }
  return 0;
}
#endif

}  // namespace

std::vector<std::string> LoadedMpiLibraries() {
  std::vector<std::string> paths;
#if defined(__APPLE__)
  for (uint32_t i = 0; i < _dyld_image_count(); ++i) {
    const char* const path = _dyld_get_image_name(i);  // null if another thread unloads a library
    if (path != nullptr && LooksLikeMpi(path)) paths.emplace_back(path);
  }
#else
  dl_iterate_phdr(AppendIfMpi, &paths);
#endif
  return paths;
}

std::vector<std::string> MpiLibraryNames() {
#if defined(__APPLE__)
  std::vector<std::string> names = {"libmpi.12.dylib", "libmpich.12.dylib", "libmpi.40.dylib"};
#else
  std::vector<std::string> names = {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40"};
#endif
  // Open MPI's launcher sets this variable, so Open MPI (libmpi.so.40) comes first.
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    std::rotate(names.begin(), names.begin() + 2, names.end());
  }
  return names;
}

void* OpenLibrary(const std::string& path) {
  // RTLD_GLOBAL is needed, since the plug-ins of an MPI look for its symbols in the global scope.
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

void* FindLoadedLibrary(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

void* SymbolOf(void* library, const char* name) { return dlsym(library, name); }

}  // namespace multiverso
