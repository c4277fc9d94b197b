#include <dlfcn.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "transport/launcher.h"
#include "transport/mpi_library.h"

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

// Returns the paths of the MPI libraries that this process has loaded.
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

// Returns the usual file names of MPI libraries on this platform, the most likely first.
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

}  // namespace

void* MpiLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

Result<MpiLibrary> MpiLibrary::Find(const std::string& path) {
  const std::vector<std::string> loaded = LoadedMpiLibraries();
  if (loaded.size() > 1) {
    return Status(Code::kLauncher, StrCat("two MPI libraries in this process, ", loaded[0], " and ",
                                          loaded[1], ": keep the one that mpirun belongs to"));
  }
  MpiLibrary library;
  if (loaded.size() == 1) {
    library.path_ = loaded[0];
    library.handle_ = dlopen(loaded[0].c_str(), RTLD_NOW | RTLD_NOLOAD);
  } else {
    std::vector<std::string> candidates = {path};
    if (path.empty()) {
      candidates = MpiLibraryNames();
      const std::vector<std::string> nearby = LibrariesOfLaunchers(AncestorPrograms(), candidates);
      candidates.insert(candidates.begin(), nearby.begin(), nearby.end());
    }
    for (const std::string& candidate : candidates) {
      // The plug-ins of an MPI look for its symbols in the global scope.
      library.handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL);
      library.path_ = candidate;
      if (library.handle_ != nullptr) break;
    }
    if (library.handle_ == nullptr) {
      std::string names;
      for (const std::string& candidate : candidates) names += " " + candidate;
      return Status(Code::kLauncher, StrCat("no MPI library found; tried", names,
                                            ": install one, for example with pip install mpich"));
    }
  }
  if (library.handle_ == nullptr || library.Symbol("MPI_Init_thread") == nullptr) {
    return Status(Code::kLauncher, StrCat(library.path_, " is not an MPI library"));
  }
  library.family_ =
      library.Symbol("ompi_mpi_comm_world") != nullptr ? MpiFamily::kOpenMpi : MpiFamily::kMpich;
  return library;
}

}  // namespace multiverso
