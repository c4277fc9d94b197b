// Transport: the exchange of bytes between the ranks of a job before they share memory.
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
  // For messages, such as "MPICH 5.0.2".
  virtual std::string Describe() const = 0;

  // Collective: returns the bytes of all ranks, by rank, each of at most kMostBytes. A timeout
  // names the late ranks.
  static constexpr size_t kMostBytes = 1024;
  virtual Result<std::vector<std::string>> Exchange(const std::string& mine,
                                                    const WaitLimit& limit) = 0;

  // For jobs that span nodes: whether this rank can have a messenger, and, collective, opening it.
  virtual Status CheckCanConnect() const = 0;
  virtual Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& limit) = 0;
};

// "rank 2", "ranks 1 and 3", "ranks 1, 2, 3 and 5 more".
std::string NameRanks(const std::vector<int>& ranks);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_TRANSPORT_H_
