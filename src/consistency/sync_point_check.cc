#include "consistency/sync_point_check.h"

#include "base/backoff.h"
#include "base/mix.h"
#include "base/text.h"

namespace multiverso {
namespace {

// How long to wait for the clocks of other nodes, which normally arrive within milliseconds.
constexpr auto kClockTimeout = std::chrono::seconds(3);
constexpr auto kClockPollInterval = std::chrono::milliseconds(2);

SyncPointArrival ArrivalOf(const Group& world, int64_t offset, int rank) {
  return world.payload(rank).Read<SyncPointArrival>(static_cast<size_t>(offset));
}

}  // namespace

void SyncPointArrival::Count(int64_t table, const CallDigest& table_calls) {
  if (table_calls.count == 0) return;
  // A sum, because the workers may have released the tables in different orders.
  digest += Mix64(Mix64(Mix64(static_cast<uint64_t>(table) + 1) ^ table_calls.count) ^
                  table_calls.digest);
  calls += table_calls.count;
}

bool SyncPointCheck::FindDifference(const Group& world, int64_t offset, int* first,
                                    int* other) const {
  *first = -1;
  for (const int rank : world.participants()) {
    const SyncPointArrival arrival = ArrivalOf(world, offset, rank);
    if (arrival.is_worker == 0 || arrival.has_finished != 0) continue;
    if (*first < 0) {
      *first = rank;
    } else if (arrival.digest != ArrivalOf(world, offset, *first).digest) {
      *other = rank;
      return true;
    }
  }
  if (!is_last_ || *first < 0) return false;
  // An add of a finished worker that the others did not make would be lost.
  for (const int rank : world.participants()) {
    const SyncPointArrival arrival = ArrivalOf(world, offset, rank);
    if (arrival.has_finished == 0 || arrival.calls <= ArrivalOf(world, offset, *first).calls)
      continue;
    *other = rank;
    return true;
  }
  return false;
}

Status SyncPointCheck::Check(const Group& world, int64_t offset, const WaitLimit& limit) {
  int rank = 0;
  int other = 0;
  if (context_ == nullptr || !FindDifference(world, offset, &rank, &other)) return Status::Ok();
  const Status compared =
      PollUntil(Clock::now() + kClockTimeout, Backoff(kClockPollInterval), [&]() -> Status {
        // Another rank, or a comparison of arriving clocks, may have reported the mismatch already.
        MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
        const Status status = compare_();
        if (!status.pending()) return status;
        const Status limited = limit.Check(Clock::now());
        return limited.ok() ? status : limited;
      });
  if (!compared.ok() && !compared.pending()) return compared;
  return Status(Code::kMismatch, StrCat("rank ", rank, " and rank ", other,
                                        " have not made the same calls on their tables"));
}

}  // namespace multiverso
