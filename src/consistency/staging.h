// Staging: the memory in which the workers of a sync round store their deltas for others to sum.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/dtype.h"
#include "numbers/wire_format.h"
#include "shard/stripe_layout.h"
#include "sum/delta_source.h"

namespace multiverso {

// The shape of a staged delta.
struct StagedShape {
  StripeLayout layout;
  int64_t columns = 1;
  DType dtype = DType::kFloat32;
  // How partial sums and results travel between nodes.
  WireFormat sums = WireFormat::kFloat32;
  WireFormat results = WireFormat::kFloat32;

  int64_t element_bytes() const { return SizeOf(dtype); }
};

// Who sums the block of a table that a worker owns, for the parameters that all workers share.
enum class SummedBy : int32_t {
  kAnyWorker,
  kOwner,
  kOwnerAlone,  // nobody else can, since the owner's delta of this block is not staged
};

// The delta that a worker staged for one round. It begins a cache line, since a small round waits
// for each line that it fetches from another core.
struct alignas(64) StagedAdd {
  int32_t is_rows;  // if 1, distinct rows in ascending order; if 0, the whole table
  int32_t buffer;   // the index of the worker's buffer
  int64_t count;    // the number of rows, if is_rows
  // Atomic, because a late reader may read this while the worker sets it for a later round.
  std::atomic<SummedBy> own_block;
  // If not null, the delta of the whole table where the caller has it, which no other process can
  // read. So only the leader of a node lends one, while it waits in an add_get over several nodes.
  const char* lent;
  // Over several nodes, of each part of a delta of the whole table (JointStaging): 1 plus the
  // round, and in the lowest byte 1 plus the level of the sum in this worker's buffer, or 0 for
  // none.
  static constexpr int kParts = 16;
  std::atomic<uint64_t> parts[kParts];
};

// Lies in the table's shared memory. Each worker writes its own part, and over several nodes adds
// to the deltas of others (JointStaging). Most of the memory remains unused: a worker that gets
// after each add touches one of its buffers, and an add of few rows touches a small part of a
// buffer.
class Staging {
 public:
  // The number of buffers that receive copies of deltas, and so of adds that a worker can make
  // while none of them has been summed.
  static constexpr int kCopies = 4;
  // The buffer that receives a copy while the others may not have read one that has been summed.
  static constexpr int kSpareBuffer = kCopies;
  // The buffer that receives no copies, because the worker itself writes its deltas there.
  static constexpr int kDeltaBuffer = kSpareBuffer + 1;
  static constexpr int kBuffers = kDeltaBuffer + 1;
  // The number of adds that are kept. One is left over, which a late reader may look at.
  static constexpr int kAdds = kBuffers + 1;

  // Sets *bytes to the size of the memory. Returns false if the address space is too small.
  static bool BytesFor(const StagedShape& shape, int workers, int64_t* bytes);

  Staging(char* base, const StagedShape& shape, int workers);

  StagedAdd* add_of(int worker, uint64_t round) const;
  char* values(int worker, int buffer) const;
  int64_t* row_ids(int worker, int buffer) const;

  // Returns the delta that worker number `worker`, whose index here is `index`, staged for `round`.
  DeltaSource SourceOf(int index, int worker, uint64_t round) const;

  // Fills a buffer with the rows of a delta, whose ids may be unordered and repeat. The staged rows
  // are sorted, and duplicates are summed in the given order. Returns the number of distinct rows.
  int64_t StageRows(int worker, int buffer, const int64_t* ids, int64_t count,
                    const void* delta) const;

 private:
  char* base_;
  StagedShape shape_;
  int workers_;
  int64_t buffer_bytes_;
};

}  // namespace multiverso
