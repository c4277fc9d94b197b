// ExitDeadline: ends the process if a call that cannot be interrupted takes too long. In MPI_Init
// and MPI_Finalize a rank waits for all others without a deadline, and no exception can reach it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"

namespace multiverso {

// While the object lives, a thread logs that the process waits in `call` (WaitLines), and after
// `timeout` prints an error and ends the process with exit code 1. The launcher then ends the job.
class ExitDeadline {
 public:
  ExitDeadline(std::string call, std::chrono::milliseconds timeout);
  ~ExitDeadline();
  ExitDeadline(const ExitDeadline&) = delete;
  ExitDeadline& operator=(const ExitDeadline&) = delete;

 private:
  void Run(std::chrono::milliseconds timeout);
  // Waits for the end of the call. Returns false if it has not ended by then.
  bool AwaitEnd(Instant until);
  std::string Describe(double seconds) const;

  std::string call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace multiverso
