#include "shard/shard.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "memory/futex.h"

namespace multiverso {

Shard::Shard(const StripeLayout& layout, int64_t columns, DType dtype, const ShardStorage& storage,
             std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row,
             std::unique_ptr<const LazyRows> lazy)
    : layout_(layout),
      columns_(columns),
      dtype_(dtype),
      is_half_(IsHalf(dtype)),
      value_bytes_(SizeOf(ValueType(dtype))),
      first_row_(first_row),
      storage_(storage),
      saver_(storage, layout, columns),
      updater_(std::move(updater)),
      counts_steps_(is_half_ || updater_->counts_steps()),
      notes_gets_(updater_->notes_gets()),
      user_(user),
      lazy_(std::move(lazy)) {}

Status Shard::TakeStripe(int64_t stripe, const WaitLimit& limit) const {
  StripeLock* const lock = storage_.lock(stripe);
  if (lock->TryTake(user_.local_rank)) return Status::Ok();
  const auto rows = [&] {
    return StrCat("rows ", first_row_ + layout_.first_row(stripe), " to ",
                  first_row_ + layout_.end_row(stripe) - 1);
  };
  for (;;) {
    const Instant until = limit.NextCheck(Clock::now());
    switch (lock->Take(user_.local_rank, *user_.probe, until)) {
      case RobustLock::Outcome::kTaken:
        return Status::Ok();
      case RobustLock::Outcome::kRecovered: {
        const StripeWrite writing(lock, *storage_.version());
        const bool is_restored = Recover(stripe);
        LogWarning(StrCat(rows(), " of a table: a rank died in the middle of an operation; ",
                          is_restored ? "another rank makes the add of the other node instead"
                                      : "an add it was making there, which was never acknowledged, "
                                        "may be there in part"));
        return Status::Ok();
      }
      case RobustLock::Outcome::kTimedOut:
        break;
    }
    const Instant now = Clock::now();
    if (now >= limit.deadline) break;
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return Status(Code::kTimeout, StrCat("the lock of ", rows(), " is held by local rank ",
                                       lock->Holder(), ", which is alive but makes no progress"));
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
                    StrCat("local rank ", holder, " has been changing rows ",
                           first_row_ + layout_.first_row(stripe), " to ",
                           first_row_ + layout_.end_row(stripe) - 1, " all the time"));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
}

}  // namespace multiverso
