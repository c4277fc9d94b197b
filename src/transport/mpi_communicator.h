// MpiCommunicator: the few things Multiverso asks of MPI, whatever its family.
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
  // A rank has died that the session went on without: MPI_Finalize may wait for it, and is not to
  // be called at the end of this process.
  static void ExpectNoEnd();

  virtual ~MpiCommunicator() = default;

  // `handle` is the address of an MPI_Comm, or null for the world. Initialises MPI if nobody has,
  // and then finalises it when the process exits.
  static Result<std::unique_ptr<MpiCommunicator>> Open(const MpiLibrary& library,
                                                       const void* handle);

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string Describe() const = 0;
  // One more than at the last call with this communicator in this process: all ranks that have made
  // the same calls with it get the same, whatever else each of them has done.
  virtual Status CountUse(int64_t* count) = 0;

  // Starts a message; the bytes are kept until it has left.
  virtual Status Send(int to, int tag, std::string bytes) = 0;
  // True with the next message of that tag from any rank, false if there is none now.
  virtual Status TryReceive(int tag, const WaitLimit& limit, std::string* bytes, bool* got) = 0;
  // Lets messages under way move on.
  virtual Status Advance() = 0;
  // Whether all messages have left.
  virtual bool AllSent() const = 0;

  // Unsupported if other threads may not use MPI while this one does.
  virtual Status CheckThreadLevel() const = 0;
  // Collective: a messenger over a communicator of its own. Poll is pending until all take part.
  virtual Status BeginDuplicate() = 0;
  virtual Status PollDuplicate(std::unique_ptr<Messenger>* messenger) = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_MPI_COMMUNICATOR_H_
