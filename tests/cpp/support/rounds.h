// A table in memory whose calls go through a consistency mode, for workers that are threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "consistency/make_consistency.h"
#include "support/memory_shard.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {

constexpr ModeOptions kSync{Mode::kSync, 0};

inline ModeOptions StaleBy(int64_t rounds) { return ModeOptions{Mode::kStale, rounds}; }

// One worker's calls, all of which must succeed.
template <class T>
class RoundsWorker {
 public:
  explicit RoundsWorker(Shard shard) : shard_(std::move(shard)) {}

  Shard* shard() { return &shard_; }
  Consistency* consistency() const { return consistency_.get(); }
  void Set(std::unique_ptr<Consistency> consistency) { consistency_ = std::move(consistency); }

  void Add(const std::vector<T>& delta) {
    ASSERT_TRUE(IsOk(Call(consistency(), Request::Add(delta.data()))));
  }
  std::vector<T> Get() {
    std::vector<T> out(static_cast<size_t>(shard_.layout().bytes()) / sizeof(T));
    EXPECT_TRUE(IsOk(Call(consistency(), Request::Get(out.data()))));
    return out;
  }

 private:
  Shard shard_;
  std::unique_ptr<Consistency> consistency_;
};

// All workers map the table at the same addresses, so that a sanitizer detects races between them.
template <class T>
class RoundsTable {
 public:
  RoundsTable(const Roles& roles, const ModeOptions& mode, int64_t size)
      : mode_(mode), ranks_(roles), shard_(size, 1), shape_{shard_.layout(), 1, DTypeOf<T>()} {
    const int64_t bytes = ValueOf(ConsistencyBytes(mode, shape_, ranks_[0]->members()));
    segment_ = ValueOf(Segment::CreatePrivate(std::max<int64_t>(bytes, 1)));
  }

  std::unique_ptr<RoundsWorker<T>> For(int rank) {
    auto worker = std::make_unique<RoundsWorker<T>>(shard_.For(rank));
    worker->Set(
        MakeConsistency(mode_, shape_, 0, segment_.data(), worker->shard(), ranks_[rank], "w"));
    return worker;
  }

 private:
  ModeOptions mode_;
  RankContexts ranks_;
  MemoryShard<T> shard_;
  StagedShape shape_;
  Segment segment_;
};

}  // namespace multiverso::testing
