#include "consistency/chain_link.h"

#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The destructor's longest wait for its sends. It is usually short, since the receivers poll.
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

ChainLink::ChainLink(Messenger* messenger, int previous, int next, int tag, int64_t piece_room)
    : messenger_(messenger), tag_(tag), piece_room_(piece_room) {
  neighbors_[kPrevious].rank = previous;
  neighbors_[kNext].rank = next;
}

ChainLink::~ChainLink() {
  const Instant give_up = Clock::now() + kDrainTimeout;
  while (Advance().ok() && !AllSent() && Clock::now() < give_up) std::this_thread::yield();
  for (Neighbor& neighbor : neighbors_) {
    // The memory is leaked, because the transport may still read or write the memory.
    for (InFlightPiece& receiving : neighbor.receives) {
      if (!messenger_->Withdraw(&receiving.ticket)) (void)receiving.piece.release();  // NOLINT
    }
    for (InFlightPiece& sending : neighbor.sends) (void)sending.piece.release();  // NOLINT
  }
}

std::unique_ptr<ChainPiece> ChainLink::NewPiece() {
  if (free_pieces_.empty()) return std::make_unique<ChainPiece>(piece_room_);
  std::unique_ptr<ChainPiece> piece = std::move(free_pieces_.back());
  free_pieces_.pop_back();
  *piece->header() = PieceHeader();
  return piece;
}

Status ChainLink::Take(Side from, std::unique_ptr<ChainPiece>* piece) {
  Neighbor& neighbor = neighbors_[from];
  piece->reset();
  while (neighbor.receives.size() < kWindow) {
    neighbor.receives.push_back(InFlightPiece{NewPiece(), {}});
    InFlightPiece& receiving = neighbor.receives.back();
    const Status posted = messenger_->Receive(neighbor.rank, tag_, receiving.piece->data(),
                                              receiving.piece->room(), &receiving.ticket);
    if (!posted.ok()) neighbor.receives.pop_back();
    MV_RETURN_IF_NOT_OK(AsPeerLost(neighbor.rank, posted));
  }
  InFlightPiece& first = neighbor.receives.front();
  bool done = false;
  MV_RETURN_IF_NOT_OK(
      AsPeerLost(neighbor.rank, messenger_->Test(&first.ticket, &done, &first.piece->bytes)));
  if (!done) return Status::Ok();
  *piece = std::move(first.piece);
  neighbor.receives.pop_front();
  return Status::Ok();
}

Status ChainLink::Send(Side to, std::unique_ptr<ChainPiece> piece) {
  Neighbor& neighbor = neighbors_[to];
  neighbor.sends.push_back(InFlightPiece{std::move(piece), {}});
  InFlightPiece& sending = neighbor.sends.back();
  const Status sent = messenger_->Send(neighbor.rank, tag_, sending.piece->data(),
                                       sending.piece->bytes, &sending.ticket);
  if (!sent.ok()) neighbor.sends.pop_back();
  return AsPeerLost(neighbor.rank, sent);
}

Status ChainLink::Advance() {
  for (Neighbor& neighbor : neighbors_) {
    for (auto sending = neighbor.sends.begin(); sending != neighbor.sends.end();) {
      bool done = false;
      int64_t bytes = 0;
      MV_RETURN_IF_NOT_OK(
          AsPeerLost(neighbor.rank, messenger_->Test(&sending->ticket, &done, &bytes)));
      if (done) {
        free_pieces_.push_back(std::move(sending->piece));
        sending = neighbor.sends.erase(sending);
      } else {
        ++sending;
      }
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
