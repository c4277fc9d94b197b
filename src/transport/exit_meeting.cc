#include "transport/exit_meeting.h"

#include <algorithm>
#include <cstring>

#include "base/backoff.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait_lines.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(5);
// How long a rank that ends waits for its last messages to be sent.
constexpr auto kSendTimeout = std::chrono::milliseconds(200);
// The most missing ranks that rank 0 lists to the others, which only name them in texts.
constexpr size_t kMaxListed = 64;

// The messages to rank 0 are one of these. Those of rank 0 are kGone or a list of ranks, as int32_t
// each, which is empty when all have come.
constexpr char kCame[] = "c";
constexpr char kGone[] = "g";

Status EndedWithout(int64_t rank, const std::vector<int>& missing) {
  return Status(
      Code::kPeerLost,
      StrCat("rank ", rank, " has ended without MPI_Finalize",
             missing.empty() ? "" : StrCat(", after it had waited for ", NameRanks(missing))));
}

}  // namespace

Status ExitMeeting::Run(std::chrono::milliseconds timeout) {
  const Instant since = Clock::now();
  timeout = std::min(timeout, kNoLimit);
  const Instant deadline = since + timeout;
  Status result;
  if (is_first()) {
    presence_.assign(static_cast<size_t>(messenger_->size()), Presence::kMissing);
    presence_[0] = Presence::kCame;
  } else {
    result = messenger_->Post(0, kExitTag, kCame);
  }
  WaitLines lines(since);
  if (result.ok()) {
    result = PollUntil(deadline, Backoff(kLongestNap), [&] {
      messenger_->Advance();
      const Status received = is_first() ? ReceiveOnFirst() : ReceiveOnOther();
      const Instant now = Clock::now();
      if (received.pending() && lines.IsDue(now)) {
        lines.Postpone(now);
        LogWarning(Describe(MissingRanks(), since) + LimitText(timeout, kStartTimeoutOption));
      }
      return received;
    });
  }
  if (result.ok()) {
    if (is_first()) Tell("");
    messenger_->Drain(Clock::now() + kSendTimeout);
    return result;
  }
  if (result.pending()) {
    result = Status(Code::kTimeout,
                    StrCat(Describe(MissingRanks(), since), LimitAdvice(kStartTimeoutOption),
                           ". This process ends without MPI_Finalize"));
  }
  if (is_first()) {
    Tell(kGone);
  } else {
    (void)messenger_->Post(0, kExitTag, kGone);
  }
  messenger_->Drain(Clock::now() + kSendTimeout);
  return result;
}

std::vector<int> ExitMeeting::MissingRanks() const {
  if (!is_first()) return missing_.empty() ? std::vector<int>{0} : missing_;
  std::vector<int> missing;
  for (size_t rank = 0; rank < presence_.size(); ++rank) {
    if (presence_[rank] == Presence::kMissing) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

Status ExitMeeting::ReceiveOnFirst() {
  bool has_changed = false;
  for (int rank = 1; rank < messenger_->size(); ++rank) {
    for (;;) {
      std::string message;
      bool got = false;
      MV_RETURN_IF_NOT_OK(messenger_->Take(rank, kExitTag, sizeof(kCame), &message, &got));
      if (!got) break;
      has_changed = true;
      presence_[static_cast<size_t>(rank)] = message == kGone ? Presence::kGone : Presence::kCame;
    }
  }
  const auto gone = std::find(presence_.begin(), presence_.end(), Presence::kGone);
  const std::vector<int> missing = MissingRanks();
  if (gone != presence_.end()) return EndedWithout(gone - presence_.begin(), missing);
  if (missing.empty()) return Status::Ok();
  if (has_changed) {
    std::string list;
    for (size_t i = 0; i < std::min(missing.size(), kMaxListed); ++i) {
      list.append(reinterpret_cast<const char*>(&missing[i]), sizeof(int32_t));
    }
    Tell(list);
  }
  return Status::Pending();
}

Status ExitMeeting::ReceiveOnOther() {
  for (;;) {
    std::string message;
    bool got = false;
    MV_RETURN_IF_NOT_OK(
        messenger_->Take(0, kExitTag, kMaxListed * sizeof(int32_t), &message, &got));
    if (!got) return Status::Pending();
    if (message.empty()) return Status::Ok();
    if (message == kGone) return EndedWithout(0, missing_);
    missing_.resize(message.size() / sizeof(int32_t));
    std::memcpy(missing_.data(), message.data(), missing_.size() * sizeof(int32_t));
  }
}

void ExitMeeting::Tell(const std::string& what) {
  for (int rank = 1; rank < messenger_->size(); ++rank) {
    // A rank that comes later must learn of the end, but needs no list of before.
    const bool is_list = !what.empty() && what != kGone;
    if (is_list && presence_[static_cast<size_t>(rank)] != Presence::kCame) continue;
    (void)messenger_->Post(rank, kExitTag, what);
  }
}

std::string ExitMeeting::Describe(const std::vector<int>& missing, Instant since) const {
  return StrCat("rank ", messenger_->rank(), " has waited ",
                TimeText(SecondsBetween(since, Clock::now())), " at its end for ",
                NameRanks(missing),
                ", which has died or still runs: MPI_Finalize needs all ranks of the job");
}

}  // namespace multiverso
