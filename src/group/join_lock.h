// JoinLock: decides whether a rank joins an elastic session before or after a collective call
// begins.
#pragma once

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status.h"
#include "memory/presence.h"
#include "node/control_segment.h"

namespace multiverso {

// A mark (memory/presence.h) on the control segment, after those of the ranks. The kernel drops it
// if this process ends. A joiner holds it while it becomes visible, a rank while it begins a call.
class JoinLock {
 public:
  // `fd` is that of the control segment.
  JoinLock(int fd, const NodeControl& control) : fd_(fd), index_(control.num_ranks) {}
  ~JoinLock() {
    if (is_taken_) ClearPresent(fd_, index_);
  }
  JoinLock(const JoinLock&) = delete;
  JoinLock& operator=(const JoinLock&) = delete;

  // Takes the lock, unless needs_none() becomes true meanwhile.
  template <class NeedsNone>
  Status TakeUnless(const NeedsNone& needs_none, const WaitLimit& limit) {
    constexpr auto kLongestNap = std::chrono::milliseconds(1);
    const Status taken = PollUntil(limit.deadline, Backoff(kLongestNap), [&] {
      if (needs_none()) return Status::Ok();
      MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
      is_taken_ = MarkPresent(fd_, index_).ok();
      return is_taken_ ? Status::Ok() : Status::Pending();
    });
    if (!taken.pending()) return taken;
    return Status(Code::kTimeout,
                  "waited for the lock of processes that join the session or begin a call");
  }
  // Forgets the lock, if the file has been closed, which has ended the mark.
  void Forget() { is_taken_ = false; }

 private:
  int fd_;
  int index_;
  bool is_taken_ = false;
};

}  // namespace multiverso
