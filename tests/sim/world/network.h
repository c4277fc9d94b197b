// The simulated MPI: messages with latencies, and what becomes of those of a dead rank.
//
// A message of a pair of ranks and a tag arrives after those that were sent before, and a latency
// after it was sent. Most short messages are *buffered*, as MPI does: the sender is done at once.
// The bytes of the others stay with the sender until a receive takes them, and its send is over
// then.
//
// When a rank dies, messages to it vanish: sends to it that are not buffered never end. Its own
// messages that have arrived stay, if they were buffered; those in flight arrive up to a random
// one; and a message whose bytes are still in its memory never arrives, nor do those behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "transport/transport.h"

namespace sim {

class Network {
 public:
  explicit Network(int size);

  // These are what SimMessenger does, for rank `from` or `to`.
  uint64_t Send(int from, int to, int tag, const void* data, int64_t bytes);
  uint64_t Receive(int from, int to, int tag, void* buffer, int64_t bytes);
  multiverso::Status Test(uint64_t ticket, bool* done, int64_t* received);
  multiverso::Messenger::Withdrawn Withdraw(int rank, uint64_t ticket);
  bool Take(int from, int to, int tag, int64_t max_bytes, std::string* bytes);

  void Die(int rank);

  // The messages that were sent so far with a tag, and their bytes.
  struct Traffic {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };
  // Tags of calls on tables count as one, kFirstCallTag.
  const std::map<int, Traffic>& TrafficByTag() const { return traffic_; }
  void ForgetTraffic() { traffic_.clear(); }
  int size() const { return static_cast<int>(inboxes_.size()); }

 private:
  struct Message {
    uint64_t ticket;
    const char* data;  // the sender's, unless it is buffered
    std::string copy;
    int64_t bytes;
    int64_t arrival;
    bool is_buffered;

    const char* bytes_begin() const { return is_buffered ? copy.data() : data; }
  };
  struct Posted {
    uint64_t ticket;
    char* buffer;
    int64_t bytes;
  };
  struct Ended {
    int64_t bytes = 0;
    bool is_truncated = false;
  };
  // The first messages of all channels to a rank with a tag, by arrival and sender.
  using Heads = std::set<std::pair<int64_t, int>>;
  // What one rank sends another with one tag.
  struct Channel {
    std::deque<Message> messages;
    std::deque<Posted> receives;
    int64_t last_arrival = 0;
    int from = 0;
    Heads* heads = nullptr;
  };
  using Id = std::pair<int, int>;  // the tag, and a rank

  Channel* ChannelOf(int from, int to, int tag);
  static void Push(Channel* channel, Message message);
  static void Pop(Channel* channel);
  // Gives messages that have arrived to the receives that wait for them.
  void Match(Channel* channel);

  std::vector<bool> is_dead_;
  std::vector<std::map<Id, Channel>> inboxes_;  // by receiver; by tag and sender
  std::map<Id, Heads> heads_;                   // by receiver and tag
  std::unordered_map<uint64_t, Ended> ended_;
  std::unordered_map<uint64_t, Channel*> channels_;  // of tickets
  uint64_t tickets_ = 0;
  std::map<int, Traffic> traffic_;
};

class SimMessenger final : public multiverso::Messenger {
 public:
  SimMessenger(std::shared_ptr<Network> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  multiverso::Status Send(int to, int tag, const void* data, int64_t bytes,
                          Ticket* ticket) override;
  multiverso::Status Receive(int from, int tag, void* buffer, int64_t bytes,
                             Ticket* ticket) override;
  multiverso::Status Test(Ticket* ticket, bool* done, int64_t* received) override;
  Withdrawn Withdraw(Ticket* ticket) override;
  multiverso::Status Take(int from, int tag, int64_t max_bytes, std::string* bytes,
                          bool* got) override;

 private:
  std::shared_ptr<Network> network_;
  int rank_;
};

// The exchanges of the opening. If a rank dies before it comes, they end at the deadline.
class Hub {
 public:
  explicit Hub(int size) : bytes_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(bytes_.size()); }
  multiverso::Result<std::vector<std::string>> Exchange(int rank, const std::string& mine,
                                                        const multiverso::WaitLimit& limit);

 private:
  int arrived_ = 0;
  int round_ = 0;
  std::vector<std::string> bytes_, result_;
};

class SimTransport final : public multiverso::Transport {
 public:
  SimTransport(std::shared_ptr<Hub> hub, std::shared_ptr<Network> network, int rank)
      : hub_(std::move(hub)), network_(std::move(network)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string Describe() const override { return "simulation"; }
  multiverso::Result<std::vector<std::string>> Exchange(
      const std::string& mine, const multiverso::WaitLimit& limit) override;
  multiverso::Status CheckCanConnect() const override { return multiverso::Status::Ok(); }
  multiverso::Result<std::unique_ptr<multiverso::Messenger>> Connect(
      const multiverso::WaitLimit& limit) override;

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Network> network_;
  int rank_;
};

}  // namespace sim
