// Staging: where the workers of a sync round put their deltas for the others to sum.
#ifndef MULTIVERSO_CONSISTENCY_STAGING_H_
#define MULTIVERSO_CONSISTENCY_STAGING_H_

#include <atomic>
#include <cstdint>

#include "base/dtype.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// The shape of what is staged.
struct StagedShape {
  StripeLayout layout;
  int64_t columns = 1;
  DType dtype = DType::kFloat32;

  int64_t element_bytes() const { return SizeOf(dtype); }
};

// What a worker staged for one round.
struct StagedAdd {
  int32_t is_rows;  // some rows, by ascending id without duplicates; else the whole table
  int32_t buffer;   // of the worker's buffers
  int64_t count;    // of rows
  // The worker's own block is missing, so that only it can sum that. Atomic because others look at
  // it before they know that they are not too late for the round.
  std::atomic<int32_t> keeps_own;
};

// In the table's shared memory; each worker writes its own part. Sparse: a worker that gets after
// each add touches one of its buffers, and one of few rows touches little of it.
class Staging {
 public:
  // How many adds a worker can make before the first of them is summed.
  static constexpr int kBuffers = 4;

  // MemoryError if the address space does not suffice.
  static bool BytesFor(const StagedShape& shape, int workers, int64_t* bytes);

  Staging(char* base, const StagedShape& shape, int workers);

  StagedAdd* add_of(int worker, uint64_t round) const;
  char* values(int worker, int buffer) const;
  int64_t* row_ids(int worker, int buffer) const;

  // Fills a buffer with rows in any order, with duplicates: sorted, and with the duplicates summed
  // in the order given. The number of different rows.
  int64_t StageRows(int worker, int buffer, const int64_t* ids, int64_t count, const void* delta);

 private:
  char* base_;
  StagedShape shape_;
  int workers_;
  int64_t buffer_bytes_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_STAGING_H_
