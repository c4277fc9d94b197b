// PieceLink: carries pieces of sums between the leaders of nodes.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "sum/sum_piece.h"
#include "transport/messenger.h"

namespace multiverso {

// One thread at a time uses a link. No function but the destructor waits for messages.
class PieceLink {
 public:
  using Piece = std::shared_ptr<SumPiece>;

  // No other messages may use `tag`.
  PieceLink(Messenger* messenger, int tag);
  ~PieceLink();
  PieceLink(const PieceLink&) = delete;
  PieceLink& operator=(const PieceLink&) = delete;

  int rank() const { return messenger_->rank(); }
  // Returns a piece with undefined content, whose memory is reused after its last owner.
  Piece New();
  // Returns whether fewer than kWindow pieces are in flight to that rank.
  bool CanSend(int rank) const;
  // Begins to send a piece, without a check of the window.
  Status Send(int rank, Piece piece);
  // Advances the sends in flight.
  Status Advance();
  bool AllSent() const { return sends_.empty(); }
  // Sets *piece to the next piece, or to null if it has not arrived. Pieces of one sender arrive in
  // the order in which they were sent.
  Status Take(Piece* piece);

 private:
  // The most pieces in flight to a rank: while one travels, the next one is made.
  static constexpr int kWindow = 2;

  struct Departure {
    int rank;
    Piece piece;
    Messenger::Ticket ticket;
  };
  struct Arrival {
    Piece piece;
    Messenger::Ticket ticket;
  };

  Messenger* messenger_;
  int tag_;
  std::list<Departure> sends_;
  std::vector<int> in_flight_;   // by rank
  std::list<Arrival> arrivals_;  // in order; a list, since the transport writes to its elements
  Piece next_;                   // for the next message that arrives
  std::shared_ptr<std::vector<std::unique_ptr<SumPiece>>> unused_;
};

}  // namespace multiverso
