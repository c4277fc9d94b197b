// RequestRunner: what a mode of consistency passes requests to.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "shard/request.h"

namespace multiverso {

struct Progress;

// A Shard runs requests for the rows of one node, and a Table passes them on to all nodes.
class RequestRunner {
 public:
  virtual ~RequestRunner() = default;

  // Runs a checked request, or continues it from *progress.
  virtual Status Run(const Request& request, Progress* progress, const WaitLimit& limit) = 0;

 protected:
  RequestRunner() = default;
  RequestRunner(RequestRunner&&) = default;
};

}  // namespace multiverso
