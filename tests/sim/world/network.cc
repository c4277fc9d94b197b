#include "world/network.h"

#include <algorithm>
#include <cstring>

namespace sim {

using multiverso::Code;
using multiverso::Messenger;
using multiverso::Status;

namespace {

// A longer message is never buffered, and one in eight of the others is not.
constexpr int64_t kMostBuffered = 4096;
constexpr uint64_t kUnbuffered = 8;
// How long a rank in an exchange sleeps before it looks again, at first and at most.
constexpr int64_t kExchangeNap = 20000;
constexpr int64_t kLongestExchangeNap = 5000000;
// A call of MPI takes as long as some points.
constexpr int64_t kCallCost = 4;

}  // namespace

// ---- Network ------------------------------------------------------------------------------------

Network::Network(int size)
    : is_dead_(static_cast<size_t>(size)), inboxes_(static_cast<size_t>(size)) {}

Network::Channel* Network::ChannelOf(int from, int to, int tag) {
  Channel& channel = inboxes_[static_cast<size_t>(to)][Id(tag, from)];
  if (channel.heads == nullptr) {
    channel.heads = &heads_[Id(tag, to)];
    channel.from = from;
  }
  return &channel;
}

void Network::Push(Channel* channel, Message message) {
  if (channel->messages.empty()) channel->heads->emplace(message.arrival, channel->from);
  channel->messages.push_back(std::move(message));
}

void Network::Pop(Channel* channel) {
  channel->heads->erase({channel->messages.front().arrival, channel->from});
  channel->messages.pop_front();
  if (!channel->messages.empty()) {
    channel->heads->emplace(channel->messages.front().arrival, channel->from);
  }
}

void Network::Match(Channel* channel) {
  while (!channel->messages.empty() && !channel->receives.empty() &&
         channel->messages.front().arrival <= Now()) {
    const Message& message = channel->messages.front();
    const Posted& receive = channel->receives.front();
    const int64_t fits = std::min(message.bytes, receive.bytes);
    if (fits > 0) {
      std::memcpy(receive.buffer, message.bytes_begin(), static_cast<size_t>(fits));
    }
    ended_[receive.ticket] = Ended{fits, message.bytes > receive.bytes};
    if (!message.is_buffered) ended_[message.ticket] = Ended{message.bytes};
    Pop(channel);
    channel->receives.pop_front();
  }
}

uint64_t Network::Send(int from, int to, int tag, const void* data, int64_t bytes) {
  const Quiet no_points;
  const bool is_of_call = tag >= multiverso::kFirstCallTag && tag != multiverso::kAggregateTag;
  Traffic& traffic = traffic_[is_of_call ? static_cast<int>(multiverso::kFirstCallTag) : tag];
  ++traffic.messages;
  traffic.bytes += static_cast<uint64_t>(bytes);
  Channel* const channel = ChannelOf(from, to, tag);
  Message message{++tickets_, static_cast<const char*>(data), {}, bytes, 0, false};
  message.is_buffered = bytes == 0 || (bytes < kMostBuffered && Random() % kUnbuffered != 0);
  message.arrival = channel->last_arrival = std::max(channel->last_arrival + 1, Now() + Latency());
  const uint64_t ticket = message.ticket;
  channels_[ticket] = channel;
  if (message.is_buffered) {
    message.copy.assign(message.data, static_cast<size_t>(bytes));
    ended_[ticket] = Ended{bytes};
  }
  if (!is_dead_[static_cast<size_t>(to)]) Push(channel, std::move(message));
  return ticket;
}

uint64_t Network::Receive(int from, int to, int tag, void* buffer, int64_t bytes) {
  const Quiet no_points;
  Channel* const channel = ChannelOf(from, to, tag);
  const uint64_t ticket = ++tickets_;
  channel->receives.push_back(Posted{ticket, static_cast<char*>(buffer), bytes});
  channels_[ticket] = channel;
  Match(channel);
  return ticket;
}

Status Network::Test(uint64_t ticket, bool* done, int64_t* received) {
  const Quiet no_points;
  const auto channel = channels_.find(ticket);
  if (channel != channels_.end()) Match(channel->second);
  const auto found = ended_.find(ticket);
  *done = found != ended_.end();
  if (!*done) return Status::Ok();
  const Ended result = found->second;
  ended_.erase(found);
  channels_.erase(ticket);
  *received = result.bytes;
  return result.is_truncated ? Status(Code::kTransport, "a message was longer than its buffer")
                             : Status::Ok();
}

Messenger::Withdrawn Network::Withdraw(int rank, uint64_t ticket) {
  const Quiet no_points;
  const auto channel = channels_.find(ticket);
  if (channel != channels_.end() && !is_dead_[static_cast<size_t>(rank)]) {
    std::deque<Posted>& receives = channel->second->receives;
    const auto found = std::find_if(receives.begin(), receives.end(),
                                    [&](const Posted& posted) { return posted.ticket == ticket; });
    if (found != receives.end()) {
      receives.erase(found);
      channels_.erase(channel);
      return Messenger::Withdrawn::kCancelled;
    }
    channels_.erase(channel);
  }
  ended_.erase(ticket);
  return Messenger::Withdrawn::kReceived;
}

bool Network::Take(int from, int to, int tag, int64_t max_bytes, std::string* bytes) {
  const Quiet no_points;
  if (from == Messenger::kAnyRank) {
    const auto heads = heads_.find(Id(tag, to));
    if (heads == heads_.end() || heads->second.empty()) return false;
    from = heads->second.begin()->second;
  }
  Channel* const channel = ChannelOf(from, to, tag);
  if (channel->messages.empty() || channel->messages.front().arrival > Now()) return false;
  const Message& message = channel->messages.front();
  const int64_t length = message.bytes <= max_bytes ? message.bytes : 0;
  bytes->assign(message.bytes_begin(), static_cast<size_t>(length));
  if (!message.is_buffered) ended_[message.ticket] = Ended{message.bytes};
  Pop(channel);
  return true;
}

void Network::Die(int rank) {
  is_dead_[static_cast<size_t>(rank)] = true;
  for (auto& [id, channel] : inboxes_[static_cast<size_t>(rank)]) {
    while (!channel.messages.empty()) Pop(&channel);
    channel.receives.clear();
  }
  for (auto& inbox : inboxes_) {
    for (auto& [id, channel] : inbox) {
      if (id.second != rank) continue;
      std::deque<Message>& messages = channel.messages;
      size_t kept = 0;
      while (kept < messages.size() && messages[kept].is_buffered &&
             (messages[kept].arrival <= Now() || Random() % 2 == 0)) {
        ++kept;
      }
      while (kept == 0 && !messages.empty()) Pop(&channel);
      messages.resize(kept);
    }
  }
}

// ---- Messenger and transport --------------------------------------------------------------------

Status SimMessenger::Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) {
  MV_RETURN_IF_NOT_OK(CheckAlive(to, tag));
  Cost(kCallCost);
  *ticket = Ticket{network_->Send(rank_, to, tag, data, bytes), true};
  return Status::Ok();
}

Status SimMessenger::Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) {
  Cost(kCallCost);
  *ticket = Ticket{network_->Receive(from, rank_, tag, buffer, bytes), true};
  return Status::Ok();
}

Status SimMessenger::Test(Ticket* ticket, bool* done, int64_t* received) {
  Cost(kCallCost);
  const Status status = network_->Test(ticket->handle, done, received);
  if (*done) ticket->is_open = false;
  return status;
}

Messenger::Withdrawn SimMessenger::Withdraw(Ticket* ticket) {
  if (!ticket->is_open) return Withdrawn::kReceived;
  Cost(kCallCost);
  ticket->is_open = false;
  return network_->Withdraw(rank_, ticket->handle);
}

Status SimMessenger::Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) {
  Cost(kCallCost);
  *got = network_->Take(from, rank_, tag, max_bytes, bytes);
  return Status::Ok();
}

multiverso::Result<std::vector<std::string>> Hub::Exchange(int rank, const std::string& mine,
                                                           const multiverso::WaitLimit& limit) {
  const int round = round_;
  {
    const Quiet no_points;
    bytes_[static_cast<size_t>(rank)] = mine;
    if (++arrived_ == size()) {
      arrived_ = 0;
      ++round_;
      result_ = bytes_;
    }
  }
  int64_t nap = kExchangeNap;
  while (round_ == round) {
    SleepUntil(Now() + nap);
    if (nap < kLongestExchangeNap) nap *= 2;
    if (multiverso::Clock::now() >= limit.deadline) {
      return Status(Code::kTimeout, "an exchange of the opening waits for other ranks");
    }
  }
  const Quiet no_points;
  return result_;
}

multiverso::Result<std::vector<std::string>> SimTransport::Exchange(
    const std::string& mine, const multiverso::WaitLimit& limit) {
  return hub_->Exchange(rank_, mine, limit);
}

multiverso::Result<std::unique_ptr<Messenger>> SimTransport::Connect(
    const multiverso::WaitLimit& /*limit*/) {
  return std::unique_ptr<Messenger>(std::make_unique<SimMessenger>(network_, rank_));
}

}  // namespace sim
