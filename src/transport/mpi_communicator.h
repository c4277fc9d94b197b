// MpiCommunicator: what Multiverso does with an MPI communicator, with the MPI of either family.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/communicator.h"

namespace multiverso {

class MpiCommunicator : public Communicator {
 public:
  // Sets whether this process exits without MPI_Finalize if Open initialized MPI: after the loss of
  // a rank or a failed opening, MPI_Finalize might wait for other ranks forever.
  static void SkipFinalizeAtExit(bool skips);
  // Lets this process meet the others before MPI_Finalize (ExitMeeting). Returns ok if it may call
  // it, and else makes it exit without MPI_Finalize if Open initialized MPI, and end the job if its
  // exit code is not 0. Returns ok at once if no session has used all ranks of the job.
  static Status MeetAtExit(std::chrono::milliseconds timeout);

  // Opens the MPI_Comm at address `handle`, or MPI_COMM_WORLD if `handle` is null, with the MPI
  // library at `path`, or the one that is found if `path` is empty. If MPI is not initialized yet,
  // Open initializes MPI, and MPI is finalized when the process exits. If MPI_Init takes longer
  // than `timeout`, the process ends (ExitDeadline). Returns LauncherError if the launcher started
  // several ranks and MPI sees only one.
  static Result<std::unique_ptr<Communicator>> Open(const std::string& path, const void* handle,
                                                    std::chrono::milliseconds timeout);
};

}  // namespace multiverso
