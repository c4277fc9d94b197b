// BufferPins: keeps publications in their buffers while readers use them in place, without a copy.
//
// A pin is a file lock on a byte of the node's control segment, one byte for each buffer of the
// dense tables. The kernel drops it when the process of the reader ends for any reason. The session
// keeps no account of its readers, and a reader changes nothing in the shared memory.
//
// A buffer's number (NodeControl::content_of) says which publication it has. The rank that looks
// for a buffer adds kMayBeTaken to the number, and then looks for pins of the buffer. If there is
// one, it stores the number as it was, and tries another buffer; if not, it stores 0 before
// anything is overwritten. A reader makes its pin first, and then looks whether the number is
// exactly that of the publication that it wants. The kernel makes and finds locks of a file one
// after the other. So either the pin is found, or the reader sees another number. A reader that has
// its pin goes on reading meanwhile.
//
// Readers pin two buffers at most, and one has the latest publication, so one of the four is free.
// They take turns, by the lock of one more byte, so that they cannot exceed this together. A reader
// that is suspended during its turn delays other readers, but not the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "node/control_segment.h"

namespace multiverso {

// Returns the buffer for the next publication, whose content is 0 from then on: the first that is
// not pinned, and does not have the latest publication. One rank of the node calls this, while no
// publication is being made. `fd` is the descriptor of the control segment, or negative if no other
// process can open it.
Result<int32_t> TakeBuffer(NodeControl* control, int fd);

// The pins of one reader. Thread-safe.
class BufferPins {
 public:
  // The arguments outlive the object. `fd` is a descriptor of the control segment.
  BufferPins(NodeControl* control, int fd) : control_(control), fd_(fd) {}
  ~BufferPins();

  // Keeps the dense tables as of a publication until Unpin has been called as often as Pin. Returns
  // outdated if no buffer has the publication any more, and StateError if readers have pinned two
  // others.
  Status Pin(uint64_t publication, const WaitLimit& limit);
  Status Unpin(uint64_t publication);
  // In a forked child, whose copies of the descriptors would keep the pins when the parent ends.
  void ForgetInChild();

 private:
  struct Held {
    std::atomic<int> lock_file{-1};  // the descriptor that has the lock of this buffer
    uint64_t publication = 0;
    int uses = 0;
  };

  Status MarkBuffer(int lock_file, int buffer) const;
  void Drop(int buffer);

  NodeControl* control_;
  int fd_;
  std::mutex mutex_;
  Held held_[NodeControl::kBuffers];
};

}  // namespace multiverso
