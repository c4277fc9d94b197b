// Communicator: messages with tags between the ranks of a job, over MPI (MpiCommunicator) or over
// Unix sockets (SocketCommunicator). StartupTransport needs no more.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

// Only one thread at a time may use a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns a name for messages to the user, such as the version of MPI.
  virtual std::string Describe() const = 0;
  // Sets *count to the number of uses of this communicator in this process, including this one.
  // Ranks that have used the communicator equally often get the same number.
  virtual Status CountUse(int64_t* count) = 0;

  // Returns whether any rank can send to any other. Otherwise one of the two is rank 0.
  virtual bool AllRanksReachEachOther() const { return true; }
  // Starts a message, and keeps its bytes until they are sent.
  virtual Status Send(int to, int tag, std::string bytes) = 0;
  // Receives the next message with that tag from any rank, if one has begun to arrive; waits until
  // `deadline` for the rest of it.
  virtual Status TryReceive(int tag, Instant deadline, std::string* bytes, bool* got) = 0;
  // Makes progress with the messages that Send has started.
  virtual Status Advance() = 0;
  // Returns whether the messages to all ranks that can be reached are sent.
  virtual bool AllSent() const = 0;

  // Returns UnsupportedError if this communicator cannot have a messenger.
  virtual Status CheckCanDuplicate() const = 0;
  // Collective: BeginDuplicate, and PollDuplicate repeated as long as it returns pending, open a
  // messenger over a duplicate of the communicator.
  virtual Status BeginDuplicate() = 0;
  virtual Status PollDuplicate(std::unique_ptr<Messenger>* messenger) = 0;

  // Returns whether the processes of all ranks end together, and so need a messenger to meet before
  // (ExitMeeting). KeepForExit takes it.
  virtual bool EndsTogether() const { return false; }
  virtual void KeepForExit(std::unique_ptr<Messenger> /*messenger*/) {}
};

}  // namespace multiverso
