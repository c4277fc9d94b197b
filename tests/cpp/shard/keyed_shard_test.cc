// Calls on a shard of a hash table that have to wait for a stripe, and are then continued.
#include "shard/keyed_shard.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <utility>

#include "memory/segment.h"
#include "numbers/make_updater.h"
#include "support/calls.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kStripes = 2;
constexpr int64_t kKeys = 20;

KeyPolicy PolicyOf(Eviction evict, int32_t admit) {
  KeyPolicy policy;
  policy.capacity = 1;
  policy.evict = static_cast<int32_t>(evict);
  policy.admit = admit;
  return policy;
}

class ShardOfKeys : public ::testing::Test {
 protected:
  explicit ShardOfKeys(const KeyPolicy& policy) : policy_(policy) {
    storage_ = ValueOf(ShardStorage::Plan(layout_, layout_.row_bytes(), 0, StepCells(), 0,
                                          /*tracks_rows=*/true, BytesOfKeys(kStripes, policy_)));
    segment_ = ValueOf(Segment::CreatePrivate(storage_.segment_bytes()));
    storage_.Attach(segment_.data());
    auto rows = std::make_unique<LazyRows>(Rows());
    auto keys = std::make_unique<KeyIndex>(storage_.key_index(), kStripes, 0, kStripes, policy_,
                                           rows.get());
    ShardValues values(layout_, 1, DType::kFloat32, storage_,
                       ValueOf(MakeUpdater(UpdaterKind::kAdd, DType::kFloat32)), 0, std::move(rows),
                       keys.get());
    shard_ =
        std::make_unique<KeyedShard>(std::move(values), ShardUser{0, &probe_}, std::move(keys));
    std::iota(keys_.begin(), keys_.end(), 100);
  }

  LazyRows Rows() const {
    InitializerSpec sevens;
    sevens.kind = static_cast<int32_t>(InitializerKind::kConstant);
    sevens.first = 7;
    return LazyRows(layout_, 1, storage_, Initializer(sevens, DType::kFloat32), 0, 0);
  }

  // A get of all keys, which gives rows to those that are admitted.
  Request Fetch() {
    Request fetch = Request::GetRows(keys_.data(), kKeys, values_.data());
    fetch.kind = RequestKind::kFetchKeys;
    return fetch;
  }

  Request Add() {
    Request add = Request::AddRows(keys_.data(), kKeys, deltas_.data());
    add.kind = RequestKind::kAddKeys;
    return add;
  }

  // Makes a call while other ranks hold the stripes, one after the other. Returns how often the
  // call has returned pending.
  int RunRepeatedly(const Request& request) {
    Progress progress;
    Status status = Status::Pending();
    int times = 0;
    // The call has done some keys before the first whose stripe another rank holds.
    for (int64_t stripe = kStripes; stripe-- > 0;) {
      EXPECT_TRUE(storage_.lock(stripe)->TryTake(9));
      for (int i = 0; i < 2 && status.pending(); ++i) {
        status = shard_->Run(request, &progress, WithoutWaiting());
        times += status.pending() ? 1 : 0;
      }
      storage_.lock(stripe)->Release();
    }
    if (status.pending()) status = shard_->Run(request, &progress, WithoutWaiting());
    EXPECT_TRUE(IsOk(status));
    return times;
  }

  FakeProbe probe_;
  KeyPolicy policy_;
  StripeLayout layout_{kStripes * KeyIndex::kRowsPerStripe, 4, KeyIndex::kRowsPerStripe * 4};
  ShardStorage storage_;
  Segment segment_;
  std::unique_ptr<KeyedShard> shard_;
  std::vector<int64_t> keys_ = std::vector<int64_t>(kKeys);
  std::vector<float> values_ = std::vector<float>(kKeys);
  std::vector<float> deltas_ = std::vector<float>(kKeys, 1);
};

// A key gets a row with its second get.
class AdmittingShard : public ShardOfKeys {
 protected:
  AdmittingShard() : ShardOfKeys(PolicyOf(Eviction::kNone, 2)) {}
};

// A full table removes the key with the fewest uses.
class EvictingShard : public ShardOfKeys {
 protected:
  EvictingShard() : ShardOfKeys(PolicyOf(Eviction::kLeastFrequent, 1)) {}

  void ExpectUses(uint32_t uses) {
    for (const int64_t key : keys_) {
      const int64_t row = shard_->keys().Find(key);
      ASSERT_GE(row, 0);
      EXPECT_EQ(shard_->keys().Save(row).uses, uses) << "key " << key;
    }
  }
};

TEST_F(AdmittingShard, CountsAGetOnceThatIsContinued) {
  for (const bool is_admitted : {false, true}) {
    SCOPED_TRACE(is_admitted);
    EXPECT_GT(RunRepeatedly(Fetch()), 0);
    const KeyCounts counts = shard_->keys().Counts();
    EXPECT_EQ(counts.misses, is_admitted ? 2 * kKeys : kKeys);
    EXPECT_EQ(counts.hits, 0);
    EXPECT_EQ(counts.rejections, kKeys);
    EXPECT_EQ(counts.admissions, is_admitted ? kKeys : 0);
    EXPECT_EQ(values_, std::vector<float>(kKeys, 7));
    for (const int64_t key : keys_) EXPECT_EQ(shard_->keys().Find(key) >= 0, is_admitted);
  }
}

TEST_F(EvictingShard, CountsTheUsesOfARepeatedAddOnce) {
  EXPECT_GT(RunRepeatedly(Add()), 0);
  ExpectUses(1);
  EXPECT_GT(RunRepeatedly(Add()), 0);
  ExpectUses(2);
  (void)RunRepeatedly(Fetch());  // which reads rows without their locks
  ExpectUses(3);
  EXPECT_EQ(values_, std::vector<float>(kKeys, 9));
}

#if !defined(__SANITIZE_THREAD__)  // There, ReadUnlocked always fails.
// An add has found the row of its key without the lock of the stripe and waits for it, while
// another rank gives the row to another key.
TEST_F(EvictingShard, AddsToNoRowThatAnotherKeyHasTaken) {
  const LazyRows rows = Rows();
  KeyIndex index(storage_.key_index(), kStripes, 0, kStripes, policy_, &rows);
  const int64_t key = keys_[0];
  const int64_t stripe = index.StripeOf(key);
  int64_t other = key + 1;
  while (index.StripeOf(other) != stripe) ++other;
  Request add = Request::AddRows(&key, 1, deltas_.data());
  add.kind = RequestKind::kAddKeys;
  ASSERT_TRUE(IsOk(Call(shard_.get(), add)));
  const int64_t row = index.Find(key);

  StripeLock* const lock = storage_.lock(stripe);
  ASSERT_TRUE(lock->TryTake(9));
  const uint32_t held = lock->word.load();
  std::thread adding([&] { EXPECT_TRUE(IsOk(Call(shard_.get(), add))); });
  while (lock->word.load() == held) std::this_thread::yield();  // until the add waits
  lock->BeginWrite(*storage_.version());
  index.Unlink(stripe, row);
  rows.Untouch(row);
  bool is_reused = false;
  EXPECT_EQ(index.TakeRow(stripe, other, &is_reused), row);
  EXPECT_TRUE(is_reused);
  (void)rows.Touch(row, other);
  index.Link(stripe, row);
  lock->EndWrite();
  lock->Release();
  adding.join();

  EXPECT_EQ(index.Find(key), KeyIndex::kNone);
  Request get = Request::GetRows(&other, 1, values_.data());
  get.kind = RequestKind::kGetKeys;
  EXPECT_TRUE(IsOk(Call(shard_.get(), get)));
  EXPECT_EQ(values_[0], 7);
}
#endif

TEST_F(EvictingShard, CountsTheUsesOfAnAddOnceThatFollowsATouch) {
  EXPECT_TRUE(IsOk(Call(shard_.get(), Add())));
  Request touch = Request::TouchRows(keys_.data(), kKeys);
  touch.kind = RequestKind::kTouchKeys;
  EXPECT_TRUE(IsOk(Call(shard_.get(), touch)));
  EXPECT_TRUE(IsOk(Call(shard_.get(), Add())));
  ExpectUses(2);
}

TEST_F(EvictingShard, CountsTheUsesOfARepeatedGetOnceThatGivesRowsToKeys) {
  EXPECT_GT(RunRepeatedly(Fetch()), 0);
  ExpectUses(1);
}

}  // namespace
}  // namespace multiverso::testing
