#include "transport/mpi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "transport/launcher.h"

namespace multiverso {
namespace {

// libmpi.so.40, libmpi.so.12, libmpich.so, libmpi_cray.so..., but not libmpi_mpifh.so.
bool LooksLikeMpi(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  for (const char* stem : {"libmpi.so", "libmpich.so", "libmpi_cray.so", "libmpi_gnu", "libmpi-"}) {
    if (name.compare(0, std::strlen(stem), stem) == 0) return true;
  }
  return false;
}

int CollectMpi(struct dl_phdr_info* info, size_t /*size*/, void* data) {
  if (info->dlpi_name != nullptr && LooksLikeMpi(info->dlpi_name)) {
    static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
  }
  return 0;
}

std::vector<std::string> LoadedMpis() {
  std::vector<std::string> paths;
  dl_iterate_phdr(CollectMpi, &paths);
  return paths;
}

}  // namespace

void* MpiLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

Result<MpiLibrary> MpiLibrary::Find(const std::string& path) {
  const std::vector<std::string> loaded = LoadedMpis();
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
      // The launcher's variables tell which of the two would understand it.
      candidates = {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40"};
      if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
        std::rotate(candidates.begin(), candidates.begin() + 2, candidates.end());
      }
      const std::vector<std::string> beside = LibrariesOfLaunchers(AncestorPrograms(), candidates);
      candidates.insert(candidates.begin(), beside.begin(), beside.end());
    }
    for (const std::string& candidate : candidates) {
      // Global, as MPI's own plug-ins look for its symbols among the program's.
      library.handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL);
      library.path_ = candidate;
      if (library.handle_ != nullptr) break;
    }
    if (library.handle_ == nullptr) {
      std::string names;
      for (const std::string& candidate : candidates) names += " " + candidate;
      return Status(Code::kLauncher,
                    StrCat("no MPI library found; tried", names,
                           ": install one, for example with pip install \"multiverso[mpich]\""));
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
