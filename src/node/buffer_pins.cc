#include "node/buffer_pins.h"

#include <cerrno>
#include <cstring>

#include "base/backoff.h"
#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

// The bytes that are locked, behind those of ranks (MarkPresent) and of joiners.
constexpr int kFirstPin = 1 << 20;
constexpr int kTurn = kFirstPin + NodeControl::kBuffers;
constexpr int kMostPinned = NodeControl::kBuffers - 2;

}  // namespace

Result<int32_t> TakeBuffer(NodeControl* control, int fd) {
  const uint64_t latest = control->published.load();
  control->content_of(/*is_lazy=*/true, static_cast<int>((latest + 1) % 2)).store(0);
  // Pins may move between buffers during one search, but not during each of many.
  constexpr int kSearches = 100;
  for (int search = 0; search < kSearches; ++search) {
    for (int buffer = 0; buffer < NodeControl::kBuffers; ++buffer) {
      std::atomic<uint64_t>& content = control->content_of(/*is_lazy=*/false, buffer);
      const uint64_t before = content.load() & ~NodeControl::kMayBeTaken;
      if (latest != 0 && before == latest) continue;
      content.store(before | NodeControl::kMayBeTaken);
      // The lock of this rank's presence makes the kernel look at the list of locks under its own
      // lock, which also orders the store before the loads of readers whose pins come later.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const bool is_free = fd < 0 || !IsPresent(fd, kFirstPin + buffer);
      content.store(is_free ? 0 : before);
      if (is_free) return buffer;
    }
  }
  return Status(Code::kState,
                "publish: every buffer is pinned by readers: end one of their blocks");
}

BufferPins::~BufferPins() {
  for (int buffer = 0; buffer < NodeControl::kBuffers; ++buffer) Drop(buffer);
}

Status BufferPins::Pin(uint64_t publication, const WaitLimit& limit) {
  const std::lock_guard<std::mutex> guard(mutex_);
  int buffer = -1;
  for (int i = 0; i < NodeControl::kBuffers; ++i) {
    if (held_[i].uses > 0 && held_[i].publication == publication) {
      ++held_[i].uses;
      return Status::Ok();
    }
    if (control_->content_of(/*is_lazy=*/false, i).load() == publication) buffer = i;
  }
  if (buffer < 0 || publication == 0) return Status::Outdated();
  // A lock belongs to an open file, so each pin has its own.
  const int lock_file = OpenForMarks(fd_);
  if (lock_file < 0) {
    return Status(Code::kState, StrCat("cannot open the control segment: ", std::strerror(errno)));
  }
  Held& held = held_[buffer];
  // It is stored before the lock, so that a child that is forked now closes its copy.
  held.lock_file.store(lock_file);
  constexpr std::chrono::milliseconds kLongestNap{1};
  Status status = PollUntil(limit.deadline, Backoff(kLongestNap), [&] {
    MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
    return MarkPresent(lock_file, kTurn).ok() ? Status::Ok() : Status::Pending();
  });
  if (status.pending()) {
    status = Status(Code::kTimeout, "waited for another process that is pinning a version");
  }
  if (status.ok()) status = MarkBuffer(lock_file, buffer);
  ClearPresent(lock_file, kTurn);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (status.ok() && control_->content_of(/*is_lazy=*/false, buffer).load() != publication) {
    status = Status::Outdated();
  }
  if (!status.ok()) {
    Drop(buffer);
    return status;
  }
  held.publication = publication;
  held.uses = 1;
  return Status::Ok();
}

Status BufferPins::MarkBuffer(int lock_file, int buffer) const {
  int others = 0;
  for (int i = 0; i < NodeControl::kBuffers; ++i) {
    if (i != buffer && IsPresent(lock_file, kFirstPin + i)) ++others;
  }
  if (others < kMostPinned) return MarkShared(lock_file, kFirstPin + buffer);
  return Status(Code::kState,
                StrCat("readers have pinned ", kMostPinned,
                       " other versions, and the session needs the rest of its buffers: end the "
                       "block of one of them, or copy the tables with View.cut"));
}

Status BufferPins::Unpin(uint64_t publication) {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (int buffer = 0; buffer < NodeControl::kBuffers; ++buffer) {
    Held& held = held_[buffer];
    if (held.uses == 0 || held.publication != publication) continue;
    if (--held.uses == 0) Drop(buffer);
    return Status::Ok();
  }
  return Status(Code::kState, StrCat("version ", publication, " is not pinned"));
}

void BufferPins::Drop(int buffer) {
  const int lock_file = held_[buffer].lock_file.exchange(-1);
  if (lock_file < 0) return;
  // A child that was forked past the C library may have a copy of the descriptor.
  ClearPresent(lock_file, kFirstPin + buffer);
  CloseMarks(lock_file);
}

void BufferPins::ForgetInChild() {
  for (Held& held : held_) {
    const int lock_file = held.lock_file.exchange(-1);
    if (lock_file >= 0) CloseMarks(lock_file);
  }
}

}  // namespace multiverso
