#include <unistd.h>

#include <fstream>
#include <string>

#include "transport/mpi_files.h"

namespace multiverso {

void RemoveFilesOfMpi() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // The path is the last of the line. " (deleted)" follows that of a file without a name.
    for (const char* const name :
         {"/dev/shm/mpich_shm_", "/dev/shm/ucx_shm_posix_", "/dev/shm/sm_segment."}) {
      const size_t begin = line.find(name);
      if (begin != std::string::npos) unlink(line.c_str() + begin);
    }
  }
}

}  // namespace multiverso
