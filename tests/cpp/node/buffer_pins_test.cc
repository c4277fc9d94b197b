#include "node/buffer_pins.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "memory/presence.h"
#include "memory/segment.h"
#include "support/processes.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr int kBuffers = NodeControl::kBuffers;
// The lock by which readers take turns.
constexpr int kTurn = (1 << 20) + kBuffers;

WaitLimit Limit() { return WaitLimit::Until(Patience()); }

class BufferPinsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    segment_ = ValueOf(Segment::CreateShared(sizeof(NodeControl)));
    ASSERT_TRUE(MarkPresent(fd(), 0).ok());
  }

  NodeControl* control() const { return reinterpret_cast<NodeControl*>(segment_.data()); }
  int fd() const { return segment_.fd(); }
  std::unique_ptr<BufferPins> Reader() const {
    return std::make_unique<BufferPins>(control(), fd());
  }
  uint64_t ContentOf(int buffer) const { return control()->content_of(false, buffer).load(); }

  // Makes a publication as a session does, and returns its buffer.
  int Publish() const {
    const int buffer = ValueOf(TakeBuffer(control(), fd()));
    EXPECT_EQ(ContentOf(buffer), 0U);
    const uint64_t number = control()->published.load() + 1;
    EXPECT_EQ(control()->content_of(true, static_cast<int>(number % 2)).load(), 0U);
    control()->content_of(true, static_cast<int>(number % 2)).store(number);
    control()->content_of(false, buffer).store(number);
    control()->published.store(number);
    return buffer;
  }

  Segment segment_;
};

TEST_F(BufferPinsTest, TwoBuffersAlternateWithoutPins) {
  for (int number = 1; number <= 10; ++number) {
    EXPECT_EQ(Publish(), (number + 1) % 2);
    EXPECT_EQ(control()->content_of(true, number % 2).load(), static_cast<uint64_t>(number));
  }
}

TEST_F(BufferPinsTest, EndWithTheReader) {
  const int before = OpenDescriptors();
  Publish();
  auto reader = Reader();
  ASSERT_TRUE(reader->Pin(1, Limit()).ok());
  EXPECT_EQ(OpenDescriptors(), before + 1);
  Publish();
  EXPECT_EQ(Publish(), 2);
  reader.reset();
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(Publish(), 0);
}

TEST_F(BufferPinsTest, SuspendedReaderDelaysReadersButNotTheSession) {
  Publish();
  const int suspended = OpenForMarks(fd());
  ASSERT_TRUE(MarkPresent(suspended, kTurn).ok());
  const auto reader = Reader();
  EXPECT_TRUE(IsError(reader->Pin(1, WaitLimit::For(std::chrono::milliseconds(1))), Code::kTimeout,
                      "another process"));
  for (int number = 0; number < 5; ++number) Publish();
  CloseMarks(suspended);
  EXPECT_TRUE(reader->Pin(6, Limit()).ok());
}

TEST_F(BufferPinsTest, PublicationFailsRatherThanOverwriteIfAllBuffersAreLocked) {
  for (int number = 1; number <= 3; ++number) Publish();
  const int other = OpenForMarks(fd());
  for (int buffer = 0; buffer < kBuffers; ++buffer) {
    ASSERT_TRUE(MarkShared(other, (1 << 20) + buffer).ok());
  }
  const std::vector<uint64_t> before = {ContentOf(0), ContentOf(1), ContentOf(2), ContentOf(3)};
  EXPECT_TRUE(IsError(TakeBuffer(control(), fd()).status(), Code::kState, "pinned by readers"));
  EXPECT_EQ(before,
            (std::vector<uint64_t>{ContentOf(0), ContentOf(1), ContentOf(2), ContentOf(3)}));
  CloseMarks(other);
  Publish();
}

}  // namespace
}  // namespace multiverso::testing
