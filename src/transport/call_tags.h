// CallTags: the message tags of this rank's calls in flight, so that the replies to calls of
// several threads do not mix.
#ifndef MULTIVERSO_TRANSPORT_CALL_TAGS_H_
#define MULTIVERSO_TRANSPORT_CALL_TAGS_H_

#include <mutex>
#include <vector>

#include "transport/messenger.h"

namespace multiverso {

// Several threads may take and give back tags concurrently.
class CallTags {
 public:
  // Returns a free tag, or -1 if no tag is free. The tag of a call that was abandoned with messages
  // in flight is never given back, since another call could receive those messages.
  int Take() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!free_.empty()) {
      const int tag = free_.back();
      free_.pop_back();
      return tag;
    }
    return next_ <= kLastCallTag ? next_++ : -1;
  }

  void GiveBack(int tag) {
    const std::lock_guard<std::mutex> guard(mutex_);
    free_.push_back(tag);
  }

 private:
  std::mutex mutex_;
  std::vector<int> free_;
  int next_ = kFirstCallTag;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_CALL_TAGS_H_
