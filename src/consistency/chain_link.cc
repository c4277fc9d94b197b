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
    for (InFlightPiece& receiving : side.receives) {
      if (!messenger_->Withdraw(&receiving.ticket)) (void)receiving.piece.release();  // NOLINT
    }
    for (InFlightPiece& sending : side.sends) (void)sending.piece.release();  // NOLINT
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
    InFlightPiece& receiving = side.receives.back();
    const Status posted = messenger_->Receive(side.rank, tag_, receiving.piece->data(),
                                              receiving.piece->room(), &receiving.ticket);
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
  InFlightPiece& sending = side.sends.back();
  const Status sent = messenger_->Send(side.rank, tag_, sending.piece->data(), sending.piece->bytes,
                                       &sending.ticket);
  if (!sent.ok()) side.sends.pop_back();
  return AsPeerLost(side.rank, sent);
}

Status ChainLink::Advance() {
  for (Neighbor& side : sides_) {
    for (auto sending = side.sends.begin(); sending != side.sends.end();) {
      bool done = false;
      int64_t bytes = 0;
      MV_RETURN_IF_NOT_OK(AsPeerLost(side.rank, messenger_->Test(&sending->ticket, &done, &bytes)));
      if (!done) {
        ++sending;
        continue;
      }
      free_.push_back(std::move(sending->piece));
      sending = side.sends.erase(sending);
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
