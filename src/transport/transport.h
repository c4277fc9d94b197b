// Transport: how the ranks of a job exchange bytes before they share memory, and open a Messenger.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

// Only one thread at a time may use a transport.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the name of the transport for messages to the user, such as the version of MPI.
  virtual std::string Describe() const = 0;

  // Collective: returns the bytes of all ranks in rank order. Each rank sends kMaxBytes at most. A
  // timeout error names the late ranks.
  static constexpr size_t kMaxBytes = 1024;
  virtual Result<std::vector<std::string>> Exchange(const std::string& mine,
                                                    const WaitLimit& limit) = 0;

  // Only jobs that span nodes need a messenger. CheckCanConnect returns an error if this rank
  // cannot have one. Connect is collective and opens the messenger.
  virtual Status CheckCanConnect() const = 0;
  virtual Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& limit) = 0;
  // Collective: prepares the end of the processes, if they end together.
  virtual Status PrepareExit(const WaitLimit& /*limit*/) { return Status::Ok(); }
};

// Returns "no rank", "rank 2", "ranks 1 and 3", or the first eight of more ranks "and 5 more".
std::string NameRanks(const std::vector<int>& ranks);

}  // namespace multiverso
