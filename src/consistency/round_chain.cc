#include "consistency/round_chain.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace multiverso {
namespace {

constexpr uint32_t kMagic = 0x4d564348;
// A piece is large enough for full speed, and small enough to stay in the receiver's cache.
constexpr int64_t kPieceBytes = int64_t{256} << 10;
// The number of elements applied at a time, so that they stay in the first-level cache.
constexpr int64_t kElementsAtATime = 4096;
// The number of pieces passed on before the leader polls other tables, so that no table waits long.
constexpr int kPiecesPerPoll = 8;

SegmentGrid GridOf(const StagedShape& shape) {
  constexpr auto listed = static_cast<int64_t>(sizeof(ListedSegment));
  return SegmentGrid(shape.layout.rows(), shape.columns, shape.element_bytes(),
                     std::min(kPieceBytes, shape.layout.bytes() + shape.layout.rows() * listed));
}

// Returns the leader that is `step` places after this rank in the chain, or -1 beyond its ends.
int NeighborOf(const RankContext& context, int step) {
  const std::vector<int> chain = context.members().worker_leaders();
  const auto me =
      std::find(chain.begin(), chain.end(), context.members().rank()) - chain.begin() + step;
  return me < 0 || me >= static_cast<int64_t>(chain.size()) ? -1 : chain[static_cast<size_t>(me)];
}

}  // namespace

RoundChain::RoundChain(int64_t table, const StagedShape& shape, ReplicaMemory memory,
                       WorkerClocks* clocks, Shard* shard, RankContext* context)
    : table_(table),
      dtype_(shape.dtype),
      grid_(GridOf(shape)),
      memory_(std::move(memory)),
      clocks_(clocks),
      shard_(shard),
      link_(context->control_channel()->messenger(), NeighborOf(*context, -1),
            NeighborOf(*context, 1), kFirstChainTag + static_cast<int>(table % kTableChains),
            ChainPiece::RoomFor(grid_.piece_bytes())),
      sum_(grid_, shape.dtype),
      scratch_(static_cast<size_t>(kElementsAtATime * shape.element_bytes())) {}

Status RoundChain::Poll(bool* any) {
  for (int i = 0; i < kPiecesPerPoll; ++i) {
    bool moved = false;
    MV_RETURN_IF_NOT_OK(link_.Advance());
    MV_RETURN_IF_NOT_OK(StepDown(&moved));
    MV_RETURN_IF_NOT_OK(StepUp(&moved));
    if (!moved) break;
    *any = true;
  }
  return Status::Ok();
}

Status RoundChain::PollTotals() {
  for (bool moved = true; moved;) {
    moved = false;
    MV_RETURN_IF_NOT_OK(link_.Advance());
    MV_RETURN_IF_NOT_OK(StepUp(&moved));
  }
  return Status::Ok();
}

bool RoundChain::Open() {
  if (!clocks_->AllHereHavePassed(summed_)) return false;
  std::vector<Contribution> contributions;
  for (const int worker : clocks_->here()) {
    if (clocks_->adds(worker) <= summed_) continue;  // the worker had finished before the round
    const int local_index = memory_.local_index_of(worker);
    const StagedAdd* const add = memory_.staging().add_of(local_index, summed_);
    Contribution contribution;
    contribution.is_rows = add->is_rows != 0;
    contribution.values = memory_.staging().values(local_index, add->buffer);
    contribution.row_ids = memory_.staging().row_ids(local_index, add->buffer);
    contribution.count = add->count;
    contributions.push_back(contribution);
  }
  expects_ = link_.has(ChainLink::kPrevious) && !(is_end_known_ && summed_ >= end_);
  contributes_ = !contributions.empty();
  if (!expects_ && !contributes_) return false;
  sum_.Begin(std::move(contributions));
  next_ = 0;
  return true;
}

Status RoundChain::StepDown(bool* any) {
  if (!is_open_ && !Open()) {
    if (is_closing_ && link_.has(ChainLink::kPrevious) && !is_end_known_ && input_ == nullptr) {
      MV_RETURN_IF_NOT_OK(TakeInput(any));
    }
    return AnnounceEnd(any);
  }
  is_open_ = true;
  const bool is_last = !link_.has(ChainLink::kNext);
  const auto to = is_last ? ChainLink::kPrevious : ChainLink::kNext;
  if (link_.has(to) && !link_.CanSend(to)) return Status::Ok();
  if (expects_ && input_ == nullptr) {
    bool has_arrived = false;
    MV_RETURN_IF_NOT_OK(TakeInput(&has_arrived));
    *any = *any || has_arrived;
    if (input_ == nullptr) return Status::Ok();
  }
  std::unique_ptr<ChainPiece> piece = MakePiece();
  next_ = piece->header()->end;
  *any = true;
  MV_RETURN_IF_NOT_OK(is_last ? PassBack(std::move(piece))
                              : link_.Send(ChainLink::kNext, std::move(piece)));
  if (next_ < grid_.segments()) return Status::Ok();
  is_open_ = false;
  next_ = 0;
  ++summed_;
  memory_.words()->summed.store(summed_, std::memory_order_release);
  clocks_->Wake();
  return Status::Ok();
}

Status RoundChain::TakeInput(bool* has_arrived) {
  // The next piece must belong to round summed_, or announce the end before that round.
  MV_RETURN_IF_NOT_OK(link_.Take(ChainLink::kPrevious, &input_));
  if (input_ == nullptr) return Status::Ok();
  *has_arrived = true;
  MV_RETURN_IF_NOT_OK(Check(*input_, ChainLink::kPrevious, summed_, next_));
  if (input_->header()->is_end == 0) return Status::Ok();
  is_end_known_ = true;
  end_ = summed_;
  is_open_ = false;  // Open then reopens the round without the previous node
  link_.Recycle(std::move(input_));
  return Status::Ok();
}

bool RoundChain::NothingMoreFromHere() const {
  return std::all_of(clocks_->here().begin(), clocks_->here().end(), [&](int worker) {
    // has_finished is read first, because a worker's clock no longer changes after it finishes.
    return (is_closing_ || clocks_->has_finished(worker)) && clocks_->adds(worker) <= summed_;
  });
}

Status RoundChain::AnnounceEnd(bool* any) {
  if (end_announced_ || !NothingMoreFromHere()) return Status::Ok();
  if (link_.has(ChainLink::kPrevious) && !is_end_known_) return Status::Ok();
  end_announced_ = true;
  *any = true;
  const bool is_last = !link_.has(ChainLink::kNext);
  is_closed_ = is_last;
  std::unique_ptr<ChainPiece> piece = link_.NewPiece();
  *piece->header() = PieceHeader{kMagic, 0, 1, 0, table_, summed_, 0, 0, 0};
  piece->bytes = sizeof(PieceHeader);
  return link_.Send(is_last ? ChainLink::kPrevious : ChainLink::kNext, std::move(piece));
}

std::unique_ptr<ChainPiece> RoundChain::MakePiece() {
  std::unique_ptr<ChainPiece> piece;
  if (input_ != nullptr && sum_.CanAddTo(*input_)) {
    piece = std::move(input_);
    sum_.AddTo(piece.get());
    return piece;
  }
  piece = link_.NewPiece();
  PieceHeader* const header = piece->header();
  header->magic = kMagic;
  header->table = table_;
  header->round = summed_;
  const int64_t end = input_ == nullptr ? grid_.segments() : input_->header()->end;
  sum_.Make(input_.get(), next_, end, piece.get());
  if (input_ != nullptr && header->end == end) link_.Recycle(std::move(input_));
  return piece;
}

Status RoundChain::StepUp(bool* any) {
  if (!link_.has(ChainLink::kNext)) return Status::Ok();
  if (link_.has(ChainLink::kPrevious) && !link_.CanSend(ChainLink::kPrevious)) return Status::Ok();
  // A node that has announced its end learns of further rounds only from the pieces that arrive.
  const bool is_due = applied_ < summed_ || is_open_ || end_announced_;
  if (!is_due || is_closed_) return Status::Ok();
  std::unique_ptr<ChainPiece> piece;
  MV_RETURN_IF_NOT_OK(link_.Take(ChainLink::kNext, &piece));
  if (piece == nullptr) return Status::Ok();
  *any = true;
  MV_RETURN_IF_NOT_OK(Check(*piece, ChainLink::kNext, applied_, next_to_apply_));
  if (piece->header()->is_end == 0) return PassBack(std::move(piece));
  is_closed_ = true;
  if (link_.has(ChainLink::kPrevious)) return link_.Send(ChainLink::kPrevious, std::move(piece));
  link_.Recycle(std::move(piece));
  return Status::Ok();
}

Status RoundChain::PassBack(std::unique_ptr<ChainPiece> piece) {
  // `total` stays valid after Send, because the link keeps a piece at least until Advance.
  const ChainPiece* const total = piece.get();
  if (!link_.has(ChainLink::kPrevious)) {
    Apply(*total);
    link_.Recycle(std::move(piece));
    return Status::Ok();
  }
  MV_RETURN_IF_NOT_OK(link_.Send(ChainLink::kPrevious, std::move(piece)));
  Apply(*total);
  return Status::Ok();
}

void RoundChain::Apply(const ChainPiece& piece) {
  const PieceHeader& header = *piece.header();
  if (header.first == 0) {
    memory_.words()->begun.store(applied_ + 1, std::memory_order_relaxed);
    // A reader that sees a change of this round must also see `begun`, so that it copies again.
    std::atomic_thread_fence(std::memory_order_release);
  }
  if (header.is_listed == 0) {
    ApplyRange(grid_.Element(header.first), grid_.Elements(header.first, header.end), header.terms,
               piece.values());
  } else {
    const char* values = piece.values();
    for (int64_t i = 0; i < header.count; ++i) {
      const int64_t segment = piece.listed()[i].at();
      ApplyRange(grid_.Element(segment), grid_.Elements(segment, segment + 1),
                 piece.listed()[i].terms, values);
      values += grid_.Bytes(segment, segment + 1);
    }
  }
  next_to_apply_ = header.end;
  if (next_to_apply_ < grid_.segments()) return;
  next_to_apply_ = 0;
  ++applied_;
  memory_.words()->applied.store(applied_, std::memory_order_release);
  clocks_->Wake();
}

void RoundChain::ApplyRange(int64_t first, int64_t count, int64_t terms, const char* values) {
  const int64_t element_bytes = SizeOf(dtype_);
  for (int64_t done = 0; done < count; done += kElementsAtATime) {
    shard_->Apply(first + done, values + done * element_bytes, terms, nullptr,
                  std::min(kElementsAtATime, count - done), scratch_.data());
  }
}

Status RoundChain::Check(const ChainPiece& piece, ChainLink::Side from, uint64_t round,
                         int64_t first) const {
  const auto header_bytes = static_cast<int64_t>(sizeof(PieceHeader));
  const PieceHeader& header = *piece.header();
  const auto is_sound = [&] {
    if (piece.bytes < header_bytes || header.magic != kMagic || header.table != table_ ||
        header.round != round) {
      return false;
    }
    if (header.is_end != 0) return first == 0;
    if (header.first != first || header.end <= first || header.end > grid_.segments()) return false;
    if (header.is_listed == 0) {
      return header.count == 0 && header.end <= grid_.EndOfPiece(first) &&
             piece.bytes == header_bytes + grid_.Bytes(first, header.end);
    }
    constexpr auto listed_bytes = static_cast<int64_t>(sizeof(ListedSegment));
    const int64_t room = (piece.bytes - header_bytes) / listed_bytes;
    if (header.count < 0 || header.count > room) return false;
    int64_t bytes = header_bytes + header.count * listed_bytes;
    int64_t least = first;
    for (int64_t i = 0; i < header.count; ++i) {
      const int64_t segment = piece.listed()[i].at();
      if (segment < least || segment >= header.end) return false;
      bytes += grid_.Bytes(segment, segment + 1);
      least = segment + 1;
    }
    return piece.bytes == bytes;
  };
  if (is_sound()) return Status::Ok();
  return Status(Code::kTransport,
                StrCat("rank ", link_.rank(from), " sent ", piece.bytes,
                       " bytes that are not a valid piece of ", clocks_->RoundName(round)));
}

}  // namespace multiverso
