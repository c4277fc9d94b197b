// ExitMeeting: the ranks meet before MPI_Finalize, which waits for all of them without a deadline
// and does not say for whom.
//
// Every rank tells rank 0 that it has come. Rank 0 tells those that have come which ranks are
// missing, each time that this changes, and at last that none is. A rank whose time has passed
// names the missing ranks and ends without MPI_Finalize. MPI_Finalize would then wait for that rank
// forever, so the others also end without it: rank 0 tells them, or learns it from that rank.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

// Used by one thread, once per process.
class ExitMeeting {
 public:
  // `messenger` is used for nothing else.
  explicit ExitMeeting(std::unique_ptr<Messenger> messenger) : messenger_(std::move(messenger)) {}

  // Waits for the other ranks. Returns ok if all ranks have come and call MPI_Finalize now. After
  // another result, which names the missing ranks, this process must not call it.
  Status Run(std::chrono::milliseconds timeout);

 private:
  // What rank 0 has received from a rank.
  enum class Presence : char { kMissing, kCame, kGone };

  bool is_first() const { return messenger_->rank() == 0; }
  std::vector<int> MissingRanks() const;
  // Returns ok when all ranks have come, pending while some are missing, and an error if a rank has
  // ended without MPI_Finalize.
  Status ReceiveOnFirst();
  Status ReceiveOnOther();
  void Tell(const std::string& what);
  std::string Describe(const std::vector<int>& missing, Instant since) const;

  std::unique_ptr<Messenger> messenger_;
  std::vector<Presence> presence_;  // on rank 0, by rank
  std::vector<int> missing_;        // on the others, as rank 0 has told; empty until it has
};

}  // namespace multiverso
