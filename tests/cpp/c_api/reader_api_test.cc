// MV_Reader...: reading the tables of a session, here one of the same process.
#include <gtest/gtest.h>

#include <thread>

#include "base/process.h"
#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

class ReaderApi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Segment::CanBeFound()) GTEST_SKIP() << "readers cannot find a session";
    MV_SessionOptions options = SessionOptionsOf();
    options.name = "read";
    ASSERT_EQ(MV_SessionOpen(&options, &session_), MV_OK) << MV_LastError();
    table_ = CreateMatrix(session_, 2, 4);
    ASSERT_EQ(MV_ReaderOpen(nullptr, ProcessId(), &reader_), MV_OK) << MV_LastError();
  }
  void TearDown() override {
    if (session_ == nullptr) return;
    EXPECT_EQ(MV_ReaderClose(reader_), MV_OK);
    EXPECT_EQ(MV_SessionClose(session_), MV_OK) << MV_LastError();
  }

  MV_Session session_ = nullptr;
  MV_Table table_ = nullptr;
  MV_Reader reader_ = nullptr;
};

// Publishes the tables of the session, from another thread than the one that waits.
const char* Publish(void* session) {
  std::thread([session] {
    int64_t version = 0;
    EXPECT_EQ(MV_SessionPublish(static_cast<MV_Session>(session), 7, &version), MV_OK)
        << MV_LastError();
  }).join();
  return nullptr;
}

TEST_F(ReaderApi, WaitsForTheLongestTimeout) {
  int64_t published = 0;
  int64_t step = 0;
  MV_SetInterrupt(&Publish, session_);
  EXPECT_EQ(MV_ReaderWait(reader_, 1, INT64_MAX, &published, &step), MV_OK) << MV_LastError();
  MV_SetInterrupt(nullptr, nullptr);
  EXPECT_GE(published, 1);
  EXPECT_EQ(step, 7);
}

TEST_F(ReaderApi, RejectsSoManyRowsThatTheirElementsOverflow) {
  const int64_t id = 0;
  float values[4] = {-1, -1, -1, -1};
#if !defined(__SANITIZE_THREAD__)  // A reader takes no lock, and there ReadUnlocked always fails.
  EXPECT_EQ(MV_ReaderRun(reader_, 0, 0, "get_rows", &id, 1, values, 4), MV_OK) << MV_LastError();
  EXPECT_EQ(values[3], 0);
#endif
  EXPECT_EQ(MV_ReaderRun(reader_, 0, 0, "get_rows", &id, int64_t{1} << 62, values, 0),
            MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("rows of 4 elements, received 0"));
}

TEST_F(ReaderApi, ChecksArgumentsOfPins) {
  const void* values = nullptr;
  MV_Memory memory = nullptr;
  EXPECT_EQ(MV_ReaderPin(reader_, 0), MV_ERR_VALUE);
  EXPECT_EQ(MV_ReaderPin(reader_, 1), MV_OUTDATED);
  EXPECT_EQ(MV_ReaderUnpin(reader_, 1), MV_ERR_STATE);
  EXPECT_EQ(MV_ReaderMemory(reader_, 0, 1, &values, &memory), MV_OUTDATED);
  EXPECT_EQ(MV_ReaderMemory(reader_, 0, 0, &values, &memory), MV_ERR_VALUE);
  EXPECT_EQ(MV_ReaderMemory(reader_, 0, 1, nullptr, &memory), MV_ERR_VALUE);
  EXPECT_EQ(MV_ReaderMemory(reader_, 0, 1, &values, nullptr), MV_ERR_VALUE);
  Publish(session_);
  ASSERT_EQ(MV_ReaderPin(reader_, 1), MV_OK) << MV_LastError();
  ASSERT_EQ(MV_ReaderMemory(reader_, 0, 1, &values, &memory), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_ReaderMemory(reader_, 7, 1, &values, &memory), MV_ERR_STATE);
  EXPECT_EQ(MV_ReaderUnpin(reader_, 1), MV_OK);
  EXPECT_EQ(MV_MemoryRelease(memory), MV_OK);
}

}  // namespace
}  // namespace multiverso::testing
