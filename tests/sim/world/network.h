// The simulated MPI: messages with virtual latency, and what becomes of those of a dead rank.
#pragma once

#include <cstring>
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

using multiverso::Code;
using multiverso::Messenger;
using multiverso::Status;

class Network {
 public:
  explicit Network(int size)
      : dead_(static_cast<size_t>(size)), inbox_(static_cast<size_t>(size)) {}

  struct Message {
    uint64_t ticket;
    int from;
    const char* data;
    std::string copy;
    int64_t bytes, arrival;
    bool buffered;
  };
  struct Receive {
    uint64_t ticket;
    char* buffer;
    int64_t bytes;
  };
  struct Done {
    int64_t bytes = 0, at = 0;
    bool truncated = false, never = false;
  };
  struct Channel {
    std::deque<Message> messages;
    std::deque<Receive> receives;
    int64_t last_arrival = 0;
    int from = 0;
    std::set<std::pair<int64_t, int>>* heads = nullptr;  // of all channels with the tag, by arrival
  };
  using Id = std::pair<int, int>;  // tag, sender

  Channel& ChannelOf(int from, int to, int tag) {
    Channel& channel = inbox_[static_cast<size_t>(to)][Id(tag, from)];
    if (channel.heads == nullptr) {
      channel.heads = &heads_[Id(to, tag)];
      channel.from = from;
    }
    return channel;
  }
  static void Push(Channel* channel, Message message) {
    if (channel->messages.empty()) channel->heads->emplace(message.arrival, channel->from);
    channel->messages.push_back(std::move(message));
  }
  static void Pop(Channel* channel) {
    channel->heads->erase({channel->messages.front().arrival, channel->from});
    channel->messages.pop_front();
    if (!channel->messages.empty()) {
      channel->heads->emplace(channel->messages.front().arrival, channel->from);
    }
  }

  uint64_t Send(int from, int to, int tag, const void* data, int64_t bytes) {
    Quiet quiet;
    ++messages;
    message_bytes += static_cast<uint64_t>(bytes);
    ++sent_by_tag[tag >= 16 ? 16 : tag];
    if (log_tag == tag)
      fprintf(stderr, "%.4f s: rank %d sends tag %d to rank %d, %lld bytes, kind %d %d\n",
              1e-9 * static_cast<double>(Now()) - 1000, from, tag, to, (long long)bytes,
              bytes > 16 ? static_cast<const int*>(data)[4] : 0,
              bytes > 16 ? static_cast<const int*>(data)[3] : 0);
    Channel& channel = ChannelOf(from, to, tag);
    Message message{++tickets_,
                    from,
                    static_cast<const char*>(data),
                    {},
                    bytes,
                    0,
                    bytes == 0 || (bytes < 4096 && Random() % 8 != 0)};
    channel.last_arrival = std::max(channel.last_arrival + 1, Now() + Latency());
    message.arrival = channel.last_arrival;
    if (message.buffered) {
      message.copy.assign(message.data, static_cast<size_t>(bytes));
      done_[message.ticket] = Done{bytes, Now()};
    }
    const uint64_t ticket = message.ticket;
    if (!dead_[static_cast<size_t>(to)]) Push(&channel, std::move(message));
    channel_of_[ticket] = &channel;
    Match(&channel);
    return ticket;
  }
  uint64_t Post(int from, int to, int tag, void* buffer, int64_t bytes) {
    Quiet quiet;
    Channel& channel = ChannelOf(from, to, tag);
    channel.receives.push_back(Receive{++tickets_, static_cast<char*>(buffer), bytes});
    const uint64_t ticket = tickets_;
    channel_of_[ticket] = &channel;
    Match(&channel);
    return ticket;
  }
  Status Test(uint64_t ticket, bool* done, int64_t* received) {
    Quiet quiet;
    const auto channel = channel_of_.find(ticket);
    if (channel != channel_of_.end()) Match(channel->second);
    const auto found = done_.find(ticket);
    *done = found != done_.end() && !found->second.never && found->second.at <= Now();
    if (!*done) return Status::Ok();
    const Done result = found->second;
    done_.erase(found);
    channel_of_.erase(ticket);
    *received = result.bytes;
    return result.truncated ? Status(Code::kTransport, "a message was longer than its buffer")
                            : Status::Ok();
  }
  Messenger::Withdrawn Withdraw(int rank, uint64_t ticket) {
    Quiet quiet;
    for (auto& entry : inbox_[static_cast<size_t>(rank)]) {
      auto& receives = entry.second.receives;
      for (auto it = receives.begin(); it != receives.end(); ++it) {
        if (it->ticket != ticket) continue;
        receives.erase(it);
        return Messenger::Withdrawn::kCancelled;
      }
    }
    const auto found = done_.find(ticket);
    if (found == done_.end()) return Messenger::Withdrawn::kReceived;
    if (found->second.never || found->second.at > Now()) return Messenger::Withdrawn::kArriving;
    done_.erase(found);
    return Messenger::Withdrawn::kReceived;
  }
  bool Take(int from, int to, int tag, int64_t max_bytes, std::string* bytes) {
    Quiet quiet;
    Channel* best = nullptr;
    if (from == Messenger::kAnyRank) {
      const auto heads = heads_.find(Id(to, tag));
      if (heads == heads_.end() || heads->second.empty()) return false;
      const auto [arrival, sender] = *heads->second.begin();
      if (arrival > Now()) return false;
      best = &ChannelOf(sender, to, tag);
    } else {
      best = &ChannelOf(from, to, tag);
      if (best->messages.empty() || best->messages.front().arrival > Now()) return false;
    }
    if (best == nullptr) return false;
    Message& message = best->messages.front();
    const int64_t length = message.bytes <= max_bytes ? message.bytes : 0;
    const char* const data = message.buffered ? message.copy.data() : message.data;
    bytes->assign(data, static_cast<size_t>(length));
    if (!message.buffered) done_[message.ticket] = Done{message.bytes, Now()};
    Pop(best);
    return true;
  }
  // What is in flight from a dead rank arrives in part. A message in the middle never ends.
  void Die(int rank) {
    dead_[static_cast<size_t>(rank)] = true;
    for (auto& entry : inbox_[static_cast<size_t>(rank)]) {
      while (!entry.second.messages.empty()) Pop(&entry.second);
      entry.second.receives.clear();
    }
    for (auto& channels : inbox_) {
      for (auto& [id, channel] : channels) {
        if (id.second != rank) continue;
        auto& list = channel.messages;
        size_t kept = 0;
        while (kept < list.size() && list[kept].buffered &&
               (list[kept].arrival <= Now() || Random() % 2 == 0)) {
          ++kept;
        }
        if (kept == 0) {
          while (!list.empty()) Pop(&channel);
        }
        list.resize(kept);
      }
    }
  }

  int log_tag = -1;
  uint64_t messages = 0, message_bytes = 0;
  std::map<int, uint64_t> sent_by_tag;

 private:
  void Match(Channel* channel) {
    while (!channel->messages.empty() && !channel->receives.empty() &&
           channel->messages.front().arrival <= Now()) {
      Message& message = channel->messages.front();
      const Receive& receive = channel->receives.front();
      const int64_t fits = std::min(message.bytes, receive.bytes);
      const char* const data = message.buffered ? message.copy.data() : message.data;
      if (fits > 0) std::memcpy(receive.buffer, data, static_cast<size_t>(fits));
      done_[receive.ticket] = Done{fits, Now(), message.bytes > receive.bytes, false};
      if (!message.buffered) done_[message.ticket] = Done{message.bytes, Now(), false, false};
      Pop(channel);
      channel->receives.pop_front();
    }
  }

  std::vector<bool> dead_;
  std::vector<std::map<Id, Channel>> inbox_;
  std::unordered_map<uint64_t, Done> done_;
  std::map<Id, std::set<std::pair<int64_t, int>>> heads_;
  std::unordered_map<uint64_t, Channel*> channel_of_;
  uint64_t tickets_ = 0;
};

class SimMessenger final : public Messenger {
 public:
  SimMessenger(std::shared_ptr<Network> network, int rank, int size)
      : network_(std::move(network)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) override {
    MV_RETURN_IF_NOT_OK(CheckAlive(to));
    Step();
    *ticket = Ticket{network_->Send(rank_, to, tag, data, bytes), true};
    return Status::Ok();
  }
  Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) override {
    Step();
    *ticket = Ticket{network_->Post(from, rank_, tag, buffer, bytes), true};
    return Status::Ok();
  }
  Status Test(Ticket* ticket, bool* done, int64_t* received) override {
    Step();
    const Status status = network_->Test(ticket->handle, done, received);
    if (*done) ticket->is_open = false;
    return status;
  }
  Withdrawn Withdraw(Ticket* ticket) override {
    if (!ticket->is_open) return Withdrawn::kReceived;
    Step();
    const Withdrawn withdrawn = network_->Withdraw(rank_, ticket->handle);
    ticket->is_open = withdrawn == Withdrawn::kArriving;
    return withdrawn;
  }
  Status Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) override {
    Step();
    *got = network_->Take(from, rank_, tag, max_bytes, bytes);
    return Status::Ok();
  }

 private:
  void Step() const { Cost(4); }
  std::shared_ptr<Network> network_;
  int rank_, size_;
};

// The exchanges of the opening, which the launcher would end if a rank died.
class Hub {
 public:
  explicit Hub(int size) : arrived_(0), bytes_(static_cast<size_t>(size)) {}
  int size() const { return static_cast<int>(bytes_.size()); }
  std::vector<std::string> Exchange(int rank, const std::string& mine) {
    const int round = round_;
    {
      // Copies of strings and lists may have points in them.
      const Quiet no_points;
      bytes_[static_cast<size_t>(rank)] = mine;
      if (++arrived_ == size()) {
        arrived_ = 0;
        ++round_;
        result_ = bytes_;
      }
    }
    while (round_ == round) SleepUntil(Now() + 20000);
    const Quiet no_points;
    return result_;
  }

 private:
  int arrived_, round_ = 0;
  std::vector<std::string> bytes_, result_;
};

class SimTransport final : public multiverso::Transport {
 public:
  SimTransport(std::shared_ptr<Hub> hub, std::shared_ptr<Network> network, int rank)
      : hub_(std::move(hub)), network_(std::move(network)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string Describe() const override { return "simulation"; }
  multiverso::Result<std::vector<std::string>> Exchange(const std::string& mine,
                                                        const multiverso::WaitLimit&) override {
    return hub_->Exchange(rank_, mine);
  }
  Status CheckCanConnect() const override { return Status::Ok(); }
  multiverso::Result<std::unique_ptr<Messenger>> Connect(const multiverso::WaitLimit&) override {
    return std::unique_ptr<Messenger>(std::make_unique<SimMessenger>(network_, rank_, size()));
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Network> network_;
  int rank_;
};

}  // namespace sim
