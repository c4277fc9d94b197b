// AsyncWriter: writes to a file in a separate thread, one block behind the caller, so that the
// caller can prepare the next block meanwhile.
#ifndef MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_
#define MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "checkpoint/file_system.h"

namespace multiverso {

// An AsyncWriter is used by one thread.
class AsyncWriter {
 public:
  // Only the writer uses the file. If no thread can be started, each Write writes at once.
  explicit AsyncWriter(WritableFile* file);
  // Waits for the block in flight.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // Waits until the previous block is written and returns the result. If that is ok, starts to
  // write `data`, which must stay valid until the next call returns. Not called again after a
  // failure.
  Status Write(const char* data, int64_t bytes);
  // Waits until all blocks are written and returns the result of the last write.
  Status Drain();

 private:
  void Run();

  WritableFile* file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const char* data_ = nullptr;  // the block in flight, or null
  int64_t bytes_ = 0;
  bool stops_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CHECKPOINT_ASYNC_WRITER_H_
