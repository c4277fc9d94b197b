// AsyncWriter: writes to a file in a thread of its own, one block behind the caller, who fetches
// and checks the next one meanwhile.
#ifndef MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_
#define MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "checkpoint/file_system.h"

namespace multiverso {

// For one caller.
class AsyncWriter {
 public:
  // The file is used by nobody else until the end. Where no thread can be had, Write writes.
  explicit AsyncWriter(WritableFile* file);
  // Waits for the block under way.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // Waits until the block before has been written, and returns what came of it; if that is ok, this
  // one is written next. It stays where it is until the next call returns.
  Status Write(const char* data, int64_t bytes);
  // Waits until all has been written. What came of it.
  Status Drain();

 private:
  void Run();

  WritableFile* file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const char* data_ = nullptr;  // of the block under way; null if there is none
  int64_t bytes_ = 0;
  bool ends_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_
