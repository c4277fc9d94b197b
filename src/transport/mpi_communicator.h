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

// Used by one thread at a time.
class MpiCommunicator {
 public:
  // Skips MPI_Finalize at the end of this process: a session continued without a lost rank, and
  // MPI_Finalize might wait for that rank.
  static void ExpectNoEnd();

  virtual ~MpiCommunicator() = default;

  // `handle` is the address of an MPI_Comm, or null for the world. Initialises MPI if it is not
  // initialised yet, and then finalises it when the process exits.
  static Result<std::unique_ptr<MpiCommunicator>> Open(const MpiLibrary& library,
                                                       const void* handle);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string Describe() const = 0;
  // Counts the calls with this communicator in this process: ranks that have made the same calls
  // with it get the same number, whatever else each of them has done.
  virtual Status CountUse(int64_t* count) = 0;

  // Starts a message; the bytes are kept until they are sent.
  virtual Status Send(int to, int tag, std::string bytes) = 0;
  // Receives the next message with that tag from any rank, if there is one.
  virtual Status TryReceive(int tag, const WaitLimit& limit, std::string* bytes, bool* got) = 0;
  // Makes progress with messages in flight.
  virtual Status Advance() = 0;
  // Whether all messages are sent.
  virtual bool AllSent() const = 0;

  // UnsupportedError unless several threads may use MPI at once.
  virtual Status CheckThreadLevel() const = 0;
  // Collective: opens a messenger over its own communicator. Poll is pending until all take part.
  virtual Status BeginDuplicate() = 0;
  virtual Status PollDuplicate(std::unique_ptr<Messenger>* messenger) = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_
