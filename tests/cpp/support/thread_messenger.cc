#include "support/thread_messenger.h"

#include <algorithm>
#include <cstring>

namespace multiverso {

MailRoom::MailRoom(int size, int max_delay, uint64_t seed)
    : boxes_(static_cast<size_t>(size)),
      is_held_(static_cast<size_t>(size)),
      max_delay_(max_delay),
      random_(seed) {}

void MailRoom::HoldCalls(int from, bool hold) {
  const std::lock_guard<std::mutex> guard(mutex_);
  is_held_[static_cast<size_t>(from)] = hold;
}

uint64_t MailRoom::Send(int from, int to, int tag, const void* data, int64_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  Message message{next_ticket_++, data, std::string(), bytes,
                  static_cast<int>(random_() % static_cast<uint64_t>(max_delay_ + 1))};
  // Some messages are buffered, as in MPI, and others stay with the sender until they are received.
  if (bytes == 0 || random_() % 2 == 0) {
    message.copy.assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
    message.data = nullptr;
    completions_[message.ticket] = Completion{bytes, false};
  }
  const uint64_t ticket = message.ticket;
  boxes_[static_cast<size_t>(to)].messages[Channel(from, tag)].push_back(std::move(message));
  return ticket;
}

uint64_t MailRoom::Receive(int from, int to, int tag, void* buffer, int64_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  boxes_[static_cast<size_t>(to)].receives[Channel(from, tag)].push_back(
      PostedReceive{next_ticket_, buffer, bytes});
  return next_ticket_++;
}

void MailRoom::Deliver(const Message& message, const PostedReceive& receive) {
  const int64_t fits = std::min(message.bytes, receive.bytes);
  if (fits > 0) std::memcpy(receive.buffer, message.begin(), static_cast<size_t>(fits));
  completions_[receive.ticket] = Completion{fits, message.bytes > receive.bytes};
  if (message.data != nullptr) completions_[message.ticket] = Completion{message.bytes, false};
}

void MailRoom::DeliverDue(int rank) {
  Box& box = boxes_[static_cast<size_t>(rank)];
  for (auto& [channel, messages] : box.messages) {
    if (IsHeld(channel)) continue;
    for (Message& message : messages) message.delay = std::max(0, message.delay - 1);
    auto& receives = box.receives[channel];
    while (!messages.empty() && !receives.empty() && messages.front().delay == 0) {
      Deliver(messages.front(), receives.front());
      messages.pop_front();
      receives.pop_front();
    }
  }
}

Status MailRoom::Test(int rank, uint64_t ticket, bool* done, int64_t* received) {
  const std::lock_guard<std::mutex> guard(mutex_);
  DeliverDue(rank);
  const auto found = completions_.find(ticket);
  *done = found != completions_.end();
  if (!*done) return Status::Ok();
  const Completion completion = found->second;
  completions_.erase(found);
  *received = completion.bytes;
  return completion.is_truncated ? Status(Code::kTransport, "a message was longer than its buffer")
                                 : Status::Ok();
}

Messenger::Withdrawn MailRoom::Withdraw(uint64_t ticket) {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (Box& box : boxes_) {
    for (auto& [channel, receives] : box.receives) {
      const auto found =
          std::find_if(receives.begin(), receives.end(),
                       [&](const PostedReceive& receive) { return receive.ticket == ticket; });
      if (found == receives.end()) continue;
      receives.erase(found);
      return Messenger::Withdrawn::kCancelled;
    }
  }
  return completions_.erase(ticket) > 0 ? Messenger::Withdrawn::kReceived
                                        : Messenger::Withdrawn::kArriving;
}

bool MailRoom::Take(int from, int to, int tag, int64_t max_bytes, std::string* bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  DeliverDue(to);
  for (auto& [channel, messages] : boxes_[static_cast<size_t>(to)].messages) {
    if (channel.second != tag || (from != Messenger::kAnyRank && channel.first != from)) continue;
    if (messages.empty() || messages.front().delay > 0 || IsHeld(channel)) continue;
    const Message& message = messages.front();
    const int64_t length = message.bytes <= max_bytes ? message.bytes : 0;
    bytes->assign(static_cast<const char*>(message.begin()), static_cast<size_t>(length));
    if (message.data != nullptr) completions_[message.ticket] = Completion{message.bytes, false};
    messages.pop_front();
    return true;
  }
  return false;
}

Status ThreadMessenger::Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) {
  MV_RETURN_IF_NOT_OK(CheckAlive(to, tag));
  *ticket = Ticket{room_->Send(rank_, to, tag, data, bytes), true};
  return Status::Ok();
}

Status ThreadMessenger::Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) {
  *ticket = Ticket{room_->Receive(from, rank_, tag, buffer, bytes), true};
  return Status::Ok();
}

Status ThreadMessenger::Test(Ticket* ticket, bool* done, int64_t* received) {
  const Status status = room_->Test(rank_, ticket->handle, done, received);
  if (*done) ticket->is_open = false;
  return status;
}

Messenger::Withdrawn ThreadMessenger::Withdraw(Ticket* ticket) {
  if (!ticket->is_open) return Withdrawn::kReceived;
  const Withdrawn withdrawn = room_->Withdraw(ticket->handle);
  ticket->is_open = withdrawn == Withdrawn::kArriving;
  return withdrawn;
}

Status ThreadMessenger::Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) {
  *got = room_->Take(from, rank_, tag, max_bytes, bytes);
  return Status::Ok();
}

}  // namespace multiverso
