// ThreadMessenger: a Messenger between ranks that are threads of one process, which delays and
// reorders messages as far as MPI might: those from one rank to another with the same tag stay in
// order, all others overtake each other.
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

// What the ranks of one job share. Thread-safe.
class MailRoom {
 public:
  // A message cannot be received before its receiver has looked up to `longest_delay` times.
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
    const void* data;  // the sender's bytes, until somebody receives them...
    std::string copy;  // ...or these, if it was small and buffered
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

  // Time passes for `rank`: delays get shorter, and what can be received is.
  void Look(int rank);
  void Deliver(const Message& message, const Waiting& receive);

  std::mutex mutex_;
  std::vector<Box> boxes_;
  std::map<uint64_t, Over> over_;  // tickets that are done and not yet tested
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
