// A shard in plain memory, on which several ranks operate as threads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "memory/segment.h"
#include "numbers/make_updater.h"
#include "shard/shard.h"
#include "support/calls.h"
#include "support/status.h"

namespace multiverso::testing {

template <class T>
constexpr DType DTypeOf() {
  if (std::is_same_v<T, float>) return DType::kFloat32;
  if (std::is_same_v<T, double>) return DType::kFloat64;
  return sizeof(T) == 4 ? DType::kInt32 : DType::kInt64;
}

// The memory of one shard of `rows` x `columns`.
template <class T>
class MemoryShard {
 public:
  // With an initializer, the rows are lazy.
  MemoryShard(int64_t rows, int64_t columns, UpdaterKind kind = UpdaterKind::kAdd,
              const InitializerSpec& initializer = InitializerSpec(), int64_t max_bytes = 0)
      : layout_(rows, columns * static_cast<int64_t>(sizeof(T))),
        columns_(columns),
        kind_(kind),
        initializer_(initializer),
        max_bytes_(max_bytes) {
    const int64_t slots = ValueOf(MakeUpdater(kind, DTypeOf<T>()))->state_slots(1);
    storage_ = ValueOf(ShardStorage::Plan(layout_, layout_.row_bytes(), slots, StepCells(),
                                          /*row_state_bytes=*/0, initializer.kind != 0));
    segment_ = ValueOf(Segment::CreatePrivate(storage_.segment_bytes()));
    storage_.Attach(segment_.data());
  }

  // Returns the shard as the given local rank sees it, as part of a table from `first_row` on.
  Shard For(int local_rank, int64_t first_row = 0) const {
    std::unique_ptr<const LazyRows> lazy;
    if (initializer_.kind != 0) {
      lazy = std::make_unique<LazyRows>(layout_, columns_, storage_,
                                        Initializer(initializer_, DTypeOf<T>()), first_row,
                                        max_bytes_);
    }
    return Shard(ShardValues(layout_, columns_, DTypeOf<T>(), storage_,
                             ValueOf(MakeUpdater(kind_, DTypeOf<T>())), first_row, std::move(lazy)),
                 ShardUser{local_rank, &probe});
  }

  const StripeLayout& layout() const { return layout_; }
  RobustLock* lock(int64_t stripe) const { return storage_.lock(stripe); }
  Hyper* hyper() const { return storage_.hyper(); }
  int64_t touched() const { return storage_.touch_counts()->touched.load(); }
  int64_t rows_in_use() const { return storage_.touch_counts()->rows_in_use.load(); }
  const T* values() const { return reinterpret_cast<const T*>(storage_.parameters()); }

  FakeProbe probe;  // by which the shards decide whether the holder of a lock is alive

 private:
  StripeLayout layout_;
  int64_t columns_;
  UpdaterKind kind_;
  InitializerSpec initializer_;
  int64_t max_bytes_;
  ShardStorage storage_;
  Segment segment_;
};

}  // namespace multiverso::testing
