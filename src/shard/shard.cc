#include "shard/shard.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/wait_lines.h"
#include "memory/futex.h"

namespace multiverso {

Shard::Shard(ShardValues values, const ShardUser& user)
    : values_(std::move(values)),
      layout_(values_.layout()),
      columns_(values_.columns()),
      first_row_(values_.first_row()),
      storage_(values_.storage()),
      user_(user) {}

std::string Shard::NameRows(int64_t stripe) const {
  return StrCat("rows ", first_row_ + layout_.first_row(stripe), " to ",
                first_row_ + layout_.end_row(stripe) - 1);
}

Status Shard::TakeStripe(int64_t stripe, const WaitLimit& limit) const {
  StripeLock* const lock = storage_.lock(stripe);
  if (lock->TryTake(user_.local_rank)) return Status::Ok();
  const auto holder = [&] {
    return StrCat("the lock of ", NameRows(stripe), " is held by local rank ", lock->Holder(),
                  ", which is alive but makes no progress");
  };
  std::optional<WaitLines> lines;
  for (;;) {
    const Instant until = limit.NextCheck(Clock::now());
    switch (lock->Take(user_.local_rank, *user_.probe, until)) {
      case RobustLock::Outcome::kTaken:
        return Status::Ok();
      case RobustLock::Outcome::kRecovered: {
        lock->BeginWrite(*storage_.version());
        Recover(stripe);
        lock->EndWrite();
        LogWarning(StrCat(NameRows(stripe),
                          " of a table: a rank died in the middle of an operation; an add it was "
                          "making there, which was never acknowledged, may be there in part"));
        return Status::Ok();
      }
      case RobustLock::Outcome::kTimedOut:
        break;
    }
    if (const int owner = lock->Holder(); owner >= 0) {
      MV_RETURN_IF_NOT_OK(
          user_.probe->CheckWait(owner).In(StrCat("the lock of ", NameRows(stripe))));
    }
    const Instant now = Clock::now();
    if (now >= limit.deadline) break;
    if (!lines.has_value()) lines.emplace(now);
    if (lines->IsDue(now)) {
      lines->Postpone(now);
      LogWarning(StrCat("local rank ", user_.local_rank, " waits: ", holder(),
                        LimitText(limit.deadline - now)));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return Status(Code::kTimeout, holder() + LimitAdvice());
}

Status Shard::RecoverStripes(const WaitLimit& limit) const {
  for (int64_t stripe = 0; stripe < layout_.stripes(); ++stripe) {
    if (storage_.lock(stripe)->IsAtRest()) continue;
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
  }
  return Status::Ok();
}

Status Shard::ReadRepeatedly(int64_t stripe, const WaitLimit& limit,
                             const std::function<void()>& read) const {
  const StripeLock& lock = *storage_.lock(stripe);
  for (Instant next_check = limit.NextCheck(Clock::now());;) {
    if (lock.ReadUnlocked(read)) return Status::Ok();
    YieldCore();
    const Instant now = Clock::now();
    if (now < next_check) continue;
    next_check = limit.NextCheck(now);
    // A writer that died left the stripe marked as being written.
    const uint32_t sequence = lock.sequence.load(std::memory_order_acquire);
    const int holder = lock.Holder();
    if ((sequence & 1U) != 0 && (holder < 0 || !user_.probe->IsAlive(holder))) {
      read();
      std::atomic_thread_fence(std::memory_order_acquire);
      if (lock.sequence.load(std::memory_order_relaxed) == sequence) return Status::Ok();
    }
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    StrCat(holder < 0 ? "other ranks have" : StrCat("local rank ", holder, " has"),
                           " been changing ", NameRows(stripe), " all the time"));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

}  // namespace multiverso
