#include "checkpoint/async_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace multiverso {
namespace {

// Stores the written bytes. Write number `failing_write`, counted from 0, fails.
class RecordingFile final : public WritableFile {
 public:
  explicit RecordingFile(int failing_write = -1) : failing_write_(failing_write) {}
  Status Write(const void* data, int64_t bytes) override {
    if (num_writes_++ == failing_write_) return IoFailure("kept", "write", 28);
    text_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    return Status::Ok();
  }
  Status Sync() override { return Status::Ok(); }
  const std::string& text() const { return text_; }

 private:
  int failing_write_;
  int num_writes_ = 0;
  std::string text_;
};

TEST(AsyncWriter, WritesEverythingInOrder) {
  RecordingFile file;
  std::string expected;
  {
    AsyncWriter writer(&file);
    std::string buffers[2];
    for (int i = 0; i < 1000; ++i) {
      std::string& buffer = buffers[i % 2];
      buffer = std::to_string(i) + ",";
      expected += buffer;
      ASSERT_TRUE(writer.Write(buffer.data(), static_cast<int64_t>(buffer.size())).ok());
    }
    ASSERT_TRUE(writer.Drain().ok());
    EXPECT_EQ(file.text(), expected);
    ASSERT_TRUE(writer.Write("end", 3).ok());
  }
  // The destructor of the writer writes the last bytes without a Drain().
  EXPECT_EQ(file.text(), expected + "end");
}

TEST(AsyncWriter, NextCallReturnsTheFailureAndNothingIsWrittenAfterIt) {
  RecordingFile file(1);
  AsyncWriter writer(&file);
  EXPECT_TRUE(writer.Write("a", 1).ok());
  EXPECT_TRUE(writer.Write("b", 1).ok());
  EXPECT_EQ(writer.Write("c", 1).code(), Code::kCheckpointIo);
  EXPECT_EQ(writer.Write("d", 1).code(), Code::kCheckpointIo);
  EXPECT_EQ(writer.Drain().code(), Code::kCheckpointIo);
  EXPECT_EQ(file.text(), "a");
}

}  // namespace
}  // namespace multiverso
