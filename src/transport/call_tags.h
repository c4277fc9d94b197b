// CallTags: numbers this rank's calls in flight, so that no call takes the answer to another, be it
// one of another thread or one that has ended without its answer.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/messenger.h"

namespace multiverso {

// The number of a call, and the tag of its answers, which stands for the number where MPI must find
// the memory of a message before anyone can look into it.
struct CallNumber {
  uint64_t number = 0;
  int tag = -1;
};

// Several threads may take and give back tags concurrently.
class CallTags {
 public:
#if defined(MULTIVERSO_SIMULATION)
  // A rank of a simulated job makes a few dozen calls, and a late answer can only meet a later call
  // if tags return after fewer.
  static constexpr int kTags = 16;
#else
  static constexpr int kTags = kLastCallTag - kFirstCallTag + 1;
#endif

  // Returns the next number whose tag is free; with tag -1 if none is. Tags follow each other, so
  // that a tag returns as late as possible.
  CallNumber Take() {
    const std::lock_guard<std::mutex> guard(mutex_);
    for (int i = 0; i < kTags; ++i) {
      const uint64_t number = ++last_number_;
      const auto index = static_cast<size_t>(number % kTags);
      if (is_taken_[index]) continue;
      is_taken_[index] = true;
      return CallNumber{number, kFirstCallTag + static_cast<int>(index)};
    }
    return CallNumber();
  }

  // Frees the tag of a call that gets no further messages: all servers have answered (LateAnswers).
  void GiveBack(int tag) {
    const std::lock_guard<std::mutex> guard(mutex_);
    is_taken_[static_cast<size_t>(tag - kFirstCallTag)] = false;
  }

 private:
  std::mutex mutex_;
  std::vector<bool> is_taken_ = std::vector<bool>(kTags);
  uint64_t last_number_ = 0;
};

}  // namespace multiverso
