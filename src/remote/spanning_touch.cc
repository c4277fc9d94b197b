#include "remote/spanning_touch.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "remote/distributed_call.h"

namespace multiverso {

std::unique_ptr<SpanningTouch> SpanningTouch::Make(TableShard* here, ShardService* service,
                                                   RankContext* rank) {
  if (!here->spec().is_lazy()) return nullptr;
  return std::unique_ptr<SpanningTouch>(new SpanningTouch(here, service, rank));
}

SpanningTouch::SpanningTouch(TableShard* here, ShardService* service, RankContext* rank)
    : here_(here), service_(service), rank_(rank) {
  // Rows lose their keys, so nothing is known about the rows of a hash table.
  if (here->spec().is_hash()) return;
  Result<Segment> known =
      Segment::CreatePrivate(0, DivideUp(here->spec().num_row, 8), PageSize::kSmall);
  if (known.ok()) known_ = std::move(known.value());
}

Status SpanningTouch::Run(const Request& touch, const WaitLimit& limit) const {
  return DistributedCall(here_, service_, rank_, touch).Run(limit);
}

std::atomic<uint8_t>& SpanningTouch::ByteOf(int64_t row) const {
  return reinterpret_cast<std::atomic<uint8_t>*>(known_.data())[row / 8];
}

Status SpanningTouch::Touch(const Request& add, const WaitLimit& limit) {
  if (knows_all_.load()) return Status::Ok();
  if (here_->spec().is_hash()) {
    Request touch = Request::TouchRows(add.row_ids, add.num_ids);
    touch.kind = RequestKind::kTouchKeys;
    return Run(touch, limit);
  }
  if (!HasIds(add.kind) && !add.IsPart()) {
    MV_RETURN_IF_NOT_OK(Run(Request::Touch(), limit));
    knows_all_.store(true);
    return Status::Ok();
  }
  const bool is_part = add.IsPart();
  const RowRange range =
      is_part ? RowsOfPart(add, here_->spec().num_col) : RowRange{0, add.num_ids};
  const bool has_bits = known_.data() != nullptr;
  const auto bit_of = [](int64_t row) { return static_cast<uint8_t>(1U << (row % 8)); };
  std::vector<int64_t> unknown;
  for (int64_t i = range.first; i < range.end; ++i) {
    const int64_t row = is_part ? i : add.row_ids[i];
    if (!has_bits || (ByteOf(row).load() & bit_of(row)) == 0) unknown.push_back(row);
  }
  if (unknown.empty()) return Status::Ok();
  MV_RETURN_IF_NOT_OK(
      Run(Request::TouchRows(unknown.data(), static_cast<int64_t>(unknown.size())), limit));
  if (!has_bits) return Status::Ok();
  for (const int64_t row : unknown) ByteOf(row).fetch_or(bit_of(row));
  return Status::Ok();
}

}  // namespace multiverso
