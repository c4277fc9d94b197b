// How keys of a KeyedShard get their rows and lose them.
#include <algorithm>
#include <thread>
#include <vector>

#include "base/text.h"
#include "shard/keyed_shard.h"
#include "shard/prefetch.h"
#include "shard/shard_stripes.h"

namespace multiverso {
namespace {

// How long a call sleeps that has found no key to evict.
constexpr auto kVictimNap = std::chrono::microseconds(100);

// The most keys that are prepared together. Inserting one of them may make what was prepared for
// later keys of its stripe useless.
constexpr size_t kInsertionsAtATime = 32;

// Adds what a call has done to the counts of the table, also if the call ends early.
class CountAtEnd {
 public:
  explicit CountAtEnd(const KeyIndex* keys) : keys_(keys) {}
  ~CountAtEnd() { keys_->Count(counts); }
  CountAtEnd(const CountAtEnd&) = delete;
  CountAtEnd& operator=(const CountAtEnd&) = delete;

  KeyCounts counts;

 private:
  const KeyIndex* keys_;
};

}  // namespace

Status KeyedShard::GiveRowsToKeys(const Request& request, const RowOrder& order,
                                  std::vector<FoundKeys::Row>* rows, int64_t* counted_uses,
                                  const WaitLimit& limit) const {
  CountAtEnd counting(keys_.get());
  const uint32_t call = keys_->BeginCall();
  const int64_t count = request.num_ids;
  // The add that follows a touch counts the uses.
  const int64_t first_to_count = request.kind == RequestKind::kTouchKeys ? count : *counted_uses;
  const auto key_at = [&](int64_t place) { return request.row_ids[order.PositionAt(place)]; };
  std::vector<int64_t> missing;
  if (rows != nullptr) rows->resize(static_cast<size_t>(count));
  const auto prefetch = [&](int64_t row) MV_ALWAYS_INLINE { keys_->PrefetchUse(row); };
  FoundKeys found(keys_.get(), &storage_);
  RowsAhead ahead(user_.disk, 0, count);
  const auto expect = [&](int64_t first, int64_t end) {
    ExpectKeys(key_at, first, end, /*state=*/true);
  };
  int64_t until = 0;
  int64_t end = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i == until) until = ahead.Advance(i, expect);
    if (i == end) {
      end = std::min(until, i + FoundKeys::kMost);
      found.Find(i, end, key_at, prefetch);
    }
    const int64_t key = key_at(i);
    int64_t row = found.At(i).row;
    if (!found.IsUnchanged(i)) MV_RETURN_IF_NOT_OK(FindRow(found.PlaceOf(i), key, &row, limit));
    if (rows != nullptr) (*rows)[static_cast<size_t>(i)] = {row, found.At(i).begun};
    if (row < 0) {
      missing.push_back(key);
    } else if (i >= first_to_count) {
      keys_->CountUse(row, call);
    }
    *counted_uses = std::max(first_to_count, i + 1);
  }
  // With admission, only gets give rows to keys.
  const bool may_insert = request.kind == RequestKind::kFetchKeys || keys_->policy().admit <= 1;
  if (missing.empty() || !may_insert) return Status::Ok();
  // In the order of the stripes, as adds are, in which repeated keys are adjacent.
  const RowOrder by_hash = RowOrder::OfKeys(missing.data(), static_cast<int64_t>(missing.size()));
  std::vector<int64_t> sorted(missing.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    sorted[i] = missing[static_cast<size_t>(by_hash.PositionAt(static_cast<int64_t>(i)))];
  }
  missing.swap(sorted);
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  for (const int64_t key : missing) {
    MV_RETURN_IF_NOT_OK(lazy()->ReserveOnDisk(layout_.first_row(keys_->StripeOf(key))));
  }
  LazyRows::Room room;
  if (keys_->policy().evict != 0) {
    lazy()->TakeRoom(static_cast<int64_t>(missing.size()), &room);
    return InsertKeys(missing, &room, call, &counting.counts, limit);
  }
  const auto count_absent = [&] {
    LazyRows::Rows absent;
    for (const int64_t key : missing) {
      if (keys_->Find(key) >= 0) continue;
      ++absent.count;
      absent.new_bytes += RowOf(key).new_bytes;
    }
    return absent;
  };
  MV_RETURN_IF_NOT_OK(lazy()->MakeRoomForRows(count_absent, limit, &room));
  return InsertKeys(missing, &room, call, &counting.counts, limit);
}

Status KeyedShard::InsertKeys(const std::vector<int64_t>& keys, LazyRows::Room* room, uint32_t call,
                              KeyCounts* counts, const WaitLimit& limit) const {
  int64_t freed = 0;
  Status status;
  std::vector<Insertion> group(kInsertionsAtATime);
  for (size_t first = 0; first < keys.size() && status.ok(); first += group.size()) {
    group.resize(std::min(group.size(), keys.size() - first));
    for (size_t i = 0; i < group.size(); ++i) group[i] = Insertion(keys[first + i], *keys_);
    PrepareInsertions(*room, &group);
    for (size_t i = 0; i < group.size() && status.ok(); ++i) {
      status = InsertKey(group[i], room, &freed, call, counts, limit);
    }
  }
  lazy()->GiveBack(freed);
  return status;
}

void KeyedShard::PrepareInsertions(const LazyRows::Room& room,
                                   std::vector<Insertion>* group) const {
  // As in FoundKeys, a step is taken for all keys before the next.
  for (const Insertion& each : *group) {
    MV_PREFETCH(keys_->BucketOf(each.place), 1);
    MV_PREFETCH(storage_.lock(each.place.stripe), 1);
    lazy()->Prefetch(layout_.first_row(each.place.stripe));
  }
  // Looking for the least frequently used key also ages the uses, which needs the lock.
  const bool is_least_recent =
      keys_->policy().evict == static_cast<int32_t>(Eviction::kLeastRecent);
  if (!is_least_recent || room.left() > 0) return;
  for (const Insertion& each : *group) keys_->PrefetchVictims(each.place.stripe, each.start);
  for (Insertion& each : *group) {
    each.victim.begun = storage_.lock(each.place.stripe)->BeginRead();
    each.victim.row = keys_->VictimOf(each.place.stripe, each.start);
    if (each.victim.row < 0) continue;
    keys_->PrefetchRow(each.victim.row);
    const int64_t row_bytes = layout_.row_bytes();
    Prefetch<true>(storage_.parameters() + each.victim.row * row_bytes, row_bytes);
    if (storage_.row_state_bytes() > 0) MV_PREFETCH(storage_.row_state(each.victim.row), 1);
  }
  for (const Insertion& each : *group) {
    if (each.victim.row < 0) continue;
    MV_PREFETCH(keys_->BucketOf(keys_->PlaceOf(keys_->KeyOf(each.victim.row))), 1);
  }
}

Status KeyedShard::InsertKey(const Insertion& insertion, LazyRows::Room* room, int64_t* freed,
                             uint32_t call, KeyCounts* counts, const WaitLimit& limit) const {
  const int64_t key = insertion.key;
  const int64_t stripe = insertion.place.stripe;
  const int64_t start = insertion.start;
  const bool evicts = keys_->policy().evict != 0;
  int64_t victim_stripe = stripe;
  Instant gives_up_at = limit.deadline;
  for (;;) {
    {
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      const uint32_t begun = storage_.lock(stripe)->BeginRead();
      const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
      int64_t row = keys_->Find(insertion.place, key);
      if (row >= 0) return Status::Ok();  // another rank has inserted it
      const bool has_room = *freed > 0 || room->left() > 0;
      bool is_reused = false;
      row = has_room ? keys_->TakeRow(stripe, key, &is_reused) : KeyIndex::kNone;
      if (row < 0 && evicts) {
        const bool is_unchanged = StripeLock::MayRead(begun) && insertion.victim.begun == begun;
        const int64_t victim = is_unchanged ? insertion.victim.row : keys_->VictimOf(stripe, start);
        if (victim >= 0) {
          Evict(stripe, victim, counts, freed);
          row = keys_->TakeRow(stripe, key, &is_reused);
        }
      }
      if (row >= 0) {
        storage_.changed_rows().NoteRange(row, row + 1);
        if (is_reused) values_.ClearState(row);
        (void)lazy()->Touch(row, key);
        keys_->Link(stripe, row);
        keys_->CountUse(row, call);
        ++counts->admissions;
        if (*freed > 0) {
          --*freed;
        } else {
          room->Use(1);
        }
        return Status::Ok();
      }
      if (has_room) {
        return Status(Code::kMemory,
                      StrCat("cannot hold key ", key, ": the ", KeyIndex::kRowsPerStripe,
                             " rows for keys with similar hashes are in use"));
      }
    }
    if (!evicts) {
      // Another rank has removed a key that had a row when this call counted the missing ones. The
      // new room counts as touched from now on; *freed lets the next pass use it.
      LazyRows::Room more;
      MV_RETURN_IF_NOT_OK(lazy()->MakeRoomForRows([&] { return RowOf(key); }, limit, &more));
      more.Use(1);
      ++*freed;
      continue;
    }
    // No key of this stripe can make room for the new one, so a key of another stripe does.
    victim_stripe = (victim_stripe + 1) % layout_.stripes();
    if (victim_stripe == stripe) {
      // Other calls may have rows that they have not given to keys yet.
      const Instant now = Clock::now();
      gives_up_at = std::min(gives_up_at, now + LazyRows::kLongestWait);
      LazyRows::Room more;
      lazy()->TakeRoom(1, &more);
      if (more.left() > 0) {
        more.Use(1);
        ++*freed;
      } else if (!lazy()->HasRowsInUse() || now >= gives_up_at) {
        return Status(Code::kMemory, StrCat("cannot hold key ", key, ": no key can be evicted"));
      } else {
        MV_RETURN_IF_NOT_OK(limit.Check(now));
        std::this_thread::sleep_for(kVictimNap);
      }
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(victim_stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(victim_stripe), *storage_.version());
    const int64_t victim = keys_->VictimOf(victim_stripe, start);
    if (victim < 0) continue;
    Evict(victim_stripe, victim, counts, freed);
  }
}

void KeyedShard::Evict(int64_t stripe, int64_t row, KeyCounts* counts, int64_t* freed) const {
  DropRow(stripe, row);
  ++counts->evictions;
  ++*freed;
}

void KeyedShard::DropRow(int64_t stripe, int64_t row) const {
  storage_.changed_rows().NoteRange(row, row + 1);
  keys_->Unlink(stripe, row);
  lazy()->Untouch(row);
}

Status KeyedShard::RemoveKeys(const Request& request, Progress* progress,
                              const WaitLimit& limit) const {
  CountAtEnd counting(keys_.get());
  for (; progress->done < request.num_ids; ++progress->done) {
    const int64_t key = request.row_ids[progress->done];
    const int64_t stripe = keys_->StripeOf(key);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
    const int64_t row = keys_->Find(key);
    if (row < 0) continue;
    DropRow(stripe, row);
    lazy()->GiveBack(1);
    ++counting.counts.removals;
  }
  return Status::Ok();
}

Status KeyedShard::ClearKeys(int64_t first_stripe, int64_t end_stripe,
                             const WaitLimit& limit) const {
  for (int64_t stripe = first_stripe; stripe < end_stripe; ++stripe) {
    const int64_t end = layout_.end_row(stripe);
    int64_t row = lazy()->NextTouched(layout_.first_row(stripe), end);
    if (row == end) continue;
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
    int64_t dropped = 0;
    // Again, since another rank may have taken the row away before.
    row = lazy()->NextTouched(row, end);
    for (; row < end; row = lazy()->NextTouched(row + 1, end)) {
      DropRow(stripe, row);
      ++dropped;
    }
    lazy()->GiveBack(dropped);
  }
  return Status::Ok();
}

Result<int64_t> KeyedShard::RestoreKey(const KeyIndex::SavedCell& cell,
                                       const WaitLimit& limit) const {
  MV_RETURN_IF_NOT_OK(lazy()->ReserveOnDisk(layout_.first_row(keys_->StripeOf(cell.key))));
  LazyRows::Room room;
  if (keys_->policy().evict != 0) {
    lazy()->TakeRoom(1, &room);
  } else {
    MV_RETURN_IF_NOT_OK(lazy()->MakeRoomForRows([&] { return RowOf(cell.key); }, limit, &room));
  }
  int64_t freed = 0;
  KeyCounts counts;
  const Status inserted = InsertKey(Insertion(cell.key, *keys_), &room, &freed, 0, &counts, limit);
  lazy()->GiveBack(freed);
  MV_RETURN_IF_NOT_OK(inserted);
  if (counts.admissions == 0) return int64_t{KeyIndex::kNone};
  const int64_t stripe = keys_->StripeOf(cell.key);
  MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
  const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
  const int64_t row = keys_->Find(cell.key);
  if (row < 0) return kTaken;
  storage_.changed_rows().NoteRange(row, row + 1);
  keys_->Restore(row, cell);
  keys_->Count(KeyCounts());  // publishes the new number of keys
  return first_row_ + row;
}

}  // namespace multiverso
