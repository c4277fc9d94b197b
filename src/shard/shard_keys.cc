// The operations of a shard on rows that are named by keys.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/text.h"
#include "shard/half.h"
#include "shard/prefetch.h"
#include "shard/shard_stripes.h"

namespace multiverso {
namespace {

// How long a call sleeps that has found no key to evict.
constexpr auto kVictimNap = std::chrono::microseconds(100);

// The places of the next keys of a list, each computed once, some keys before it is needed.
class UpcomingPlaces {
 public:
  explicit UpcomingPlaces(const KeyIndex* keys) : keys_(keys) {}

  // Computes the place of the key number i, and prefetches what finding it reads.
  void Begin(int64_t i, int64_t key) {
    KeyIndex::Place& place = places_[i % kSize];
    place = keys_->PlaceOf(key);
    keys_->Prefetch(place);
  }
  const KeyIndex::Place& At(int64_t i) const { return places_[i % kSize]; }

 private:
  static constexpr int64_t kSize = 4 * kPrefetchDistance;
  const KeyIndex* keys_;
  KeyIndex::Place places_[kSize];
};

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

void Shard::CopyInitial(int64_t key, char* out) const {
  if (!is_half_) return lazy_->FillOf(key, out);
  std::vector<uint16_t> stored(static_cast<size_t>(columns_));
  lazy_->FillOf(key, stored.data());
  half::ToFloat(dtype_, stored.data(), columns_, reinterpret_cast<float*>(out));
}

Status Shard::GetKeys(const Request& request, Progress* progress, const WaitLimit& limit,
                      std::vector<int64_t>* missing) const {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t out_bytes = columns_ * value_bytes_;
  const int64_t count = request.num_ids;
  const bool may_read_unlocked = MayReadUnlocked(columns_);
  const uint32_t call = missing == nullptr ? 0 : keys_->BeginCall();
  auto* const out = static_cast<char*>(request.out);
  // Local copies, since the compiler must assume that writing to `out` changes the members.
  const int64_t* const ids = request.row_ids;
  const char* const parameters = storage_.parameters();
  const KeyIndex* const keys = keys_.get();
  UpcomingPlaces places(keys);
  const auto guess = [&](int64_t i) MV_ALWAYS_INLINE {
    if (i >= count) return;
    MV_PREFETCH(storage_.lock(places.At(i).stripe), 0);
    const int64_t row = keys->Guess(places.At(i));
    if (row >= 0) Prefetch<false>(parameters + row * row_bytes, row_bytes);
  };
  const int64_t first = progress->done;
  for (int64_t i = first; i < std::min(count, first + 2 * kPrefetchDistance); ++i) {
    places.Begin(i, ids[i]);
  }
  for (int64_t i = first; i < first + kPrefetchDistance; ++i) guess(i);
  for (; progress->done < count; ++progress->done) {
    const int64_t i = progress->done;
    const int64_t next = i + 2 * kPrefetchDistance;
    if (next < count) places.Begin(next, ids[next]);
    guess(i + kPrefetchDistance);
    const KeyIndex::Place& place = places.At(i);
    const int64_t stripe = place.stripe;
    StripeLock* const lock = storage_.lock(stripe);
    int64_t row = KeyIndex::kNone;
    const auto copy = [&] {
      row = keys->Find(place, ids[i]);
      if (row >= 0 && keys->IsExpired(row)) row = KeyIndex::kNone;
      if (row >= 0) CopyStored(row, out + i * out_bytes);
    };
    if (may_read_unlocked && lock->ReadUnlocked(copy)) {
      // The values have been copied.
    } else if (user_.is_reader) {
      MV_RETURN_IF_NOT_OK(ReadRepeatedly(stripe, limit, copy));
    } else {
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      const StripeGuard<kReading> holding(lock, *storage_.version());
      copy();
      if (row >= 0 && missing != nullptr) {
        NoteGet(row * columns_, out + i * out_bytes, columns_, worker);
      }
    }
    if (row >= 0) {
      if (missing != nullptr) keys->CountUse(row, call);
      continue;
    }
    CopyInitial(ids[i], out + i * out_bytes);
    if (missing != nullptr) missing->push_back(i);
  }
  return Status::Ok();
}

Status Shard::FetchKeys(const Request& request, Progress* progress, const WaitLimit& limit) const {
  KeyFetch fetch;
  if (progress->fetch != nullptr) fetch = std::move(*progress->fetch);
  Status status = ContinueFetch(request, progress, &fetch, limit);
  if (!status.ok()) {
    progress->fetch = std::make_unique<KeyFetch>(std::move(fetch));
    return status;
  }
  KeyCounts counts;
  counts.misses = static_cast<int64_t>(fetch.missing.size());
  counts.hits = request.num_ids - counts.misses;
  counts.rejections = counts.misses - static_cast<int64_t>(fetch.admitted.size());
  keys_->Count(counts);
  return status;
}

Status Shard::ContinueFetch(const Request& request, Progress* progress, KeyFetch* fetch,
                            const WaitLimit& limit) const {
  MV_RETURN_IF_NOT_OK(GetKeys(request, progress, limit, &fetch->missing));
  for (; fetch->counted < fetch->missing.size(); ++fetch->counted) {
    const int64_t key = request.row_ids[fetch->missing[fetch->counted]];
    bool is_admitted = true;
    if (keys_->policy().admit > 1) {
      const int64_t stripe = keys_->StripeOf(key);
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
      is_admitted = keys_->Admit(stripe, key);
    }
    if (is_admitted) fetch->admitted.push_back(key);
  }
  if (!fetch->admitted.empty()) {
    Request touch = request;
    touch.row_ids = fetch->admitted.data();
    touch.num_ids = static_cast<int64_t>(fetch->admitted.size());
    MV_RETURN_IF_NOT_OK(TouchKeys(touch, RowOrder(), nullptr, limit));
  }
  if (!notes_gets_) return Status::Ok();
  // The updater notes the values of rows only.
  for (; fetch->noted < fetch->missing.size(); ++fetch->noted) {
    const int64_t i = fetch->missing[fetch->noted];
    Request get = request;
    get.row_ids += i;
    get.num_ids = 1;
    get.out = static_cast<char*>(request.out) + i * columns_ * value_bytes_;
    std::vector<int64_t> still_missing;
    Progress again;
    MV_RETURN_IF_NOT_OK(GetKeys(get, &again, limit, &still_missing));
  }
  return Status::Ok();
}

Status Shard::FindRow(const KeyIndex::Place& place, int64_t key, int64_t* row,
                      const WaitLimit& limit) const {
  const int64_t stripe = place.stripe;
  const auto find = [&] {
    *row = keys_->Find(place, key);
    if (*row >= 0 && keys_->IsExpired(*row)) *row = KeyIndex::kNone;
  };
  if (storage_.lock(stripe)->ReadUnlocked(find)) return Status::Ok();
  if (user_.is_reader) return ReadRepeatedly(stripe, limit, find);
  MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
  const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
  find();
  return Status::Ok();
}

Status Shard::FindKeys(const Request& request, const WaitLimit& limit) const {
  auto* const rows = static_cast<int64_t*>(request.out);
  for (int64_t i = 0; i < request.num_ids; ++i) {
    int64_t row = KeyIndex::kNone;
    const int64_t key = request.row_ids[i];
    MV_RETURN_IF_NOT_OK(FindRow(keys_->PlaceOf(key), key, &row, limit));
    rows[i] = row < 0 ? KeyIndex::kNone : first_row_ + row;
  }
  return Status::Ok();
}

Status Shard::TouchKeys(const Request& request, const RowOrder& order, std::vector<int64_t>* rows,
                        const WaitLimit& limit) const {
  CountAtEnd counting(keys_.get());
  const uint32_t call = keys_->BeginCall();
  const int64_t count = request.num_ids;
  const auto key_at = [&](int64_t place) { return request.row_ids[order.PositionAt(place)]; };
  std::vector<int64_t> missing;
  if (rows != nullptr) rows->resize(static_cast<size_t>(count));
  UpcomingPlaces places(keys_.get());
  for (int64_t i = 0; i < std::min(count, 2 * kPrefetchDistance); ++i) places.Begin(i, key_at(i));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t next = i + 2 * kPrefetchDistance;
    if (next < count) places.Begin(next, key_at(next));
    if (i + kPrefetchDistance < count) (void)keys_->Guess(places.At(i + kPrefetchDistance));
    const int64_t key = key_at(i);
    int64_t row = KeyIndex::kNone;
    MV_RETURN_IF_NOT_OK(FindRow(places.At(i), key, &row, limit));
    if (rows != nullptr) (*rows)[static_cast<size_t>(i)] = row;
    if (row < 0) {
      missing.push_back(key);
    } else {
      keys_->CountUse(row, call);
    }
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
  LazyRows::Room room;
  if (keys_->policy().evict != 0) {
    lazy_->TakeRoom(static_cast<int64_t>(missing.size()), &room);
    return InsertKeys(missing, &room, call, &counting.counts, limit);
  }
  const auto count_absent = [&] {
    return std::count_if(missing.begin(), missing.end(), [&](int64_t key) {
      return keys_->Find(key) < 0;  // an expired key has a row
    });
  };
  Status made = lazy_->MakeRoomForRows(count_absent, limit, &room);
  if (made.code() == Code::kMemory && keys_->policy().ttl > 0) {
    MV_RETURN_IF_NOT_OK(
        DropRows(0, layout_.stripes(), /*expired_only=*/true, &counting.counts, limit));
    made = lazy_->MakeRoomForRows(count_absent, limit, &room);
  }
  MV_RETURN_IF_NOT_OK(made);
  return InsertKeys(missing, &room, call, &counting.counts, limit);
}

Status Shard::InsertKeys(const std::vector<int64_t>& keys, LazyRows::Room* room, uint32_t call,
                         KeyCounts* counts, const WaitLimit& limit) const {
  int64_t freed = 0;
  Status status;
  for (size_t i = 0; i < keys.size() && status.ok(); ++i) {
    status = InsertKey(keys[i], room, &freed, call, counts, limit);
  }
  lazy_->GiveBack(freed);
  return status;
}

Status Shard::InsertKey(int64_t key, LazyRows::Room* room, int64_t* freed, uint32_t call,
                        KeyCounts* counts, const WaitLimit& limit) const {
  const int64_t stripe = keys_->StripeOf(key);
  const bool evicts = keys_->policy().evict != 0;
  // Different keys look for a victim at different places, so that no row is spared.
  const auto start = static_cast<int64_t>(KeyHash(key) & 0xFFFF);
  int64_t victim_stripe = stripe;
  Instant gives_up_at = limit.deadline;
  for (;;) {
    {
      MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
      const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
      int64_t row = keys_->Find(key);
      if (row >= 0 && keys_->IsExpired(row)) {
        DropRow(stripe, row, counts);
        ++*freed;
        row = KeyIndex::kNone;
      }
      if (row >= 0) return Status::Ok();  // another rank has inserted it
      const bool has_room = *freed > 0 || room->left() > 0;
      bool is_reused = false;
      row = has_room ? keys_->TakeRow(stripe, key, &is_reused) : KeyIndex::kNone;
      if (row < 0 && (evicts || keys_->policy().ttl > 0)) {
        const int64_t victim = keys_->VictimOf(stripe, start);
        if (victim >= 0) {
          DropRow(stripe, victim, counts);
          ++*freed;
          row = keys_->TakeRow(stripe, key, &is_reused);
        }
      }
      if (row >= 0) {
        if (is_reused) ClearState(row);
        (void)lazy_->Touch(row, key);
        keys_->Link(stripe, row);
        keys_->CountChange(row);
        keys_->CountUse(row, call);
        ++counts->admissions;
        if (*freed > 0) {
          --*freed;
        } else {
          room->Count(1);
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
      // Another rank has removed a key for which this call has made no room.
      LazyRows::Room more;
      MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForRows([] { return int64_t{1}; }, limit, &more));
      more.Count(1);
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
      lazy_->TakeRoom(1, &more);
      if (more.left() > 0) {
        more.Count(1);
        ++*freed;
      } else if (!lazy_->HasRowsInUse() || now >= gives_up_at) {
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
    DropRow(victim_stripe, victim, counts);
    ++*freed;
  }
}

void Shard::DropRow(int64_t stripe, int64_t row, KeyCounts* counts) const {
  if (keys_->IsExpired(row)) {
    ++counts->expirations;
  } else {
    ++counts->evictions;
  }
  keys_->Unlink(stripe, row);
  lazy_->Untouch(row);
}

Status Shard::DropRows(int64_t first_stripe, int64_t end_stripe, bool expired_only,
                       KeyCounts* counts, const WaitLimit& limit) const {
  for (int64_t stripe = first_stripe; stripe < end_stripe; ++stripe) {
    const int64_t end = layout_.end_row(stripe);
    int64_t row = lazy_->NextTouched(layout_.first_row(stripe), end);
    if (row == end) continue;
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
    int64_t dropped = 0;
    for (; row < end; row = lazy_->NextTouched(row + 1, end)) {
      if (expired_only && !keys_->IsExpired(row)) continue;
      DropRow(stripe, row, counts);
      ++dropped;
    }
    lazy_->GiveBack(dropped);
  }
  return Status::Ok();
}

Status Shard::RemoveKeys(const Request& request, Progress* progress, const WaitLimit& limit) const {
  CountAtEnd counting(keys_.get());
  for (; progress->done < request.num_ids; ++progress->done) {
    const int64_t key = request.row_ids[progress->done];
    const int64_t stripe = keys_->StripeOf(key);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kWriting> holding(storage_.lock(stripe), *storage_.version());
    const int64_t row = keys_->Find(key);
    if (row < 0) continue;
    keys_->Unlink(stripe, row);
    lazy_->Untouch(row);
    lazy_->GiveBack(1);
    ++counting.counts.removals;
  }
  return Status::Ok();
}

Status Shard::CopyCells(const Request& request, const WaitLimit& limit) const {
  auto* const cells = static_cast<KeyIndex::RowOfKey*>(request.out);
  for (int64_t i = 0; i < request.num_ids;) {
    const int64_t stripe = layout_.stripe_of(request.row_ids[i] - first_row_);
    if (user_.is_reader) {
      MV_RETURN_IF_NOT_OK(ReadRepeatedly(
          stripe, limit, [&] { cells[i] = keys_->Describe(request.row_ids[i] - first_row_); }));
      ++i;
      continue;
    }
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
    for (; i < request.num_ids; ++i) {
      const int64_t row = request.row_ids[i] - first_row_;
      if (layout_.stripe_of(row) != stripe) break;
      cells[i] = keys_->Describe(row);
    }
  }
  return Status::Ok();
}

Status Shard::CopyCounts(const Request& request) const {
  auto* const counts = static_cast<KeyCounts*>(request.out);
  for (int64_t i = 0; i < request.num_ids; ++i) counts[i] = keys_->Counts();
  return Status::Ok();
}

Status Shard::ClearKeys(int64_t first_stripe, int64_t end_stripe, const WaitLimit& limit) const {
  KeyCounts not_counted;
  return DropRows(first_stripe, end_stripe, /*expired_only=*/false, &not_counted, limit);
}

Result<int64_t> Shard::RestoreKey(const KeyIndex::SavedCell& cell, const WaitLimit& limit) const {
  LazyRows::Room room;
  if (keys_->policy().evict != 0) {
    lazy_->TakeRoom(1, &room);
  } else {
    MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForRows([] { return int64_t{1}; }, limit, &room));
  }
  int64_t freed = 0;
  KeyCounts counts;
  MV_RETURN_IF_NOT_OK(InsertKey(cell.key, &room, &freed, 0, &counts, limit));
  if (counts.admissions == 0) return int64_t{KeyIndex::kNone};
  const int64_t row = keys_->Find(cell.key);
  keys_->Restore(row, cell);
  keys_->Count(KeyCounts());
  return first_row_ + row;
}

}  // namespace multiverso
