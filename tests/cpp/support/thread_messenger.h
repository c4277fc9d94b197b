// ThreadMessenger: a Messenger between ranks that are threads of one process, for tests. It delays
// and reorders messages as MPI may: only messages from one rank to another with the same tag stay
// in order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/messenger.h"

namespace multiverso {

// The messages of one job. Several threads may use a MailRoom concurrently.
class MailRoom {
 public:
  // A message can be received after its receiver has called Test or Take a random number of times,
  // up to `max_delay`.
  MailRoom(int size, int max_delay, uint64_t seed);

  int size() const { return static_cast<int>(boxes_.size()); }
  // Holds back, or releases, what that rank sends for calls on tables, as if it were suspended.
  void HoldCalls(int from, bool hold);
  uint64_t Send(int from, int to, int tag, const void* data, int64_t bytes);
  uint64_t Receive(int from, int to, int tag, void* buffer, int64_t bytes);
  Status Test(int rank, uint64_t ticket, bool* done, int64_t* received);
  Messenger::Withdrawn Withdraw(uint64_t ticket);
  bool Take(int from, int to, int tag, int64_t max_bytes, std::string* bytes);

 private:
  struct Message {
    uint64_t ticket;   // of the sender
    const void* data;  // the sender's bytes, or null if they were buffered
    std::string copy;  // the buffered bytes
    int64_t bytes;
    int delay;  // calls of Test or Take until it can be received
    const void* begin() const { return data != nullptr ? data : copy.data(); }
  };
  struct PostedReceive {
    uint64_t ticket;
    void* buffer;
    int64_t bytes;
  };
  using Channel = std::pair<int, int>;  // sender, tag
  struct Box {
    std::map<Channel, std::deque<Message>> messages;
    std::map<Channel, std::deque<PostedReceive>> receives;
  };
  struct Completion {
    int64_t bytes;
    bool is_truncated;
  };

  bool IsHeld(const Channel& channel) const {
    return channel.second >= kFirstCallTag && is_held_[static_cast<size_t>(channel.first)];
  }
  // Shortens the delays of the messages to `rank`, and delivers the messages that are due.
  void DeliverDue(int rank);
  void Deliver(const Message& message, const PostedReceive& receive);

  std::mutex mutex_;
  std::vector<Box> boxes_;
  std::vector<bool> is_held_;                   // by sender
  std::map<uint64_t, Completion> completions_;  // by ticket, until the caller tests the message
  uint64_t next_ticket_ = 1;
  int max_delay_;
  std::mt19937_64 random_;
};

class ThreadMessenger final : public Messenger {
 public:
  ThreadMessenger(std::shared_ptr<MailRoom> room, int rank) : room_(std::move(room)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return room_->size(); }
  Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) override;
  Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) override;
  Status Test(Ticket* ticket, bool* done, int64_t* received) override;
  Withdrawn Withdraw(Ticket* ticket) override;
  Status Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) override;

 private:
  std::shared_ptr<MailRoom> room_;
  int rank_;
};

}  // namespace multiverso
