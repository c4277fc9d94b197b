#include "consistency/sync_point_check.h"

#include <thread>

#include "base/text.h"

namespace multiverso {
namespace {

// The clocks of other nodes may be in flight for this long.
constexpr auto kOnItsWay = std::chrono::seconds(3);
constexpr auto kNap = std::chrono::milliseconds(2);

// The finalizer of MurmurHash3 by Austin Appleby, in the public domain.
uint64_t Mix(uint64_t key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdULL;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ULL;
  return key ^ key >> 33;
}

SyncPointArrival Read(const Group& world, int64_t offset, int rank) {
  return world.payload(rank).Read<SyncPointArrival>(static_cast<size_t>(offset));
}

}  // namespace

void SyncPointArrival::Count(int64_t table, const CallDigest& calls_on_it) {
  // A table without calls is ignored, because some workers may have released the table.
  if (calls_on_it.number == 0) return;
  digest +=
      Mix(Mix(Mix(static_cast<uint64_t>(table) + 1) ^ calls_on_it.number) ^ calls_on_it.digest);
  calls += calls_on_it.number;
}

bool SyncPointCheck::FindDifference(const Group& world, int64_t offset, int* one,
                                    int* other) const {
  *one = -1;
  for (const int rank : world.participants()) {
    const SyncPointArrival theirs = Read(world, offset, rank);
    if (theirs.is_worker == 0 || theirs.has_finished != 0) continue;
    if (*one < 0) {
      *one = rank;
    } else if (theirs.digest != Read(world, offset, *one).digest) {
      *other = rank;
      return true;
    }
  }
  // An add of a finished worker that the others did not make would be lost.
  for (const int rank : world.participants()) {
    const SyncPointArrival theirs = Read(world, offset, rank);
    if (!is_last_ || *one < 0 || theirs.has_finished == 0) continue;
    if (theirs.calls <= Read(world, offset, *one).calls) continue;
    *other = rank;
    return true;
  }
  return false;
}

Status SyncPointCheck::Check(const Group& world, int64_t offset, const WaitLimit& limit) {
  int one = 0;
  int other = 0;
  if (context_ == nullptr || !FindDifference(world, offset, &one, &other)) return Status::Ok();
  const Instant until = Clock::now() + kOnItsWay;
  for (;;) {
    // Another rank, or a comparison of arriving clocks, may have reported the mismatch already.
    MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(/*was_waiting=*/true));
    const Status where = compare_();
    if (!where.ok() && !where.pending()) return where;
    const Instant now = Clock::now();
    if (where.ok() || now >= until) break;
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    std::this_thread::sleep_for(kNap);
  }
  return Status(Code::kMismatch, StrCat("rank ", one, " and rank ", other,
                                        " have not made the same calls on their tables"));
}

}  // namespace multiverso
