// ThreadMessenger: a Messenger between ranks that are threads of one process, for tests. It delays
// and reorders messages as MPI may: only messages between the same two ranks with the same tag stay
// in order.
#ifndef MULTIVERSO_TRANSPORT_THREAD_MESSENGER_H_
#define MULTIVERSO_TRANSPORT_THREAD_MESSENGER_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/messenger.h"

namespace multiverso {

// The messages of one job. Several threads may use a MailRoom at once.
class MailRoom {
 public:
  // A message can be received after its receiver has looked a random number of times, up to
  // `longest_delay`.
  MailRoom(int size, int longest_delay, uint64_t seed);

  int size() const { return static_cast<int>(boxes_.size()); }
  uint64_t Send(int from, int to, int tag, const void* data, int64_t bytes);
  uint64_t Receive(int from, int to, int tag, void* buffer, int64_t bytes);
  Status Test(int rank, uint64_t ticket, bool* done, int64_t* received);
  bool Withdraw(uint64_t ticket);
  bool Take(int from, int to, int tag, int64_t most, std::string* bytes);

 private:
  struct Message {
    uint64_t ticket;   // of the sender
    const void* data;  // the sender's bytes, or null if they were buffered
    std::string copy;  // the buffered bytes
    int64_t bytes;
    int delay;
    const void* begin() const { return data != nullptr ? data : copy.data(); }
  };
  struct Waiting {  // a receive
    uint64_t ticket;
    void* buffer;
    int64_t bytes;
  };
  using Line = std::pair<int, int>;  // from, tag
  struct Box {
    std::map<Line, std::deque<Message>> messages;
    std::map<Line, std::deque<Waiting>> receives;
  };
  struct Over {
    int64_t bytes;
    bool was_cut;
  };

  // Shortens the delays of the messages to `rank`, and delivers the messages that are due.
  void Look(int rank);
  void Deliver(const Message& message, const Waiting& receive);

  std::mutex mutex_;
  std::vector<Box> boxes_;
  std::map<uint64_t, Over> over_;  // by ticket; the caller has not tested these yet
  uint64_t next_ticket_ = 1;
  int longest_delay_;
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
  bool Withdraw(Ticket* ticket) override;
  Status Take(int from, int tag, int64_t most, std::string* bytes, bool* got) override;

 private:
  std::shared_ptr<MailRoom> room_;
  int rank_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_THREAD_MESSENGER_H_
