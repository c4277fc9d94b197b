// ChainLink: carries pieces of sums between a node's leader and its neighbors in the chain, the
// leaders of the previous and the next node.
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

// One thread at a time uses a link. No function waits for messages.
class ChainLink {
 public:
  enum Side { kPrevious = 0, kNext = 1 };

  // Connects this rank with the ranks `previous` and `next`, which are -1 beyond the chain's ends.
  // No other messages between these ranks may use `tag`. Pieces take up to `room` bytes.
  ChainLink(Messenger* messenger, int previous, int next, int tag, int64_t room);
  ~ChainLink();
  ChainLink(const ChainLink&) = delete;
  ChainLink& operator=(const ChainLink&) = delete;

  bool has(Side side) const { return sides_[side].rank >= 0; }
  int rank(Side side) const { return sides_[side].rank; }

  // Takes the next piece from that side. Sets *piece to null if no piece has arrived.
  Status Take(Side from, std::unique_ptr<ChainPiece>* piece);
  // Returns whether few enough pieces are in flight to that side.
  bool CanSend(Side to) const { return sides_[to].sends.size() < kWindow; }
  Status Send(Side to, std::unique_ptr<ChainPiece> piece);
  // Advances the sends in flight, and recycles the pieces whose sends are complete.
  Status Advance();
  bool AllSent() const { return sides_[0].sends.empty() && sides_[1].sends.empty(); }

  // Returns memory for a piece. Recycled pieces are reused, so that sums rarely allocate memory.
  std::unique_ptr<ChainPiece> NewPiece();
  void Recycle(std::unique_ptr<ChainPiece> piece) { free_.push_back(std::move(piece)); }

 private:
  // The largest number of pieces in flight to each side, and from each side. Several pieces keep
  // the network busy.
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
  int64_t room_;
  Neighbor sides_[2];
  std::vector<std::unique_ptr<ChainPiece>> free_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_LINK_H_
