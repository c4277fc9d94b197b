#include "consistency/chain_link.h"

#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace multiverso {
namespace {

// How long the destructor waits for sends to complete. The receiving leaders poll, so it is
// much shorter unless one of them has ended.
constexpr auto kDrainTimeout = std::chrono::milliseconds(200);

// Converts a transport error to PeerLost, since MPI reports a rank's death by failing messages.
Status AsPeerLost(int rank, const Status& status) {
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
  const Instant give_up = Clock::now() + kDrainTimeout;
  while (Advance().ok() && !AllSent() && Clock::now() < give_up) std::this_thread::yield();
  for (Neighbor& side : sides_) {
    // The memory is leaked, because the transport may still read or write the memory.
    for (InFlightPiece& in_flight : side.receives) {
      if (!messenger_->Withdraw(&in_flight.ticket)) (void)in_flight.piece.release();  // NOLINT
    }
    for (InFlightPiece& in_flight : side.sends) (void)in_flight.piece.release();  // NOLINT
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
  Neighbor& side = sides_[from];
  piece->reset();
  while (side.receives.size() < kWindow) {
    side.receives.push_back(InFlightPiece{NewPiece(), {}});
    InFlightPiece& in_flight = side.receives.back();
    const Status posted = messenger_->Receive(side.rank, tag_, in_flight.piece->data(),
                                              in_flight.piece->room(), &in_flight.ticket);
    if (!posted.ok()) side.receives.pop_back();
    MV_RETURN_IF_NOT_OK(AsPeerLost(side.rank, posted));
  }
  InFlightPiece& first = side.receives.front();
  bool done = false;
  MV_RETURN_IF_NOT_OK(
      AsPeerLost(side.rank, messenger_->Test(&first.ticket, &done, &first.piece->bytes)));
  if (!done) return Status::Ok();
  *piece = std::move(first.piece);
  side.receives.pop_front();
  return Status::Ok();
}

Status ChainLink::Send(Side to, std::unique_ptr<ChainPiece> piece) {
  Neighbor& side = sides_[to];
  side.sends.push_back(InFlightPiece{std::move(piece), {}});
  InFlightPiece& in_flight = side.sends.back();
  const Status sent = messenger_->Send(side.rank, tag_, in_flight.piece->data(),
                                       in_flight.piece->bytes, &in_flight.ticket);
  if (!sent.ok()) side.sends.pop_back();
  return AsPeerLost(side.rank, sent);
}

Status ChainLink::Advance() {
  for (Neighbor& side : sides_) {
    for (auto in_flight = side.sends.begin(); in_flight != side.sends.end();) {
      bool done = false;
      int64_t bytes = 0;
      MV_RETURN_IF_NOT_OK(
          AsPeerLost(side.rank, messenger_->Test(&in_flight->ticket, &done, &bytes)));
      if (!done) {
        ++in_flight;
        continue;
      }
      free_.push_back(std::move(in_flight->piece));
      in_flight = side.sends.erase(in_flight);
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
