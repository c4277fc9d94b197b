#include "transport/messenger.h"

#include <iterator>

#include "base/backoff.h"
#include "base/text.h"

namespace multiverso {
namespace {

// How long Post waits for other threads, which hold the mutex for microseconds.
constexpr auto kPostTimeout = std::chrono::milliseconds(200);

}  // namespace

Status Messenger::CheckAlive(int rank, int tag) const {
  if (has_died_ == nullptr || !has_died_(rank, tag)) return Status::Ok();
  PeerFault peer;
  peer.rank = rank;
  return Status(Code::kPeerLost, StrCat("rank ", rank, " has died")).About(std::move(peer));
}

Status Messenger::Post(int to, int tag, std::string bytes) {
  const std::unique_lock<std::mutex> guard = LockWithin(kPostTimeout, &posted_mutex_);
  if (!guard.owns_lock()) {
    return Status(Code::kTransport, StrCat("cannot send to rank ", to, ": a call of MPI hangs"));
  }
  posted_.push_back(Posted{std::move(bytes), Ticket{}});
  Posted& message = posted_.back();
  const Status status = Send(to, tag, message.bytes.data(),
                             static_cast<int64_t>(message.bytes.size()), &message.ticket);
  if (!status.ok()) posted_.pop_back();
  return status;
}

bool Messenger::Advance() {
  const std::unique_lock<std::mutex> guard(posted_mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  for (auto message = posted_.begin(); message != posted_.end();) {
    bool done = false;
    int64_t bytes = 0;
    // A failed message is over too, since the rank that waits for the message has a deadline.
    const bool over = !Test(&message->ticket, &done, &bytes).ok() || done;
    message = over ? posted_.erase(message) : std::next(message);
  }
  return posted_.empty();
}

bool Messenger::AwaitPosted(Instant until) {
  const auto sent = [this] { return Advance() ? Status::Ok() : Status::Pending(); };
  return PollUntil(until, Backoff(std::chrono::milliseconds(1)), sent).ok();
}

void Messenger::Drain(Instant until) {
  if (AwaitPosted(until)) return;
  // The transport may still read the bytes, so they remain for as long as the process runs.
  static std::mutex mutex;
  static auto* const kept = new std::list<Posted>;
  const std::scoped_lock guard(posted_mutex_, mutex);
  kept->splice(kept->end(), posted_);
}

}  // namespace multiverso
