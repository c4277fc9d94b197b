// MpiCommunicator: the operations that Multiverso needs from MPI, for any family of MPI.
#ifndef MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_
#define MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"
#include "transport/mpi_library.h"

namespace multiverso {

// Only one thread at a time may use a communicator.
class MpiCommunicator {
 public:
  // Lets this process exit without MPI_Finalize. Call this if a session continues without a lost
  // rank, because MPI_Finalize might wait for that rank.
  static void ExpectNoEnd();

  virtual ~MpiCommunicator() = default;

  // Opens the MPI_Comm at address `handle`, or MPI_COMM_WORLD if `handle` is null. If MPI is not
  // initialised yet, Open initialises MPI, and MPI is finalised when the process exits.
  static Result<std::unique_ptr<MpiCommunicator>> Open(const MpiLibrary& library,
                                                       const void* handle);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string Describe() const = 0;
  // Counts the uses of this communicator in this process. Ranks that have used the communicator
  // equally often get the same number, whatever else each rank has done.
  virtual Status CountUse(int64_t* count) = 0;

  // Starts a message, whose bytes are kept until they are sent.
  virtual Status Send(int to, int tag, std::string bytes) = 0;
  // Receives the next message with that tag from any rank, if one has arrived.
  virtual Status TryReceive(int tag, const WaitLimit& limit, std::string* bytes, bool* got) = 0;
  // Makes progress with messages in flight.
  virtual Status Advance() = 0;
  virtual bool AllSent() const = 0;

  // Returns UnsupportedError unless several threads may use MPI at once.
  virtual Status CheckThreadLevel() const = 0;
  // Collective: the two calls open a messenger over a duplicate of the communicator. PollDuplicate
  // returns pending until all ranks take part.
  virtual Status BeginDuplicate() = 0;
  virtual Status PollDuplicate(std::unique_ptr<Messenger>* messenger) = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_
