#include "shard/keyed_shard.h"

#include <algorithm>
#include <utility>

#include "shard/prefetch.h"
#include "shard/shard_rows.h"
#include "shard/shard_stripes.h"

namespace multiverso {

KeyedShard::KeyedShard(ShardValues values, const ShardUser& user, std::unique_ptr<KeyIndex> keys)
    : Shard(std::move(values), user), keys_(std::move(keys)) {}

// The rows of an add to keys, in the order in which it visits them. A key without a row has row -1.
// RowAt requires the stripe's lock. `rows` are those that the keys had before, or empty.
struct KeyedShard::PlacesOfKeys {
  const RowOrder& order;
  const int64_t* ids;
  const KeyIndex& keys;
  const std::vector<FoundKeys::Row>& rows;
  // StripeLock::BeginRead of the lock that this call holds.
  uint32_t begun = 0;

  int64_t KeyAt(int64_t place) const { return ids[order.PositionAt(place)]; }
  int64_t StripeAt(int64_t place) const {
    const int64_t row = GuessAt(place);
    return row >= 0 ? row / KeyIndex::kRowsPerStripe : keys.StripeOf(KeyAt(place));
  }
  void Take(const StripeLock& lock) { begun = lock.BeginRead(); }
  int64_t RowAt(int64_t place) const {
    // A key still has its row if nobody has changed the stripe since.
    const bool is_unchanged = !rows.empty() && rows[static_cast<size_t>(place)].begun == begun;
    if (is_unchanged && StripeLock::MayRead(begun)) return GuessAt(place);
    return keys.Find(KeyAt(place));
  }
  bool AreSame(int64_t a, int64_t b) const { return KeyAt(a) == KeyAt(b); }
  int64_t GuessAt(int64_t place) const {
    return rows.empty() ? KeyIndex::kNone : rows[static_cast<size_t>(place)].row;
  }
};

Status KeyedShard::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  const RowOrder order_of_list;
  const RowOrder& order = request.order == nullptr ? order_of_list : *request.order;
  std::vector<FoundKeys::Row> rows;
  switch (request.kind) {
    case RequestKind::kGetKeys:
      return GetKeys(request, progress, limit, nullptr);
    case RequestKind::kFetchKeys:
      return FetchKeys(request, progress, limit);
    case RequestKind::kAddKeys:
      // A request that has begun has given rows to its keys.
      if (progress->done == 0) {
        MV_RETURN_IF_NOT_OK(GiveRowsToKeys(request, order, &rows, &progress->counted_uses, limit));
      }
      return AddRows(request, PlacesOfKeys{order, request.row_ids, *keys_, rows}, progress, limit);
    case RequestKind::kTouchKeys:
      return GiveRowsToKeys(request, order, nullptr, &progress->counted_uses, limit);
    case RequestKind::kLocateKeys:
      MV_RETURN_IF_NOT_OK(GiveRowsToKeys(request, order, nullptr, &progress->counted_uses, limit));
      [[fallthrough]];
    case RequestKind::kFindKeys:
      return FindKeys(request, limit);
    case RequestKind::kRemoveKeys:
      return RemoveKeys(request, progress, limit);
    case RequestKind::kKeysOfRows:
      return CopyCells(request, limit);
    case RequestKind::kCountsOfRows:
      return CopyCounts(request);
    default:
      return Shard::Run(request, progress, limit);
  }
}

void KeyedShard::Recover(int64_t stripe) const { keys_->Rebuild(stripe); }

Status KeyedShard::GetKeys(const Request& request, Progress* progress, const WaitLimit& limit,
                           std::vector<int64_t>* missing) const {
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t out_bytes = columns_ * values_.value_bytes();
  const int64_t count = request.num_ids;
  const bool may_read_unlocked = MayReadUnlocked(columns_);
  const uint32_t call = missing == nullptr ? 0 : keys_->BeginCall();
  auto* const out = static_cast<char*>(request.out);
  // Local copies, since the compiler must assume that writing to `out` changes the members.
  const int64_t* const ids = request.row_ids;
  const char* const parameters = storage_.parameters();
  const KeyIndex* const keys = keys_.get();
  const auto key_at = [ids](int64_t i) { return ids[i]; };
  const auto prefetch = [&](int64_t row) MV_ALWAYS_INLINE {
    Prefetch<false>(parameters + row * row_bytes, row_bytes);
    if (missing != nullptr) keys->PrefetchUse(row);
  };
  RowsAhead ahead(user_.disk, progress->done, count);
  const auto expect = [&](int64_t from, int64_t end) {
    ExpectKeys(key_at, from, end, /*state=*/false);
  };
  FoundKeys found(keys, &storage_);
  int64_t until = progress->done;
  while (progress->done < count) {
    if (progress->done == until) until = ahead.Advance(until, expect);
    const int64_t end = std::min(until, progress->done + FoundKeys::kMost);
    found.Find(progress->done, end, key_at, prefetch);
    while (progress->done < end) {
      // Most keys have a row that nobody changes at the moment.
      int64_t i = progress->done;
      for (; may_read_unlocked && i < end; ++i) {
        const auto [row, begun] = found.At(i);
        if (row < 0 || !StripeLock::MayRead(begun)) break;
        values_.GetTouchedRow(row, out + i * out_bytes);
        if (!found.IsUnchanged(i)) break;
        if (missing != nullptr) keys->CountUse(row, call);
      }
      progress->done = i;
      if (i == end) break;
      const KeyIndex::Place& place = found.PlaceOf(i);
      int64_t row = KeyIndex::kNone;
      MV_RETURN_IF_NOT_OK(ReadStripe(place.stripe, may_read_unlocked, limit, [&] {
        row = keys->Find(place, ids[i]);
        if (row >= 0) values_.GetTouchedRow(row, out + i * out_bytes);
      }));
      ++progress->done;
      if (row < 0) CopyInitial(ids[i], out + i * out_bytes);
      if (missing == nullptr) continue;
      if (row < 0) {
        missing->push_back(i);
      } else {
        keys->CountUse(row, call);
      }
    }
  }
  return Status::Ok();
}

Status KeyedShard::FetchKeys(const Request& request, Progress* progress,
                             const WaitLimit& limit) const {
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

Status KeyedShard::ContinueFetch(const Request& request, Progress* progress, KeyFetch* fetch,
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
    MV_RETURN_IF_NOT_OK(GiveRowsToKeys(touch, RowOrder(), nullptr, &fetch->counted_uses, limit));
  }
  return Status::Ok();
}

Status KeyedShard::FindRow(const KeyIndex::Place& place, int64_t key, int64_t* row,
                           const WaitLimit& limit) const {
  return ReadStripe(place.stripe, /*may_read_unlocked=*/true, limit,
                    [&] { *row = keys_->Find(place, key); });
}

Status KeyedShard::FindKeys(const Request& request, const WaitLimit& limit) const {
  auto* const rows = static_cast<int64_t*>(request.out);
  for (int64_t i = 0; i < request.num_ids; ++i) {
    int64_t row = KeyIndex::kNone;
    const int64_t key = request.row_ids[i];
    MV_RETURN_IF_NOT_OK(FindRow(keys_->PlaceOf(key), key, &row, limit));
    rows[i] = row < 0 ? KeyIndex::kNone : first_row_ + row;
  }
  return Status::Ok();
}

Status KeyedShard::CopyCells(const Request& request, const WaitLimit& limit) const {
  auto* const cells = static_cast<KeyIndex::RowOfKey*>(request.out);
  for (int64_t i = 0; i < request.num_ids;) {
    const int64_t stripe = layout_.stripe_of(request.row_ids[i] - first_row_);
    int64_t next = i;
    MV_RETURN_IF_NOT_OK(ReadStripe(stripe, /*may_read_unlocked=*/false, limit, [&] {
      for (next = i; next < request.num_ids; ++next) {
        const int64_t row = request.row_ids[next] - first_row_;
        if (layout_.stripe_of(row) != stripe) break;
        cells[next] = keys_->Describe(row);
      }
    }));
    i = next;
  }
  return Status::Ok();
}

Status KeyedShard::CopyCounts(const Request& request) const {
  auto* const counts = static_cast<KeyCounts*>(request.out);
  for (int64_t i = 0; i < request.num_ids; ++i) counts[i] = keys_->Counts();
  return Status::Ok();
}

}  // namespace multiverso
