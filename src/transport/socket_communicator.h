// SocketCommunicator: the Communicator of a job on one machine, without MPI.
//
// Rank 0 listens at a Unix socket whose name begins with the name of the job, and every other rank
// connects to it (LocalAddress). Both sides refuse processes of other users. Ranks other than 0
// have no connection to each other.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/communicator.h"

namespace multiverso {

// How the launcher of a job without MPI names the job and this rank.
struct LocalJob {
  static constexpr size_t kMaxNameBytes = 64;

  std::string name;  // the same for all ranks of the job, and for no other job on the machine
  int rank = 0;
  int size = 1;
};

class SocketCommunicator {
 public:
  // Does not wait for the other ranks. Returns ValueError for an invalid job, StateError if another
  // process is rank 0 of the job, and UnsupportedError where there are no such sockets.
  static Result<std::unique_ptr<Communicator>> Open(const LocalJob& job);
};

}  // namespace multiverso
