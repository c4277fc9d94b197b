#include "c_api/handles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/processes.h"
#include "support/status.h"
#include "support/threads.h"

namespace multiverso::c_api {
namespace {

using testing::Child;
using testing::Eventually;
using testing::IsError;
using testing::IsOk;
using testing::OnThreads;
using testing::Patience;

struct Opaque;
using Handle = Opaque*;
using Numbers = HandleTable<Handle, int>;

std::vector<int>& Forgotten() {
  static auto* const numbers = new std::vector<int>;
  return *numbers;
}

Handle Altered(Handle handle, uintptr_t number) {
  return reinterpret_cast<Handle>(reinterpret_cast<uintptr_t>(handle) + number);
}

class Handles : public ::testing::Test {
 protected:
  // All tests share this table, since a table never frees its slots.
  static Numbers& OnlyTable() {
    static auto* const table =
        new Numbers("number", [](int* number) { Forgotten().push_back(*number); });
    return *table;
  }

  Handle Open(int number) {
    // A table keeps what it forgets, which is no leak in a forked child.
    static auto* const all = new std::vector<const int*>;
    auto object = std::make_unique<int>(number);
    all->push_back(object.get());
    Handle handle = nullptr;
    EXPECT_TRUE(IsOk(table_.Open(std::move(object), &handle)));
    return handle;
  }
  // Returns the number that belongs to the handle, or -1 if the handle is stale.
  int Get(Handle handle) {
    const Numbers::Use use = table_.Using(handle);
    return use ? *use.get() : -1;
  }
  // Closes the handle. Returns its number, or -1 after a failure.
  int Close(Handle handle, Instant deadline = Patience()) {
    const auto closed = table_.Close(handle, deadline);
    return closed.ok() ? *closed.value() : -1;
  }

  Numbers& table_ = OnlyTable();
};

TEST_F(Handles, InvalidOnesLeadNowhere) {
  const Handle first = Open(1);
  const auto twice = reinterpret_cast<uintptr_t>(first);
  for (const Handle handle :
       {Altered(nullptr, 0), Altered(nullptr, 1), Altered(first, 1),
        Altered(first, uintptr_t{1} << 32), Altered(first, twice), Altered(nullptr, ~uintptr_t{0}),
        Altered(nullptr, 0xdeadbeef), Altered(nullptr, (uintptr_t{1} << 32) | 70000)}) {
    EXPECT_EQ(Get(handle), -1) << handle;
    EXPECT_TRUE(IsError(table_.Close(handle, Patience()).status(), Code::kHandle,
                        "this number is not open"))
        << handle;
  }
  EXPECT_EQ(Get(first), 1);
}

TEST_F(Handles, AreStaleAfterClosingEvenIfTheSlotIsReused) {
  const Handle first = Open(1);
  EXPECT_EQ(Close(first), 1);
  EXPECT_EQ(Get(first), -1);
  EXPECT_EQ(Close(first), -1);
  std::set<Handle> given = {first};
  for (int i = 0; i < 1000; ++i) {
    const Handle handle = Open(2);
    EXPECT_TRUE(given.insert(handle).second);
    EXPECT_EQ(Get(first), -1);
    EXPECT_EQ(Close(handle), 2);
  }
}

TEST_F(Handles, InUseStayOpenAndValid) {
  const Handle first = Open(1);
  {
    const Numbers::Use use = table_.Using(first);
    EXPECT_TRUE(IsError(table_.Close(first, Clock::now()).status(), Code::kTimeout,
                        "another thread is still using the number"));
    EXPECT_EQ(Get(first), 1);
  }
  EXPECT_EQ(Close(first, Clock::now()), 1);
}

TEST_F(Handles, BeingClosedAllowNoNewUseAndKeepTheirSlot) {
  const Handle first = Open(1);
  auto use = std::make_unique<Numbers::Use>(table_.Using(first));
  OnThreads(2, [&](int me) {
    if (me == 0) {
      EXPECT_EQ(Close(first), 1);
      return;
    }
    EXPECT_TRUE(Eventually([&] { return Get(first) == -1; }));
    const Handle second = Open(2);
    EXPECT_EQ(Get(second), 2);
    EXPECT_EQ(*use->get(), 1);
    use.reset();
  });
}

TEST_F(Handles, AreStaleInAChildWhichCanReuseTheirSlots) {
  const Handle first = Open(1);
  const Handle second = Open(2);
  Forgotten().clear();
  table_.ForgetInChild();
  for (const int number : {1, 2}) {
    EXPECT_TRUE(std::count(Forgotten().begin(), Forgotten().end(), number) > 0);
  }
  EXPECT_EQ(Get(first), -1);
  EXPECT_EQ(Get(second), -1);
  const Handle third = Open(1);
  EXPECT_NE(third, first);
  EXPECT_EQ(Get(third), 1);
  EXPECT_TRUE(IsError(table_.Stale(first), Code::kForked));
  EXPECT_TRUE(IsError(table_.Stale(second), Code::kForked));
  EXPECT_TRUE(IsError(table_.Stale(Altered(third, 1)), Code::kHandle));
  EXPECT_TRUE(IsError(table_.Stale(nullptr), Code::kHandle));
}

TEST_F(Handles, BeingClosedAreForgottenInAChild) {
  const Handle first = Open(1000);
  auto use = std::make_unique<Numbers::Use>(table_.Using(first));
  OnThreads(2, [&](int me) {
    if (me == 0) {
      EXPECT_EQ(Close(first), 1000);
      return;
    }
    EXPECT_TRUE(Eventually([&] { return Get(first) == -1; }));
    Child child([&] {
      table_.ForgetInChild();
      const bool is_forgotten = std::count(Forgotten().begin(), Forgotten().end(), 1000) > 0;
      return is_forgotten && table_.Stale(first).code() == Code::kForked ? 0 : 1;
    });
    EXPECT_EQ(child.Wait(), 0);
    use.reset();
  });
}

TEST(HandlesOfObjectsForChildren, AreStaleThereIfTheyWereUsed) {
  static auto* const table = new Numbers("number", nullptr);
  Handle first = nullptr;
  Handle second = nullptr;
  ASSERT_TRUE(IsOk(table->Open(std::make_unique<int>(1), &first)));
  ASSERT_TRUE(IsOk(table->Open(std::make_unique<int>(2), &second)));
  const Numbers::Use use = table->Using(first);
  table->ForgetInChild();
  EXPECT_FALSE(table->Using(first));
  EXPECT_TRUE(IsOk(table->Close(second, Clock::now()).status()));
}

TEST_F(Handles, DoNotReuseASlotThatAThreadOfTheParentUsed) {
  const Handle first = Open(1);
  const Numbers::Use use = table_.Using(first);
  table_.ForgetInChild();
  const Handle second = Open(2);
  // Otherwise Close would wait for a thread that the child does not have.
  EXPECT_EQ(Close(second, Clock::now()), 2);
}

TEST_F(Handles, ClosedByManyThreadsAreClosedOnce) {
  for (int round = 0; round < 200; ++round) {
    const Handle first = Open(1);
    std::atomic<int> closed{0};
    OnThreads(3, [&](int /*me*/) {
      if (Close(first) == 1) closed.fetch_add(1);
    });
    ASSERT_EQ(closed.load(), 1);
  }
}

// The thread that closes a handle frees its object while others use and open handles. A sanitizer
// would detect a use after free.
TEST_F(Handles, NeverLeadToAFreedObject) {
  std::atomic<Handle> newest{nullptr};
  std::atomic<bool> done{false};
  OnThreads(3, [&](int me) {
    if (me != 0) {
      while (!done.load()) {
        const Numbers::Use use = table_.Using(newest.load());
        if (use) {
          ASSERT_EQ(*use.get() % 1000, 7);
        }
      }
      return;
    }
    for (int i = 0; i < 2000; ++i) {
      const Handle handle = Open(1000 * i + 7);
      newest.store(handle);
      const auto closed = table_.Close(handle, Patience());
      ASSERT_TRUE(closed.ok());
      *closed.value() = 0;
    }
    done.store(true);
  });
}

}  // namespace
}  // namespace multiverso::c_api
