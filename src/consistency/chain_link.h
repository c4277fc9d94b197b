// ChainLink: carries pieces of sums between a node's leader and its neighbors in the chain. The
// chain consists of the leaders of the nodes that have workers (round_chain.h).
#ifndef MULTIVERSO_CONSISTENCY_CHAIN_LINK_H_
#define MULTIVERSO_CONSISTENCY_CHAIN_LINK_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "consistency/chain_piece.h"
#include "transport/messenger.h"

namespace multiverso {

// One thread at a time uses a link. No function but the destructor waits for messages.
class ChainLink {
 public:
  enum Side { kPrevious = 0, kNext = 1 };

  // Connects this rank with the ranks `previous` and `next`, which are -1 beyond the chain's ends.
  // No other messages between these ranks may use `tag`. A piece has room for `piece_room` bytes.
  ChainLink(Messenger* messenger, int previous, int next, int tag, int64_t piece_room);
  ~ChainLink();
  ChainLink(const ChainLink&) = delete;
  ChainLink& operator=(const ChainLink&) = delete;

  bool has(Side side) const { return neighbors_[side].rank >= 0; }
  int rank(Side side) const { return neighbors_[side].rank; }

  // Receives from that side. Sets *piece to the next piece, or to null if none has arrived.
  Status Take(Side from, std::unique_ptr<ChainPiece>* piece);
  // Returns whether fewer than kWindow pieces are in flight to that side.
  bool CanSend(Side to) const { return neighbors_[to].sends.size() < kWindow; }
  // Begins to send a piece, without a check of the window. Advance recycles the piece later.
  Status Send(Side to, std::unique_ptr<ChainPiece> piece);
  // Advances the sends in flight, and recycles the pieces whose sends are complete.
  Status Advance();
  bool AllSent() const { return neighbors_[0].sends.empty() && neighbors_[1].sends.empty(); }

  // Returns memory for a piece. Recycled pieces are reused, so that sums rarely allocate memory.
  std::unique_ptr<ChainPiece> NewPiece();
  void Recycle(std::unique_ptr<ChainPiece> piece) { free_pieces_.push_back(std::move(piece)); }

 private:
  // The most pieces in flight to each side, and from it. Several pieces keep the network busy.
  static constexpr size_t kWindow = 4;

  struct InFlightPiece {
    std::unique_ptr<ChainPiece> piece;
    Messenger::Ticket ticket;
  };
  struct Neighbor {
    int rank = -1;
    std::deque<InFlightPiece> receives;  // in the order in which pieces arrive
    std::list<InFlightPiece> sends;
  };

  Messenger* messenger_;
  int tag_;
  int64_t piece_room_;
  Neighbor neighbors_[2];
  std::vector<std::unique_ptr<ChainPiece>> free_pieces_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_LINK_H_
