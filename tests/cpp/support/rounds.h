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
#include "support/threads.h"

namespace multiverso::testing {

constexpr ModeOptions kSync{Mode::kSync, 0};

inline ModeOptions StaleBy(int64_t rounds) { return ModeOptions{Mode::kStale, rounds}; }

using RowIds = std::vector<int64_t>;

// One worker's calls, all of which must succeed. If `waits` is false, a call never waits but
// returns pending, and is repeated until it is complete.
template <class T>
class RoundsWorker {
 public:
  RoundsWorker(Shard shard, bool waits) : shard_(std::move(shard)), waits_(waits) {}

  Shard* shard() { return &shard_; }
  Consistency* consistency() const { return consistency_.get(); }
  void Set(std::unique_ptr<Consistency> consistency) { consistency_ = std::move(consistency); }

  void Add(const std::vector<T>& delta) { RunToEnd(Request::Add(delta.data())); }
  void AddRows(const RowIds& ids, const std::vector<T>& delta) { RunToEnd(AddRowsOf(ids, delta)); }
  std::vector<T> Get() {
    std::vector<T> out(Size());
    RunToEnd(Request::Get(out.data()));
    return out;
  }
  std::vector<T> GetRows(const RowIds& ids) {
    std::vector<T> out(ids.size() * static_cast<size_t>(shard_.layout().row_bytes()) / sizeof(T));
    RunToEnd(GetRowsOf(ids, &out));
    return out;
  }
  // With `in_place` the result overwrites the delta.
  std::vector<T> AddGet(std::vector<T> delta, bool in_place = false) {
    std::vector<T> out(Size());
    RunToEnd(Request::AddGet(delta.data(), in_place ? delta.data() : out.data()));
    return in_place ? delta : out;
  }

 private:
  size_t Size() const { return static_cast<size_t>(shard_.layout().bytes()) / sizeof(T); }

  void RunToEnd(const Request& request) {
    const Instant deadline = Clock::now() + kPatience;
    Progress progress;
    Status status;
    do {
      const Instant slice_end = waits_ ? Instant::max() : Instant::min();
      status = consistency_->Run(request, &progress, WaitLimit{deadline, slice_end});
      if (!waits_) std::this_thread::yield();
    } while (status.pending());
    ASSERT_TRUE(IsOk(status));
  }

  Shard shard_;
  std::unique_ptr<Consistency> consistency_;
  bool waits_;
};

// All workers map the table at the same addresses, so that a sanitizer detects races between them.
template <class T>
class RoundsTable {
 public:
  RoundsTable(const Roles& roles, const ModeOptions& mode, int64_t rows, int64_t columns = 1,
              UpdaterKind kind = UpdaterKind::kAdd)
      : mode_(mode),
        ranks_(roles),
        shard_(rows, columns, kind),
        shape_{shard_.layout(), columns, DTypeOf<T>()} {
    const int64_t bytes = ValueOf(ConsistencyBytes(mode, shape_, ranks_[0]->members()));
    segment_ = ValueOf(Segment::CreatePrivate(std::max<int64_t>(bytes, 1)));
  }

  std::unique_ptr<RoundsWorker<T>> For(int rank, bool waits = true) {
    auto worker = std::make_unique<RoundsWorker<T>>(shard_.For(rank), waits);
    worker->Set(
        MakeConsistency(mode_, shape_, 0, segment_.data(), worker->shard(), ranks_[rank], "w"));
    return worker;
  }

  RankContexts& ranks() { return ranks_; }
  const StagedShape& shape() const { return shape_; }
  Hyper* hyper() const { return shard_.hyper(); }

 private:
  ModeOptions mode_;
  RankContexts ranks_;
  MemoryShard<T> shard_;
  StagedShape shape_;
  Segment segment_;
};

}  // namespace multiverso::testing
