#include "consistency/chain_link.h"

#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr auto kFarewell = std::chrono::milliseconds(200);

// Returns PeerLost for a transport error, since MPI reports a rank's death by failing messages.
Status With(int rank, const Status& status) {
  if (status.code() != Code::kTransport) return status;
  PeerFault peer;
  peer.rank = rank;
  return Status(Code::kPeerLost, StrCat("rank ", rank, " cannot be reached: ", status.text()))
      .About(std::move(peer));
}

}  // namespace

ChainLink::ChainLink(Messenger* messenger, int previous, int next, int tag, int64_t room)
    : messenger_(messenger), tag_(tag), room_(room) {
  sides_[kPrevious].rank = previous;
  sides_[kNext].rank = next;
}

ChainLink::~ChainLink() {
  // The receiving leaders poll, so this wait is short.
  const Instant until = Clock::now() + kFarewell;
  while (Advance().ok() && !AllSent() && Clock::now() < until) std::this_thread::yield();
  for (Neighbour& side : sides_) {
    // The memory is leaked, because the transport may still read or write the memory.
    for (InFlightRequest& parcel : side.receives) {
      if (!messenger_->Withdraw(&parcel.ticket)) (void)parcel.piece.release();  // NOLINT
    }
    for (InFlightRequest& parcel : side.sends) (void)parcel.piece.release();  // NOLINT
  }
}

std::unique_ptr<ChainPiece> ChainLink::NewPiece() {
  if (free_.empty()) return std::make_unique<ChainPiece>(room_);
  std::unique_ptr<ChainPiece> piece = std::move(free_.back());
  free_.pop_back();
  *piece->header() = PieceHeader();
  return piece;
}

Status ChainLink::Take(Side from, std::unique_ptr<ChainPiece>* piece) {
  Neighbour& side = sides_[from];
  piece->reset();
  while (side.receives.size() < kWindow) {
    side.receives.push_back(InFlightRequest{NewPiece(), {}});
    InFlightRequest& parcel = side.receives.back();
    const Status posted = messenger_->Receive(side.rank, tag_, parcel.piece->data(),
                                              parcel.piece->room(), &parcel.ticket);
    if (!posted.ok()) side.receives.pop_back();
    MV_RETURN_IF_NOT_OK(With(side.rank, posted));
  }
  InFlightRequest& first = side.receives.front();
  bool done = false;
  MV_RETURN_IF_NOT_OK(With(side.rank, messenger_->Test(&first.ticket, &done, &first.piece->bytes)));
  if (!done) return Status::Ok();
  *piece = std::move(first.piece);
  side.receives.pop_front();
  return Status::Ok();
}

Status ChainLink::Send(Side to, std::unique_ptr<ChainPiece> piece) {
  Neighbour& side = sides_[to];
  side.sends.push_back(InFlightRequest{std::move(piece), {}});
  InFlightRequest& parcel = side.sends.back();
  const Status sent =
      messenger_->Send(side.rank, tag_, parcel.piece->data(), parcel.piece->bytes, &parcel.ticket);
  if (!sent.ok()) side.sends.pop_back();
  return With(side.rank, sent);
}

Status ChainLink::Advance() {
  for (Neighbour& side : sides_) {
    for (auto parcel = side.sends.begin(); parcel != side.sends.end();) {
      bool done = false;
      int64_t bytes = 0;
      MV_RETURN_IF_NOT_OK(With(side.rank, messenger_->Test(&parcel->ticket, &done, &bytes)));
      if (!done) {
        ++parcel;
        continue;
      }
      free_.push_back(std::move(parcel->piece));
      parcel = side.sends.erase(parcel);
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
