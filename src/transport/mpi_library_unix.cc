#include <vector>

#include "base/text.h"
#include "transport/launcher.h"
#include "transport/mpi_library.h"
#include "transport/shared_library.h"

namespace multiverso {

void* MpiLibrary::Symbol(const char* name) const { return SymbolOf(handle_, name); }

Result<MpiLibrary> MpiLibrary::Find(const std::string& path) {
  const std::vector<std::string> loaded = LoadedMpiLibraries();
  if (loaded.size() > 1) {
    return Status(Code::kLauncher, StrCat("two MPI libraries in this process, ", loaded[0], " and ",
                                          loaded[1], ": keep the one that mpirun belongs to"));
  }
  MpiLibrary library;
  if (loaded.size() == 1) {
    library.path_ = loaded[0];
    library.handle_ = FindLoadedLibrary(loaded[0]);
  } else {
    std::vector<std::string> candidates = {path};
    if (path.empty()) {
      candidates = MpiLibraryNames();
      const std::vector<std::string> nearby = LibrariesOfLaunchers(AncestorPrograms(), candidates);
      candidates.insert(candidates.begin(), nearby.begin(), nearby.end());
    }
    for (const std::string& candidate : candidates) {
      library.handle_ = OpenLibrary(candidate);
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
