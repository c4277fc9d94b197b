#include "shard/key_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "memory/segment.h"
#include "shard/row_order.h"

namespace multiverso {
namespace {

KeyPolicy PolicyOf(Eviction evict, int32_t admit = 0) {
  KeyPolicy policy;
  policy.capacity = 1;
  policy.evict = static_cast<int32_t>(evict);
  policy.admit = admit;
  return policy;
}

// An index of two stripes with its rows, and the calls of Shard on both.
class Keys {
 public:
  explicit Keys(const KeyPolicy& policy = PolicyOf(Eviction::kNone))
      : layout_(kStripes * KeyIndex::kRowsPerStripe, 4, KeyIndex::kRowsPerStripe * 4),
        storage_(PlanOf(layout_, policy)),
        segment_(std::move(Segment::CreatePrivate(storage_.segment_bytes()).value())) {
    storage_.Attach(segment_.data());
    InitializerSpec zeros;
    zeros.kind = static_cast<int32_t>(InitializerKind::kZeros);
    rows_ =
        std::make_unique<LazyRows>(layout_, 1, storage_, Initializer(zeros, DType::kFloat32), 0, 0);
    index_ = std::make_unique<KeyIndex>(storage_.key_index(), kStripes, 0, kStripes, policy,
                                        rows_.get());
  }

  KeyIndex* index() { return index_.get(); }
  int64_t Insert(int64_t key) {
    bool is_reused = false;
    const int64_t row = index_->TakeRow(index_->StripeOf(key), key, &is_reused);
    if (row < 0) return row;
    EXPECT_EQ(is_reused, !used_.insert(row).second);
    EXPECT_TRUE(rows_->Touch(row, key));
    index_->Link(index_->StripeOf(key), row);
    return row;
  }
  void Remove(int64_t row) {
    index_->Unlink(row / KeyIndex::kRowsPerStripe, row);
    rows_->Untouch(row);
  }

  static constexpr int64_t kStripes = 2;

 private:
  static ShardStorage PlanOf(const StripeLayout& layout, const KeyPolicy& policy) {
    return ShardStorage::Plan(layout, 4, 0, StepCells(), 0, /*tracks_rows=*/true,
                              BytesOfKeys(kStripes, policy))
        .value();
  }

  StripeLayout layout_;
  ShardStorage storage_;
  Segment segment_;
  std::unique_ptr<LazyRows> rows_;
  std::unique_ptr<KeyIndex> index_;
  std::set<int64_t> used_;
};

TEST(KeyIndex, FindsTheKeysThatHaveRows) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    Keys keys;
    std::mt19937_64 random(seed);
    std::map<int64_t, int64_t> rows;
    std::vector<int64_t> all;
    for (int i = 0; i < 1500; ++i) all.push_back(static_cast<int64_t>(random()));
    for (int step = 0; step < 20'000; ++step) {
      const int64_t key = all[random() % all.size()];
      const auto found = rows.find(key);
      ASSERT_EQ(keys.index()->Find(key), found == rows.end() ? KeyIndex::kNone : found->second);
      if (found == rows.end()) {
        const int64_t row = keys.Insert(key);
        if (row < 0) continue;  // the stripe is full
        ASSERT_EQ(row / KeyIndex::kRowsPerStripe, keys.index()->StripeOf(key));
        ASSERT_EQ(keys.index()->KeyOf(row), key);
        rows[key] = row;
      } else if (step % 3 == 0) {
        keys.Remove(found->second);
        rows.erase(found);
      }
    }
    EXPECT_GT(rows.size(), 600U);
    for (int64_t stripe = 0; stripe < Keys::kStripes; ++stripe) keys.index()->Rebuild(stripe);
    for (const int64_t key : all) {
      const auto found = rows.find(key);
      ASSERT_EQ(keys.index()->Find(key), found == rows.end() ? KeyIndex::kNone : found->second);
    }
  }
}

TEST(KeyIndex, HoldsAsManyKeysAsAStripeHasRows) {
  Keys keys;
  int64_t inserted[Keys::kStripes] = {};
  for (int64_t key = 0; key < 3000; ++key) {
    inserted[keys.index()->StripeOf(key)] += keys.Insert(key) >= 0 ? 1 : 0;
  }
  for (const int64_t count : inserted) EXPECT_EQ(count, KeyIndex::kRowsPerStripe);
  EXPECT_EQ(keys.index()->Find(2999), KeyIndex::kNone);
}

TEST(KeyIndex, HasRoomForAllKeysThatAreExpectedInAStripe) {
  for (const int64_t capacity : {int64_t{1}, int64_t{512}, int64_t{513}, int64_t{200'000}}) {
    const int64_t stripes = KeyIndex::StripesFor(capacity, 3);
    EXPECT_EQ(stripes % 3, 0);
    std::vector<int64_t> counts(static_cast<size_t>(stripes));
    for (int64_t key = 0; key < capacity; ++key) {
      ++counts[static_cast<size_t>(StripeOfKey(key, stripes))];
    }
    EXPECT_LE(*std::max_element(counts.begin(), counts.end()), KeyIndex::kRowsPerStripe);
  }
}

TEST(KeyIndex, ChoosesTheKeyToEvict) {
  for (const Eviction evict : {Eviction::kLeastRecent, Eviction::kLeastFrequent}) {
    Keys keys(PolicyOf(evict));
    std::vector<int64_t> rows;
    for (int64_t key = 0; rows.size() < 10; ++key) {
      if (keys.index()->StripeOf(key) == 1) rows.push_back(keys.Insert(key));
    }
    EXPECT_EQ(keys.index()->VictimOf(0, 7), KeyIndex::kNone);
    for (const int64_t row : rows) keys.index()->CountUse(row, keys.index()->BeginCall());
    for (const size_t used : {0U, 1U, 2U, 4U, 5U, 6U, 7U, 8U, 9U}) {
      keys.index()->CountUse(rows[used], keys.index()->BeginCall());
    }
    EXPECT_EQ(keys.index()->VictimOf(1, 7), rows[3]);
    keys.Remove(rows[3]);
    // The others have been used equally often.
    if (evict == Eviction::kLeastRecent) {
      EXPECT_EQ(keys.index()->VictimOf(1, 7), rows[0]);
    }
  }
}

TEST(KeyIndex, EvictsEveryRowThatIsNotUsedAnyMore) {
  for (const Eviction evict : {Eviction::kLeastRecent, Eviction::kLeastFrequent}) {
    Keys keys(PolicyOf(evict));
    std::mt19937_64 random(1);
    std::vector<int64_t> old;
    const auto insert = [&] {
      for (;;) {
        const auto key = static_cast<int64_t>(random());
        if (keys.index()->StripeOf(key) != 0) continue;
        const int64_t row = keys.Insert(key);
        for (int i = 0; i < 20; ++i) keys.index()->CountUse(row, keys.index()->BeginCall());
        return key;
      }
    };
    for (int i = 0; i < 320; ++i) old.push_back(insert());
    for (int i = 0; i < 3000; ++i) {
      const int64_t victim = keys.index()->VictimOf(0, static_cast<int64_t>(random() & 0xFFFF));
      ASSERT_NE(victim, KeyIndex::kNone);
      keys.Remove(victim);
      (void)insert();
    }
    const auto is_kept = [&](int64_t key) { return keys.index()->Find(key) != KeyIndex::kNone; };
    EXPECT_EQ(std::count_if(old.begin(), old.end(), is_kept), 0);
  }
}

TEST(KeyIndex, AdmitsKeysAfterSomeGets) {
  for (const int32_t admit : {2, 4, 100}) {
    Keys keys(PolicyOf(Eviction::kNone, admit));
    for (const int64_t key : {5, 77}) {
      const int64_t stripe = keys.index()->StripeOf(key);
      for (int get = 1; get < admit; ++get) EXPECT_FALSE(keys.index()->Admit(stripe, key));
      EXPECT_TRUE(keys.index()->Admit(stripe, key));
    }
    // Few of the keys that occur once are taken for others.
    int64_t admitted = 0;
    for (int64_t key = 1000; key < 301'000; ++key) {
      admitted += keys.index()->Admit(keys.index()->StripeOf(key), key) ? 1 : 0;
    }
    EXPECT_LT(admitted, 15'000) << admit;
  }
}

TEST(RowOrder, OfKeysMakesRepeatedKeysAdjacentAndAscendsByStripe) {
  std::mt19937_64 random(4);
  for (const size_t count : {0U, 1U, 2U, 255U, 257U, 4000U}) {
    std::vector<int64_t> ids(count);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % (count / 2 + 1)) - 7;
    const auto num_ids = static_cast<int64_t>(count);
    const RowOrder order = RowOrder::OfKeys(ids.data(), num_ids);
    std::set<int64_t> positions;
    std::set<int64_t> keys;
    int64_t last = -1;  // the position before
    int64_t last_stripe = 0;
    for (int64_t place = 0; place < num_ids; ++place) {
      const int64_t position = order.PositionAt(place);
      const int64_t key = ids[static_cast<size_t>(position)];
      const bool is_repeated = last >= 0 && ids[static_cast<size_t>(last)] == key;
      ASSERT_EQ(keys.insert(key).second, !is_repeated) << "key " << key << " is in two places";
      ASSERT_TRUE(positions.insert(position).second);
      ASSERT_TRUE(!is_repeated || last < position);
      const int64_t stripe = StripeOfKey(key, 1000);
      ASSERT_LE(last_stripe, stripe);
      last_stripe = stripe;
      last = position;
    }
  }
}

TEST(RowOrder, FindsTheFirstPositionOfARepeatedKey) {
  const std::vector<int64_t> ids = {9, -3, 1, 4, -3, 1};
  EXPECT_EQ(RowOrder::OfKeys(ids.data(), 6).FirstRepeated(ids.data()), 1);
  EXPECT_EQ(RowOrder::OfKeys(ids.data(), 4).FirstRepeated(ids.data()), -1);
}

}  // namespace
}  // namespace multiverso
