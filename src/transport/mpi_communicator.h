// MpiCommunicator: what Multiverso does with an MPI communicator, with the MPI of either family.
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
  // Sets whether this process exits without MPI_Finalize if Open initialized MPI: after the loss of
  // a rank or a failed opening, MPI_Finalize might wait for other ranks forever.
  static void SkipFinalizeAtExit(bool skips);

  virtual ~MpiCommunicator() = default;

  // Opens the MPI_Comm at address `handle`, or MPI_COMM_WORLD if `handle` is null. If MPI is not
  // initialized yet, Open initializes MPI, and MPI is finalized when the process exits. If MPI_Init
  // takes longer than `timeout`, the process ends (ExitDeadline).
  static Result<std::unique_ptr<MpiCommunicator>> Open(const MpiLibrary& library,
                                                       const void* handle,
                                                       std::chrono::milliseconds timeout);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the first line of the MPI's version text, and the library's path.
  virtual std::string Describe() const = 0;
  // Sets *count to the number of uses of this communicator in this process, including this one.
  // Ranks that have used the communicator equally often get the same number.
  virtual Status CountUse(int64_t* count) = 0;

  // Starts a message, and keeps its bytes until they are sent.
  virtual Status Send(int to, int tag, std::string bytes) = 0;
  // Receives the next message with that tag from any rank, if one has begun to arrive; waits until
  // `deadline` for the rest of it.
  virtual Status TryReceive(int tag, Instant deadline, std::string* bytes, bool* got) = 0;
  // Makes progress with the messages that Send has started.
  virtual Status Advance() = 0;
  virtual bool AllSent() const = 0;

  // Returns UnsupportedError unless several threads may use MPI at once.
  virtual Status CheckThreadLevel() const = 0;
  // Collective: BeginDuplicate, and PollDuplicate repeated as long as it returns pending, open a
  // messenger over a duplicate of the communicator.
  virtual Status BeginDuplicate() = 0;
  virtual Status PollDuplicate(std::unique_ptr<Messenger>* messenger) = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_
