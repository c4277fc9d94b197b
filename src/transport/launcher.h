// Launcher: the program that started this process as one of a job, and the MPI that lies beside it.
//
// An environment of Python, conda or Spack has its MPI in a folder that the dynamic linker does not
// search, and its mpirun is the parent of every rank. So <prefix>/bin/mpirun among the ancestors of
// a process says that <prefix>/lib has the MPI of the job.
#ifndef MULTIVERSO_TRANSPORT_LAUNCHER_H_
#define MULTIVERSO_TRANSPORT_LAUNCHER_H_

#include <string>
#include <vector>

namespace multiverso {

// The files of the processes that started this one, the nearest first; as far as they can be told.
std::vector<std::string> AncestorPrograms();

// The files called one of `names` in the library folders of the launchers among `programs`.
std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& programs,
                                              const std::vector<std::string>& names);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_LAUNCHER_H_
