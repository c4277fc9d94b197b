// The files in /dev/shm that an MPI removes in MPI_Finalize, which a process does not call after it
// has lost ranks.
#pragma once

namespace multiverso {

// Removes those that this process has mapped. Other processes of the job keep their memory.
void RemoveFilesOfMpi();

}  // namespace multiverso
