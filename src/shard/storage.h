// ShardStorage: where everything of a shard lies inside its segment.
//
//   hyper-parameters | one lock per stripe | parameters | updater state
//
// All of it is valid when zero-filled, so creating a shard of any size touches no page of it.
#ifndef MULTIVERSO_SHARD_STORAGE_H_
#define MULTIVERSO_SHARD_STORAGE_H_

#include <cstdint>

#include "base/status.h"
#include "memory/segment.h"
#include "shard/stripe_layout.h"
#include "shard/stripe_lock.h"
#include "shard/updater.h"

namespace multiverso {

class ShardStorage {
 public:
  ShardStorage() = default;
  // Of a shard of `layout` with `state_slots` further copies of its size. MemoryError if the sum
  // does not fit 64 bits.
  static Result<ShardStorage> Plan(const StripeLayout& layout, int64_t state_slots);

  // Bytes the segment needs.
  int64_t segment_bytes() const { return segment_bytes_; }

  // Lays the storage over a segment of at least segment_bytes().
  void Attach(char* base);

  Hyper* hyper() const { return hyper_; }
  StripeLock* lock(int64_t stripe) const { return locks_ + stripe; }
  char* parameters() const { return parameters_; }
  char* state() const { return state_; }
  int64_t state_stride() const { return state_stride_; }

 private:
  int64_t segment_bytes_ = 0;
  int64_t parameters_offset_ = 0;
  int64_t state_offset_ = 0;
  int64_t state_stride_ = 0;
  Hyper* hyper_ = nullptr;
  StripeLock* locks_ = nullptr;
  char* parameters_ = nullptr;
  char* state_ = nullptr;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_STORAGE_H_
