// BufferPool: keeps the memory of messages for later messages, because the kernel clears each page
// that a process allocates, which takes about as long as a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace multiverso {

// Thread-safe. Outlives its buffers.
class BufferPool {
 public:
  struct Returner {
    BufferPool* pool = nullptr;
    void operator()(std::vector<char>* buffer) const { pool->GiveBack(buffer); }
  };
  // Returns itself to the pool.
  using Buffer = std::unique_ptr<std::vector<char>, Returner>;

  // Makes *buffer, which may be null, at least that long. What is in it stays.
  void MakeRoom(int64_t bytes, Buffer* buffer) {
    if (*buffer == nullptr) *buffer = Take();
    const auto size = static_cast<size_t>(bytes);
    if ((*buffer)->size() < size) (*buffer)->resize(size);
  }

 private:
  // The most buffers that are kept, which bounds their memory.
  static constexpr size_t kMostKept = 32;

  Buffer Take() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (free_.empty()) return Buffer(new std::vector<char>(), Returner{this});
    Buffer buffer(free_.back().release(), Returner{this});
    free_.pop_back();
    return buffer;
  }
  void GiveBack(std::vector<char>* buffer) {
    std::unique_ptr<std::vector<char>> owned(buffer);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (free_.size() < kMostKept) free_.push_back(std::move(owned));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<std::vector<char>>> free_;
};

}  // namespace multiverso
