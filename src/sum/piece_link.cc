#include "sum/piece_link.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The destructor's longest wait for its sends. It is usually short, since the receivers poll.
constexpr auto kDrainTimeout = std::chrono::milliseconds(200);
// The most pieces that arrive at the same time.
constexpr size_t kMostArrivals = 16;
// The most pieces that wait to be used again.
constexpr size_t kMostUnused = 32;
constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of a message; larger ones are refused

// Converts a transport error to PeerLost, since MPI reports a rank's death by failing messages.
Status AsPeerLost(int rank, const Status& status) {
  if (status.code() != Code::kTransport) return status;
  PeerFault peer;
  peer.rank = rank;
  return Status(Code::kPeerLost, StrCat("rank ", rank, " cannot be reached: ", status.text()))
      .About(std::move(peer));
}

}  // namespace

PieceLink::PieceLink(Messenger* messenger, int tag)
    : messenger_(messenger),
      tag_(tag),
      in_flight_(static_cast<size_t>(messenger->size()), 0),
      unused_(std::make_shared<std::vector<std::unique_ptr<SumPiece>>>()) {}

PieceLink::~PieceLink() {
  (void)PollUntil(Clock::now() + kDrainTimeout, Backoff(std::chrono::milliseconds(1)), [this] {
    MV_RETURN_IF_NOT_OK(Advance());
    return AllSent() ? Status::Ok() : Status::Pending();
  });
  // The memory of messages in flight is leaked, because the transport may still use it.
  for (Departure& send : sends_) (void)new Piece(std::move(send.piece));  // NOLINT
  for (Arrival& arrival : arrivals_) {
    if (messenger_->Withdraw(&arrival.ticket) == Messenger::Withdrawn::kArriving) {
      (void)new Piece(std::move(arrival.piece));  // NOLINT
    }
  }
}

PieceLink::Piece PieceLink::New() {
  std::unique_ptr<SumPiece> piece;
  if (unused_->empty()) {
    piece = std::make_unique<SumPiece>();
  } else {
    piece = std::move(unused_->back());
    unused_->pop_back();
  }
  return Piece(piece.release(), [unused = unused_](SumPiece* used) {
    std::unique_ptr<SumPiece> owned(used);
    if (unused->size() < kMostUnused) unused->push_back(std::move(owned));
  });
}

bool PieceLink::CanSend(int rank) const { return in_flight_[static_cast<size_t>(rank)] < kWindow; }

Status PieceLink::Send(int rank, Piece piece) {
  sends_.push_back(Departure{rank, std::move(piece), {}});
  Departure& send = sends_.back();
  const Status sent =
      messenger_->Send(rank, tag_, send.piece->bytes.data(),
                       static_cast<int64_t>(send.piece->bytes.size()), &send.ticket);
  if (sent.ok()) {
    ++in_flight_[static_cast<size_t>(rank)];
  } else {
    sends_.pop_back();
  }
  return AsPeerLost(rank, sent);
}

Status PieceLink::Advance() {
  Status failure;
  for (auto send = sends_.begin(); send != sends_.end();) {
    bool done = false;
    int64_t bytes = 0;
    const Status sent = AsPeerLost(send->rank, messenger_->Test(&send->ticket, &done, &bytes));
    if (failure.ok()) failure = sent;
    if (done) --in_flight_[static_cast<size_t>(send->rank)];
    send = done ? sends_.erase(send) : std::next(send);
  }
  return failure;
}

Status PieceLink::Take(Piece* piece) {
  piece->reset();
  for (bool got = true; got && arrivals_.size() < kMostArrivals;) {
    if (next_ == nullptr) next_ = New();
    Messenger::Ticket ticket;
    MV_RETURN_IF_NOT_OK(
        messenger_->Accept(Messenger::kAnyRank, tag_, kMaxBytes, &next_->bytes, &ticket, &got));
    if (got) arrivals_.push_back(Arrival{std::move(next_), ticket});
  }
  if (arrivals_.empty()) return Status::Ok();
  Arrival& first = arrivals_.front();
  bool done = !first.ticket.is_open;
  int64_t bytes = 0;
  const Status received = done ? Status::Ok() : messenger_->Test(&first.ticket, &done, &bytes);
  if (!done) return received;
  if (received.ok()) *piece = std::move(first.piece);
  arrivals_.pop_front();
  return received;
}

}  // namespace multiverso
