#include <unistd.h>

#include <fstream>
#include <string>

#include "transport/mpi_files.h"

namespace multiverso {

void RemoveFilesOfMpi() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // A line ends with the path. If the file has been removed, " (deleted)" follows, and there is
    // no file of such a name.
    for (const char* const name :
         {"/dev/shm/mpich_shm_", "/dev/shm/ucx_shm_posix_", "/dev/shm/sm_segment."}) {
      const size_t begin = line.find(name);
      if (begin != std::string::npos) unlink(line.c_str() + begin);
    }
  }
}

}  // namespace multiverso
