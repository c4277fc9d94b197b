// The operations of a shard that touch lazy rows.
#include "base/checked.h"
#include "shard/shard_stripes.h"

namespace multiverso {
namespace {

// Counts a touched row. Lets other calls run, and the caller interrupt this one, now and then.
Status CheckAfterRow(int64_t* since_check, const WaitLimit& limit) {
  constexpr int64_t kRowsBetweenChecks = 4096;
  if (++*since_check < kRowsBetweenChecks) return Status::Ok();
  *since_check = 0;
  return limit.Check(Clock::now());
}

}  // namespace

bool Shard::MustTouch(const Request& request, int worker) const {
  if (request.kind == RequestKind::kSetHyper) return false;
  return !ReturnsData(request.kind) || IsChange(request.kind) ||
         (notes_gets_ && worker >= 0 && ReturnsParameters(request.kind));
}

Status Shard::Touch(const Request& request, const WaitLimit& limit) const {
  if (lazy_ == nullptr || lazy_->AllTouched()) return Status::Ok();
  LazyRows::Room room;
  if (IsOfRows(request.kind)) {
    MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForIds(request.row_ids, request.num_ids, limit, &room));
    return room.rows() == 0 ? Status::Ok() : TouchIds(request, &room, limit);
  }
  const bool is_whole = request.count == Request::kWholeShard;
  const int64_t first = is_whole ? 0 : request.first / columns_ - first_row_;
  const int64_t end = is_whole
                          ? layout_.rows()
                          : DivideUp(request.first + request.Span(columns_), columns_) - first_row_;
  MV_RETURN_IF_NOT_OK(lazy_->MakeRoomForRange(first, end, limit, &room));
  return room.rows() == 0 ? Status::Ok() : TouchRange(first, end, &room, limit);
}

Status Shard::TouchIds(const Request& request, LazyRows::Room* room, const WaitLimit& limit) const {
  int64_t since_check = 0;
  for (int64_t i = 0; i < request.num_ids;) {
    if (lazy_->IsTouched(request.row_ids[i] - first_row_)) {
      ++i;
      continue;
    }
    MV_RETURN_IF_NOT_OK(CheckAfterRow(&since_check, limit));
    const int64_t stripe = layout_.stripe_of(request.row_ids[i] - first_row_);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    // Readers see no change, so they need not read again.
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
    const int64_t end = std::min(request.num_ids, i + kMaxRowsPerLock);
    int64_t touched = 0;
    for (; i < end; ++i) {
      const int64_t row = request.row_ids[i] - first_row_;
      if (layout_.stripe_of(row) != stripe) break;
      touched += lazy_->Touch(row) ? 1 : 0;
    }
    room->Count(touched);
  }
  return Status::Ok();
}

Status Shard::TouchRange(int64_t first, int64_t end, LazyRows::Room* room,
                         const WaitLimit& limit) const {
  int64_t since_check = 0;
  for (int64_t row = lazy_->NextUntouched(first, end); row < end;) {
    MV_RETURN_IF_NOT_OK(CheckAfterRow(&since_check, limit));
    const int64_t stripe = layout_.stripe_of(row);
    MV_RETURN_IF_NOT_OK(TakeStripe(stripe, limit));
    const StripeGuard<kReading> holding(storage_.lock(stripe), *storage_.version());
    const int64_t stripe_end = std::min(end, layout_.end_row(stripe));
    int64_t touched = 0;
    for (; row < stripe_end; row = lazy_->NextUntouched(row, stripe_end)) {
      touched += lazy_->Touch(row) ? 1 : 0;
    }
    room->Count(touched);
    since_check += touched;
    row = lazy_->NextUntouched(stripe_end, end);
  }
  return Status::Ok();
}

}  // namespace multiverso
