#include "consistency/chain_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "shard/kernels.h"

namespace multiverso {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

}  // namespace

// ---- Sources ------------------------------------------------------------------------------------

ChainSum::Source::Source(const SegmentGrid& grid, const Contribution& contribution)
    : grid_(&grid), values_(contribution.values) {
  count_ = grid.segments();
  if (!contribution.is_rows) return;
  row_ids_ = contribution.row_ids;
  count_ = contribution.count;
}

ChainSum::Source::Source(const SegmentGrid& grid, const ChainPiece& piece)
    : grid_(&grid), values_(piece.values()) {
  if (piece.header()->is_listed != 0) {
    listed_ = piece.listed();
    count_ = piece.header()->count;
  } else {
    index_ = piece.header()->first;
    count_ = piece.header()->end;
    terms_ = piece.header()->terms;
  }
}

int64_t ChainSum::Source::segment() const {
  if (index_ >= count_) return kNone;
  if (listed_ != nullptr) return listed_[index_].at();
  return row_ids_ == nullptr ? index_ : row_ids_[index_] * grid_->per_row() + part_;
}

void ChainSum::Source::Step() {
  const int64_t at = segment();
  values_ += grid_->Bytes(at, at + 1);
  if (row_ids_ != nullptr && ++part_ < grid_->per_row()) return;
  part_ = 0;
  ++index_;
}

// ---- Sums ---------------------------------------------------------------------------------------

void ChainSum::Begin(std::vector<Contribution> contributions) {
  contributions_ = std::move(contributions);
  has_rows_ = std::any_of(contributions_.begin(), contributions_.end(),
                          [](const Contribution& term) { return term.is_rows; });
  sources_.clear();
  for (const Contribution& term : contributions_) sources_.emplace_back(grid_, term);
  is_continued_ = false;
}

void ChainSum::AddValues(char* sum, const char* values, int64_t elements) const {
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    kernels::Add(reinterpret_cast<T*>(sum), reinterpret_cast<const T*>(values), elements);
  });
}

bool ChainSum::CanAddTo(const ChainPiece& piece) const {
  return contributions_.empty() || (!has_rows_ && piece.header()->is_listed == 0);
}

void ChainSum::AddTo(ChainPiece* piece) const {
  PieceHeader* const header = piece->header();
  for (const Contribution& contribution : contributions_) {
    AddValues(piece->values(), contribution.values + grid_.Bytes(0, header->first),
              grid_.Elements(header->first, header->end));
    ++header->terms;
  }
}

void ChainSum::Make(const ChainPiece* received, int64_t first, int64_t end, ChainPiece* out) {
  out->header()->first = first;
  if (received == nullptr && !has_rows_) {
    MakeWhole(first, std::min(end, grid_.EndOfPiece(first)), out);
    return;
  }
  if (received != nullptr && !is_continued_) sources_.emplace(sources_.begin(), grid_, *received);
  MakeListed(end, out);
  is_continued_ = received != nullptr && out->header()->end < end;
  if (received != nullptr && !is_continued_) sources_.erase(sources_.begin());
}

void ChainSum::MakeWhole(int64_t first, int64_t end, ChainPiece* out) const {
  PieceHeader* const header = out->header();
  header->end = end;
  header->is_listed = 0;
  header->count = 0;
  header->terms = static_cast<uint32_t>(contributions_.size());
  const int64_t bytes = grid_.Bytes(first, end);
  out->bytes = static_cast<int64_t>(sizeof(PieceHeader)) + bytes;
  std::memcpy(out->values(), contributions_[0].values + grid_.Bytes(0, first),
              static_cast<size_t>(bytes));
  for (size_t i = 1; i < contributions_.size(); ++i) {
    AddValues(out->values(), contributions_[i].values + grid_.Bytes(0, first),
              grid_.Elements(first, end));
  }
}

void ChainSum::MakeListed(int64_t end, ChainPiece* out) {
  // The list of segments is made first, because the values begin after that list.
  scan_ = sources_;
  const auto next = [this] {
    int64_t segment = kNone;
    for (const Source& source : scan_) segment = std::min(segment, source.segment());
    return segment;
  };
  int64_t used = 0;
  int64_t count = 0;
  int64_t stop = end;
  for (int64_t at = next(); at < end; at = next()) {
    const int64_t bytes = static_cast<int64_t>(sizeof(ListedSegment)) + grid_.Bytes(at, at + 1);
    if (count > 0 && used + bytes > grid_.piece_bytes()) {
      stop = at;
      break;
    }
    used += bytes;
    ListedSegment* const listed = out->listed() + count++;
    *listed = ListedSegment{static_cast<uint64_t>(at), 0};
    for (Source& source : scan_) {
      if (source.segment() != at) continue;
      listed->terms += static_cast<uint64_t>(source.terms());
      source.Step();
    }
  }
  out->header()->end = stop;
  out->header()->is_listed = 1;
  out->header()->count = count;
  out->bytes = static_cast<int64_t>(sizeof(PieceHeader)) + used;
  char* to = out->values();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = out->listed()[i].at();
    const int64_t elements = grid_.Elements(at, at + 1);
    bool begun = false;
    for (Source& source : sources_) {
      if (source.segment() != at) continue;
      if (begun) {
        AddValues(to, source.values(), elements);
      } else {
        std::memcpy(to, source.values(), static_cast<size_t>(grid_.Bytes(at, at + 1)));
      }
      begun = true;
      source.Step();
    }
    to += grid_.Bytes(at, at + 1);
  }
}

}  // namespace multiverso
