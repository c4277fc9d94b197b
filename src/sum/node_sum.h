// NodeSum: sums over the workers of several nodes.
//
// The values are divided into parts, each of which belongs to one node. For each part the nodes
// form a tree with that node as its root. In a round, every node adds the deltas of its workers and
// the partial sums of its children, as far as they form subtrees of the canonical sum
// (pairwise_sum.h), and sends these partial sums to its parent. The root has the whole sum and
// applies it. The result travels down the tree to the nodes that keep a copy of the values.
//
// Large values have a part per node, whose tree is a star: each node sends to each root directly,
// so all links are busy and the busiest node sends 2 (n - 1) / n of the values. Small values are
// one part, so the nodes send 2 (n - 1) messages instead of 2 n (n - 1). With many nodes its tree
// is binomial, so no node handles more than O(log n) messages. Sums and results travel in pieces. A
// node adds a piece as soon as its children have sent theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sum/pairwise_sum.h"
#include "sum/piece_link.h"
#include "sum/round_sum.h"
#include "sum/sum_plan.h"
#include "sum/sum_sink.h"

namespace multiverso {

// Belongs to the leader of a node. One thread at a time uses a sum. No function waits.
class NodeSum {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  // What this node's workers add. By default, none ends early, and this node copies all results.
  class Terms {
   public:
    virtual ~Terms() = default;
    // Sets *sources to the deltas of this node's workers in that round, in worker order, for the
    // segments from `first` on. Returns the end of the segments of which they have values, or
    // `first` if a worker of this node may still add to the round.
    virtual int64_t Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) = 0;
    // Returns whether it is known that no worker in the range adds to that round or a later one.
    virtual bool HaveFinished(const WorkerRange& /*workers*/, uint64_t /*round*/) const {
      return false;
    }
    // Returns the first round whose result this node copies, or kNever. Called for each round in
    // turn; the answer may change only to that round or to a later one.
    virtual uint64_t CopiedFrom(uint64_t /*round*/) { return 0; }
  };
  // How values travel. A result that does not travel as float32 is the encoded difference between
  // the new values and the copy, which is the same on all nodes: the root adds what it has sent to
  // a copy of its own. So the next difference includes what rounding has taken from this one, and
  // all workers read the same values. The first result that a node copies is not encoded.
  struct Formats {
    WireFormat sums = WireFormat::kFloat32;
    WireFormat results = WireFormat::kFloat32;  // if not float32, all nodes copy
  };

  // `terms` and `link` must outlive the sum. `number` identifies the sum in messages.
  NodeSum(int64_t number, const SumPlan& plan, int node, const SegmentGrid& grid,
          const Reduction& reduction, const Formats& formats, Terms* terms, SumSink sink,
          PieceLink* link);

  // Takes a message that has arrived. Fails if no node can have sent it.
  Status Receive(PieceLink::Piece message);
  // Makes progress. Sets *any if there was work.
  Status Poll(bool* any);
  // Reads a whole delta from `to`, where it has been copied, in place of `from`.
  void ReadFrom(const char* to, const char* from);

  // Return the number of rounds that need no more deltas of this node's workers; whose sums have
  // been applied to this node's part; and whose results this node has received from all others.
  uint64_t summed() const;
  uint64_t applied() const;
  uint64_t copied() const;
  // Returns whether all sums are complete here if each worker makes that number of adds.
  bool HasSummed(const std::vector<uint64_t>& adds) const;
  // Returns whether the sums and results of the first `segments` segments of each part, or of all
  // that it has, are complete here in round 0.
  bool HasSummedParts(int64_t segments) const;
  // Returns whether a sum has begun here whose other terms have not arrived.
  bool IsAwaitingPieces() const;
  // Returns the leaders from which the next pieces are missing.
  std::vector<int> Awaited() const;

 private:
  // A child's partial sum of a part.
  struct Input {
    int node;
    WorkerRange workers;
    std::deque<PieceLink::Piece> pieces;
    bool contributes = false;  // to the open round
    bool is_read = false;      // whether a source reads the first piece
    size_t source = 0;         // the index of that source
  };
  // The partial sum of a part over a range of workers, or, at the root, the sum.
  struct Stream {
    size_t part;
    WorkerRange workers;
    std::vector<Input> inputs;
    uint64_t round = 0;
    bool is_open = false;
    int64_t next = 0;  // the next segment of the open round
    int64_t end = 0;   // of the segments of which the sources have values
    std::vector<DeltaSource> sources;
  };
  struct Child {
    int node;
    uint64_t copied_from = kNever;
  };
  // This node's place in the tree of a part.
  struct Place {
    int parent = SumPlan::kNoNode;  // of the root
    std::vector<Child> children;
    // The following members describe the results that have come, if this node is not the root.
    uint64_t copied = 0;  // number of rounds whose results have been stored
    uint64_t round = 0;   // the round of the next piece, unless it begins a round
    int64_t next = 0;     // the first segment of the next piece
  };

  bool is_root(size_t part) const { return places_[part].parent == SumPlan::kNoNode; }
  // Adds this node's place in a part. `worker_nodes` are those of the plan, and `here` are the
  // workers of this node.
  void AddPart(size_t part, const std::vector<int>& worker_nodes, const std::vector<int>& here);
  // Returns the children that copy the result of that round.
  std::vector<int> Copying(size_t part, uint64_t round) const;
  Status SendTo(const std::vector<int>& nodes, const PieceLink::Piece& piece);
  // Returns the piece with encoded values, or the piece itself if the format cannot represent them.
  PieceLink::Piece Encoded(const PieceLink::Piece& piece, WireFormat format, const uint64_t* seed);
  // Sends a piece of a sum at random rounding, which has no bias.
  Status SendSumPiece(const std::vector<int>& nodes, const PieceLink::Piece& piece);
  // Sends new values, or their difference from the copy unless `is_new`.
  Status SendResult(const std::vector<int>& nodes, const PieceLink::Piece& piece, bool is_new);
  // Sets the copied values to those of a piece, or adds these if they are a difference.
  void UpdateCopy(SumPiece* piece);
  Status Invalid(const SumPiece& piece) const;
  // Stores a piece of a result, and sends on the message with which it came.
  Status StoreAndForward(const PieceLink::Piece& piece, const PieceLink::Piece& message);
  // Prepares the sum of the next segments. Returns false if it cannot begin yet.
  bool Open(Stream* stream);
  // Makes the next piece of a sum, if all terms have arrived.
  Status Step(Stream* stream, bool* any);
  PieceHeader HeaderOf(const Stream& stream, int32_t worker) const;
  // Send the next piece of a partial sum, or apply the sum to the next segments and send the
  // result, at most to segment `end` - 1.
  Status SendSum(Stream* stream, const std::vector<int>& receivers, int64_t end);
  Status ApplySum(Stream* stream, const std::vector<int>& receivers, int64_t end);

  int64_t number_;
  SumPlan plan_;
  int node_;
  Formats formats_;
  Terms* terms_;
  SumSink sink_;
  PieceLink* link_;
  RoundSum sum_;
  std::vector<Place> places_;  // by part
  std::vector<Stream> streams_;
  // The stream and the input of a partial sum, by part and first worker.
  std::map<std::pair<size_t, int>, std::pair<size_t, size_t>> inputs_;
  uint64_t copied_from_ = kNever;  // the last answer of Terms::CopiedFrom
};

}  // namespace multiverso
