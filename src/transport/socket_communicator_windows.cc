#include "transport/socket_communicator.h"

namespace multiverso {

Result<std::unique_ptr<Communicator>> SocketCommunicator::Open(const LocalJob& /*job*/) {
  return Status(Code::kUnsupported, "jobs without MPI need Linux: start the ranks with mpirun");
}

}  // namespace multiverso
