#include "c_api/handles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "support/processes.h"
#include "support/threads.h"

namespace multiverso::c_api {
namespace {

using testing::Eventually;
using testing::OnThreads;
using testing::Patience;

using Numbers = HandleTable<int>;

class Handles : public ::testing::Test {
 protected:
  int* Get(uintptr_t handle) { return Numbers::Use(&table_, handle).get(); }

  // All tests share this table, since a table never frees its slots.
  static Numbers& OnlyTable() {
    static auto* const table = new Numbers;
    return *table;
  }

  Numbers& table_ = OnlyTable();
  int first_ = 1;
  int second_ = 2;
};

TEST_F(Handles, LeadToTheirObjects) {
  const uintptr_t first = table_.Open(&first_);
  const uintptr_t second = table_.Open(&second_);
  EXPECT_NE(first, 0U);
  EXPECT_NE(first, second);
  EXPECT_EQ(Get(first), &first_);
  EXPECT_EQ(Get(second), &second_);
}

TEST_F(Handles, OpenHandlesListsTheOpenOnes) {
  const auto is_listed = [&](uintptr_t handle) {
    const std::vector<uintptr_t> all = table_.OpenHandles();
    return std::count(all.begin(), all.end(), handle) == 1;
  };
  const uintptr_t first = table_.Open(&first_);
  const uintptr_t second = table_.Open(&second_);
  EXPECT_TRUE(is_listed(first) && is_listed(second));
  EXPECT_EQ(table_.Close(first, Patience()), &first_);
  EXPECT_TRUE(!is_listed(first) && is_listed(second));
}

TEST_F(Handles, InvalidOnesLeadNowhere) {
  const uintptr_t first = table_.Open(&first_);
  for (const uintptr_t handle :
       {uintptr_t{0}, uintptr_t{1}, first + 1, first + (uintptr_t{1} << 32), first << 1,
        ~uintptr_t{0}, uintptr_t{0xdeadbeef}, (uintptr_t{1} << 32) | 70000}) {
    EXPECT_EQ(Get(handle), nullptr) << std::hex << handle;
    EXPECT_EQ(table_.Close(handle, Patience()), nullptr) << std::hex << handle;
  }
  EXPECT_EQ(Get(first), &first_);
}

TEST_F(Handles, AreStaleAfterClosingEvenIfTheSlotIsReused) {
  const uintptr_t first = table_.Open(&first_);
  EXPECT_EQ(table_.Close(first, Patience()), &first_);
  EXPECT_EQ(Get(first), nullptr);
  EXPECT_EQ(table_.Close(first, Patience()), nullptr);
  std::set<uintptr_t> given = {first};
  for (int i = 0; i < 1000; ++i) {
    const uintptr_t handle = table_.Open(&second_);
    EXPECT_TRUE(given.insert(handle).second);
    EXPECT_EQ(Get(first), nullptr);
    EXPECT_EQ(table_.Close(handle, Patience()), &second_);
  }
}

TEST_F(Handles, InUseStayOpenAndValid) {
  const uintptr_t first = table_.Open(&first_);
  {
    const Numbers::Use use(&table_, first);
    EXPECT_EQ(table_.Close(first, Clock::now()), nullptr);
    EXPECT_EQ(Get(first), &first_);
  }
  EXPECT_EQ(table_.Close(first, Clock::now()), &first_);
}

TEST_F(Handles, BeingClosedAllowNoNewUseAndKeepTheirSlot) {
  const uintptr_t first = table_.Open(&first_);
  auto use = std::make_unique<Numbers::Use>(&table_, first);
  OnThreads(2, [&](int me) {
    if (me == 0) {
      EXPECT_EQ(table_.Close(first, Patience()), &first_);
      return;
    }
    EXPECT_TRUE(Eventually([&] { return Get(first) == nullptr; }));
    const uintptr_t second = table_.Open(&second_);
    EXPECT_EQ(Get(second), &second_);
    EXPECT_EQ(use->get(), &first_);
    use.reset();
  });
}

TEST_F(Handles, UseCanBeMoved) {
  const uintptr_t first = table_.Open(&first_);
  Numbers::Use use(&table_, first);
  {
    const Numbers::Use moved(std::move(use));
    EXPECT_TRUE(moved);
    EXPECT_EQ(table_.Close(first, Clock::now()), nullptr);
  }
  EXPECT_EQ(table_.Close(first, Clock::now()), &first_);
}

TEST_F(Handles, ForgetMakesAllStaleAndFreesTheirSlots) {
  const uintptr_t first = table_.Open(&first_);
  const uintptr_t second = table_.Open(&second_);
  std::vector<int*> visited;
  table_.Forget([&](int* object) { visited.push_back(object); });
  for (int* const object : {&first_, &second_}) {
    EXPECT_TRUE(std::count(visited.begin(), visited.end(), object) > 0);
  }
  EXPECT_EQ(Get(first), nullptr);
  EXPECT_EQ(Get(second), nullptr);
  const uintptr_t third = table_.Open(&first_);
  EXPECT_NE(third, first);
  EXPECT_EQ(Get(third), &first_);
  EXPECT_TRUE(table_.WasForgotten(first));
  EXPECT_TRUE(table_.WasForgotten(second));
  EXPECT_FALSE(table_.WasForgotten(third));
  EXPECT_FALSE(table_.WasForgotten(0));
}

TEST_F(Handles, DoNotReuseASlotThatAThreadOfTheParentUsed) {
  const uintptr_t first = table_.Open(&first_);
  const HandleTable<int>::Use use(&table_, first);
  table_.Forget([](int*) {});
  const uintptr_t second = table_.Open(&second_);
  // Otherwise Close would wait for a thread that the child does not have.
  EXPECT_EQ(table_.Close(second, Clock::now()), &second_);
}

TEST_F(Handles, ClosedByManyThreadsAreClosedOnce) {
  for (int round = 0; round < 200; ++round) {
    const uintptr_t first = table_.Open(&first_);
    std::atomic<int> closed{0};
    OnThreads(3, [&](int /*me*/) {
      if (table_.Close(first, Patience()) != nullptr) closed.fetch_add(1);
    });
    ASSERT_EQ(closed.load(), 1);
  }
}

// The thread that closes a handle frees its object while others use and open handles. A sanitizer
// would detect a use after free.
TEST_F(Handles, NeverLeadToAFreedObject) {
  std::atomic<uintptr_t> newest{0};
  std::atomic<bool> done{false};
  OnThreads(3, [&](int me) {
    if (me != 0) {
      while (!done.load()) {
        const Numbers::Use use(&table_, newest.load());
        if (use) {
          ASSERT_EQ(*use.get() % 1000, 7);
        }
      }
      return;
    }
    for (int i = 0; i < 2000; ++i) {
      auto object = std::make_unique<int>(1000 * i + 7);
      const uintptr_t handle = table_.Open(object.get());
      newest.store(handle);
      ASSERT_EQ(table_.Close(handle, Patience()), object.get());
      *object = 0;
    }
    done.store(true);
  });
}

}  // namespace
}  // namespace multiverso::c_api
