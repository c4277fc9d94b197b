#include "transport/exit_meeting.h"

#include <gtest/gtest.h>

#include "support/status.h"
#include "support/thread_messenger.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

constexpr int kMeetingRanks = 4;

ExitMeeting MeetingOf(const std::shared_ptr<MailRoom>& room, int rank) {
  return ExitMeeting(std::make_unique<ThreadMessenger>(room, rank));
}

// Lets all ranks but `missing` meet, and returns their results.
std::vector<Status> Meet(const std::shared_ptr<MailRoom>& room, int missing,
                         std::chrono::milliseconds timeout) {
  std::vector<Status> results(kMeetingRanks);
  OnThreads(kMeetingRanks, [&](int rank) {
    if (rank != missing) results[static_cast<size_t>(rank)] = MeetingOf(room, rank).Run(timeout);
  });
  return results;
}

TEST(ExitMeeting, EndsWhenAllRanksHaveCome) {
  const auto room = std::make_shared<MailRoom>(kMeetingRanks, /*max_delay=*/3, /*seed=*/1);
  for (const Status& result : Meet(room, /*missing=*/-1, std::chrono::hours(1))) {
    EXPECT_TRUE(IsOk(result));
  }
}

TEST(ExitMeeting, NamesTheMissingRankOnAllOthers) {
  for (const int missing : {0, 2}) {
    const auto room = std::make_shared<MailRoom>(kMeetingRanks, 3, 1);
    const std::vector<Status> results = Meet(room, missing, std::chrono::milliseconds(300));
    bool any_timeout = false;
    for (int rank = 0; rank < kMeetingRanks; ++rank) {
      const Status& result = results[static_cast<size_t>(rank)];
      if (rank == missing) continue;
      EXPECT_FALSE(result.ok());
      if (result.code() != Code::kTimeout) continue;
      any_timeout = true;
      EXPECT_TRUE(Contains(result.text(), missing == 0 ? "for rank 0," : "for rank 2,"));
      EXPECT_TRUE(Contains(result.text(), "; start_timeout= of init sets"));
    }
    EXPECT_TRUE(any_timeout);
    // The last rank must not call MPI_Finalize, in which it would wait for the others.
    EXPECT_TRUE(IsError(MeetingOf(room, missing).Run(std::chrono::hours(1)), Code::kPeerLost,
                        "has ended without MPI_Finalize"));
  }
}

}  // namespace
}  // namespace multiverso::testing
