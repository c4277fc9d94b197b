// Finds the launcher (the program that started this process as part of a job) and its MPI.
//
// A Python, conda or Spack environment has its MPI in a folder that the dynamic linker does not
// search, but the environment's mpirun is an ancestor of every rank. So if <prefix>/bin/mpirun is
// an ancestor of this process, <prefix>/lib or <prefix>/lib64 has the MPI of the job.
#pragma once

#include <string>
#include <vector>

namespace multiverso {

// Returns the executables of this process's ancestors, nearest first, without unreadable ones.
std::vector<std::string> AncestorPrograms();

// Returns the paths of the existing files with these names in the library folders of those programs
// that are launchers.
std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& programs,
                                              const std::vector<std::string>& names);

}  // namespace multiverso
