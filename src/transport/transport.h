// Transport: how the ranks of a job find each other before they share any memory.
#ifndef MULTIVERSO_TRANSPORT_TRANSPORT_H_
#define MULTIVERSO_TRANSPORT_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

// Used by one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Such as "MPICH 5.0.2", for messages.
  virtual std::string Describe() const = 0;

  // Collective: everybody's bytes (at most kMostBytes each, any length) to everybody, by rank.
  // BeginExchange never waits; PollExchange returns pending at the end of the slice, and a timeout
  // that names the late ranks at the deadline. One exchange at a time.
  static constexpr size_t kMostBytes = 1024;
  virtual Status BeginExchange(const std::string& mine) = 0;
  virtual Status PollExchange(const WaitLimit& limit, std::vector<std::string>* all) = 0;

  // For jobs that span nodes. Whether this rank can have a messenger, and, collective, getting it:
  // PollConnect is pending at the end of the slice, and a timeout at the deadline.
  virtual Status CheckCanConnect() const = 0;
  virtual Status BeginConnect() = 0;
  virtual Status PollConnect(const WaitLimit& limit, std::unique_ptr<Messenger>* messenger) = 0;
};

// "rank 2", "ranks 1 and 3", "ranks 1, 2, 3 and 5 more".
std::string NameRanks(const std::vector<int>& ranks);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_TRANSPORT_H_
