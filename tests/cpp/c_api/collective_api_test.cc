// MV_SessionRun: arguments, results, and the end of a session while another thread is in a call.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

using Floats = std::vector<float>;

// A call on arrays of floats.
class Collective {
 public:
  Collective(int32_t kind, const std::vector<const Floats*>& sent,
             const std::vector<Floats*>& received, int32_t root = 0) {
    call_ = {sizeof(call_), kind, MV_OP_SUM, MV_FLOAT32, root, nullptr, nullptr, nullptr, nullptr};
    for (const Floats* const array : sent) {
      sent_.push_back(array->data());
      sent_counts_.push_back(static_cast<int64_t>(array->size()));
    }
    for (Floats* const array : received) {
      received_.push_back(array->data());
      received_counts_.push_back(static_cast<int64_t>(array->size()));
    }
    call_.sent = sent_.data();
    call_.sent_counts = sent_counts_.data();
    call_.received = received_.data();
    call_.received_counts = received_counts_.data();
  }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  MV_CollectiveCall* get() { return &call_; }
  int64_t* sent_counts() { return sent_counts_.data(); }
  void** received() { return received_.data(); }
  int64_t* received_counts() { return received_counts_.data(); }

 private:
  MV_CollectiveCall call_;
  std::vector<const void*> sent_;
  std::vector<int64_t> sent_counts_;
  std::vector<void*> received_;
  std::vector<int64_t> received_counts_;
};

using CollectiveApi = AloneTest;

TEST_F(CollectiveApi, RejectsInvalidArguments) {
  Floats one(3, 1);
  Floats other(3);
  const auto expect = [&](int32_t kind, int32_t code, const char* text, auto change) {
    Collective call(kind, {&one}, {&other});
    change(&call);
    EXPECT_EQ(MV_SessionRun(session_, call.get()), code) << text;
    EXPECT_TRUE(LastErrorHas(text));
  };
  for (int32_t kind = MV_CALL_BARRIER; kind <= MV_CALL_REDUCE_SCATTER; ++kind) {
    expect(kind, MV_ERR_VALUE, "struct_size", [](auto* call) { call->get()->struct_size -= 8; });
    if (kind == MV_CALL_BARRIER) continue;
    expect(kind, MV_ERR_TYPE, "dtype from 0 to 9", [](auto* call) { call->get()->dtype = 10; });
    expect(kind, MV_ERR_TYPE, "received -1", [](auto* call) { call->get()->dtype = -1; });
    expect(kind, MV_ERR_VALUE, "received null",
           [](auto* call) { call->get()->received = nullptr; });
    expect(kind, MV_ERR_VALUE, "received null",
           [](auto* call) { call->get()->received_counts = nullptr; });
    expect(kind, MV_ERR_VALUE, "received 3 and no buffer",
           [](auto* call) { call->received()[0] = nullptr; });
    expect(kind, MV_ERR_VALUE, "received -1", [](auto* call) { call->received_counts()[0] = -1; });
    if (kind <= MV_CALL_BROADCAST) continue;
    expect(kind, MV_ERR_VALUE, "received null", [](auto* call) { call->get()->sent = nullptr; });
    expect(kind, MV_ERR_VALUE, "received -7", [](auto* call) { call->sent_counts()[0] = -7; });
  }
  for (const int32_t kind : {MV_CALL_AGGREGATE, MV_CALL_REDUCE_SCATTER}) {
    expect(kind, MV_ERR_VALUE, "op from 0 to 7", [](auto* call) { call->get()->op = 8; });
    expect(kind, MV_ERR_TYPE, "needs integers", [](auto* call) { call->get()->op = MV_OP_XOR; });
  }
  for (const int32_t root : {-1, 1}) {
    expect(MV_CALL_BROADCAST, MV_ERR_VALUE, "root from 0 to 0",
           [&](auto* call) { call->get()->root = root; });
  }
  for (const int32_t kind : {-1, 6}) {
    expect(kind, MV_ERR_VALUE, "MV_CollectiveCall.kind", [](auto* /*call*/) {});
  }
}

TEST(CollectiveCalls, OfARankThatLeavesEndWithoutAbortingTheSession) {
  std::atomic<bool> has_left{false};
  RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
    Floats sum = {1};
    Collective call(MV_CALL_AGGREGATE, {}, {&sum});
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return has_left.load(); }));
      // Rank 0 has begun the sum.
      EXPECT_EQ(MV_SessionRun(session, call.get()), MV_OK) << MV_LastError();
      EXPECT_EQ(sum, Floats({2}));
      EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_PEER_LOST);
      EXPECT_TRUE(LastErrorHas("it has had enough"));
      return;
    }
    std::thread other([&] {
      EXPECT_EQ(MV_SessionRun(session, call.get()), MV_ERR_ABORTED);
      EXPECT_TRUE(LastErrorHas("it has had enough"));
    });
    EXPECT_TRUE(Eventually(
        [&] { return c_api::OpenSessions().Using(session)->in_collective_call.load(); }));
    EXPECT_EQ(MV_SessionLeave(session, "it has had enough"), MV_OK) << MV_LastError();
    other.join();
    has_left.store(true);
  });
}

}  // namespace
}  // namespace multiverso::testing
