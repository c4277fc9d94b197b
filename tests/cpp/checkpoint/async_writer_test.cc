#include "checkpoint/async_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace multiverso {
namespace {

// Stores the written bytes, and fails in write number `refused`.
class RecordingFile final : public WritableFile {
 public:
  explicit RecordingFile(int refused = -1) : refused_(refused) {}
  Status Write(const void* data, int64_t bytes) override {
    if (writes_++ == refused_) return IoFailure("kept", "write", 28);
    text_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    return Status::Ok();
  }
  Status Sync() override { return Status::Ok(); }
  const std::string& text() const { return text_; }

 private:
  int refused_;
  int writes_ = 0;
  std::string text_;
};

TEST(AsyncWriter, WritesEverythingInOrder) {
  RecordingFile file;
  std::string wanted;
  {
    AsyncWriter writer(&file);
    std::string rooms[2];
    for (int i = 0; i < 1000; ++i) {
      std::string& room = rooms[i % 2];
      room = std::to_string(i) + ",";
      wanted += room;
      ASSERT_TRUE(writer.Write(room.data(), static_cast<int64_t>(room.size())).ok());
    }
    ASSERT_TRUE(writer.Drain().ok());
    EXPECT_EQ(file.text(), wanted);
    ASSERT_TRUE(writer.Write("end", 3).ok());
  }
  // The destructor of the writer writes the last bytes without a Drain().
  EXPECT_EQ(file.text(), wanted + "end");
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
