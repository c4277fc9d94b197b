// MpiLibrary: the MPI of this process, found at run time.
//
// Multiverso is compiled without mpi.h. It looks for the MPI library that the process has already
// loaded (mpi4py's, or the program's own) or opens one, and tells the two binary families apart by
// the symbols inside: Open MPI, whose handles are pointers, and MPICH with every MPI that shares
// its binary interface (Intel MPI, MVAPICH, Cray MPI), whose handles are ints.
#pragma once

#include <string>

#include "base/status.h"

namespace multiverso {

enum class MpiFamily { kOpenMpi, kMpich };

class MpiLibrary {
 public:
  // Returns the library that is loaded already. Otherwise opens `path` or, if `path` is empty, a
  // library next to the launcher (launcher.h) or with a usual name. Returns LauncherError if no
  // library is found, if the library is no MPI, or if two are loaded.
  static Result<MpiLibrary> Find(const std::string& path);

  MpiFamily family() const { return family_; }
  const std::string& path() const { return path_; }

  // Returns null if the library has no such symbol.
  void* Symbol(const char* name) const;

 private:
  void* handle_ = nullptr;  // never closed: an MPI cannot be unloaded
  std::string path_;
  MpiFamily family_ = MpiFamily::kMpich;
};

}  // namespace multiverso
