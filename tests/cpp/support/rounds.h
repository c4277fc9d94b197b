// The memory of a table whose calls go through rounds, which several workers call as threads.
#ifndef MULTIVERSO_TESTS_SUPPORT_ROUNDS_H_
#define MULTIVERSO_TESTS_SUPPORT_ROUNDS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "consistency/make_consistency.h"
#include "support/limits.h"
#include "support/memory_shard.h"
#include "support/node_groups.h"
#include "support/threads.h"

namespace multiverso::testing {

constexpr ModeOptions kSync{Mode::kSync, 0};

inline ModeOptions StaleBy(int64_t rounds) { return ModeOptions{Mode::kStale, rounds}; }

using RowIds = std::vector<int64_t>;

// One worker's calls; each has to succeed. With `waits` off, a call that has to wait comes back
// pending at once and is made again, as often as it takes.
template <class T>
class RoundsWorker {
 public:
  RoundsWorker(Shard shard, bool waits) : shard_(std::move(shard)), waits_(waits) {}

  Shard* shard() { return &shard_; }
  Consistency* calls() const { return calls_.get(); }
  void Have(std::unique_ptr<Consistency> calls) { calls_ = std::move(calls); }

  void Add(const std::vector<T>& delta) { Make(Request::Add(delta.data())); }
  void AddRows(const RowIds& ids, const std::vector<T>& delta) {
    Make(Request::AddRows(ids.data(), static_cast<int64_t>(ids.size()), delta.data()));
  }
  std::vector<T> Get() {
    std::vector<T> out(Size());
    Make(Request::Get(out.data()));
    return out;
  }
  std::vector<T> GetRows(const RowIds& ids) {
    std::vector<T> out(ids.size() * static_cast<size_t>(shard_.layout().row_bytes()) / sizeof(T));
    Make(Request::GetRows(ids.data(), static_cast<int64_t>(ids.size()), out.data()));
    return out;
  }
  // Into a result of its own, or over the delta.
  std::vector<T> AddGet(std::vector<T> delta, bool in_place = false) {
    std::vector<T> out(Size());
    Make(Request::AddGet(delta.data(), in_place ? delta.data() : out.data()));
    return in_place ? delta : out;
  }

 private:
  size_t Size() const { return static_cast<size_t>(shard_.layout().bytes()) / sizeof(T); }

  void Make(const Request& request) {
    const Instant until = Clock::now() + kPatience;
    Progress progress;
    Status status;
    do {
      const Instant slice_end = waits_ ? Instant::max() : Instant::min();
      status = calls_->Run(request, &progress, WaitLimit{until, slice_end});
      if (!waits_) std::this_thread::yield();
    } while (status.pending());
    ASSERT_TRUE(status.ok()) << status.text();
  }

  Shard shard_;
  std::unique_ptr<Consistency> calls_;
  bool waits_;
};

// The table. All workers see it at the same addresses, so that a sanitizer sees who shares what.
template <class T>
class RoundsTable {
 public:
  RoundsTable(const Roles& roles, const ModeOptions& mode, int64_t rows, int64_t columns = 1,
              UpdaterKind kind = UpdaterKind::kAdd)
      : mode_(mode),
        groups_(roles),
        shard_(rows, columns, kind),
        shape_{shard_.layout(), columns, DTypeOf<T>()} {
    const auto is_worker = [](Role role) { return role != Role::kServer; };
    const auto workers = static_cast<int>(std::count_if(roles.begin(), roles.end(), is_worker));
    const auto bytes = ConsistencyBytes(mode, shape_, workers, workers);
    EXPECT_TRUE(bytes.ok()) << bytes.status().text();
    segment_ = std::move(Segment::CreatePrivate(std::max<int64_t>(bytes.value(), 1)).value());
  }

  // The table as that rank has it.
  std::unique_ptr<RoundsWorker<T>> For(int rank, bool waits = true) {
    auto worker = std::make_unique<RoundsWorker<T>>(shard_.For(rank), waits);
    worker->Have(
        MakeConsistency(mode_, shape_, segment_.data(), worker->shard(), groups_[rank], "w"));
    return worker;
  }

  NodeGroups& groups() { return groups_; }
  const StagedShape& shape() const { return shape_; }
  Hyper* hyper() const { return shard_.hyper(); }

 private:
  ModeOptions mode_;
  NodeGroups groups_;
  MemoryShard<T> shard_;
  StagedShape shape_;
  Segment segment_;
};

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_ROUNDS_H_
