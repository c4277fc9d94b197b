// Calls on a shard of a hash table that have to wait for a stripe, and are then continued.
#include "shard/keyed_shard.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "memory/segment.h"
#include "shard/make_updater.h"
#include "support/calls.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kStripes = 2;
constexpr int64_t kKeys = 20;

// A shard in which a key gets a row with its second get.
class AdmittingShard : public ::testing::Test {
 protected:
  AdmittingShard() {
    policy_.capacity = 1;
    policy_.admit = 2;
    storage_ =
        ValueOf(ShardStorage::Plan(layout_, layout_.row_bytes(), 0, StepCells(), 0,
                                   /*tracks_rows=*/true, KeyIndex::BytesOf(kStripes, policy_)));
    segment_ = ValueOf(Segment::CreatePrivate(storage_.segment_bytes()));
    storage_.Attach(segment_.data());
    InitializerSpec sevens;
    sevens.kind = static_cast<int32_t>(InitializerKind::kConstant);
    sevens.first = 7;
    auto rows = std::make_unique<LazyRows>(layout_, 1, storage_,
                                           Initializer(sevens, DType::kFloat32), 0, 0);
    auto keys = std::make_unique<KeyIndex>(storage_.key_index(), kStripes, 0, kStripes, policy_,
                                           rows.get());
    ShardValues values(layout_, 1, DType::kFloat32, storage_,
                       ValueOf(MakeUpdater(UpdaterKind::kAdd, DType::kFloat32)), 0, std::move(rows),
                       keys.get());
    shard_ =
        std::make_unique<KeyedShard>(std::move(values), ShardUser{0, &probe_}, std::move(keys));
    std::iota(keys_.begin(), keys_.end(), 100);
  }

  // A get of all keys, which gives rows to those that are admitted.
  Request Fetch() {
    Request fetch = Request::GetRows(keys_.data(), kKeys, values_.data());
    fetch.kind = RequestKind::kFetchKeys;
    return fetch;
  }

  FakeProbe probe_;
  KeyPolicy policy_;
  StripeLayout layout_{kStripes * KeyIndex::kRowsPerStripe, 4, KeyIndex::kRowsPerStripe * 4};
  ShardStorage storage_;
  Segment segment_;
  std::unique_ptr<KeyedShard> shard_;
  std::vector<int64_t> keys_ = std::vector<int64_t>(kKeys);
  std::vector<float> values_ = std::vector<float>(kKeys);
};

TEST_F(AdmittingShard, CountsAGetOnceThatIsContinued) {
  for (const bool is_admitted : {false, true}) {
    SCOPED_TRACE(is_admitted);
    Progress progress;
    // Some keys are counted before the first that another rank's stripe keeps waiting.
    for (int64_t stripe = kStripes; stripe-- > 0;) {
      ASSERT_TRUE(storage_.lock(stripe)->TryTake(9));
      ASSERT_TRUE(shard_->Run(Fetch(), &progress, WithoutWaiting()).pending());
      ASSERT_TRUE(shard_->Run(Fetch(), &progress, WithoutWaiting()).pending());
      storage_.lock(stripe)->Leave();
    }
    ASSERT_TRUE(shard_->Run(Fetch(), &progress, WithoutWaiting()).ok());
    const KeyCounts counts = shard_->keys().Counts();
    EXPECT_EQ(counts.misses, is_admitted ? 2 * kKeys : kKeys);
    EXPECT_EQ(counts.hits, 0);
    EXPECT_EQ(counts.rejections, kKeys);
    EXPECT_EQ(counts.admissions, is_admitted ? kKeys : 0);
    EXPECT_EQ(values_, std::vector<float>(kKeys, 7));
    for (const int64_t key : keys_) EXPECT_EQ(shard_->keys().Find(key) >= 0, is_admitted);
  }
}

}  // namespace
}  // namespace multiverso::testing
