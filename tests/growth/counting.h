// Growth: what a job sends and keeps while one of its sizes is doubled.
//
// A time says little on a shared machine; a count is exact on any. A test opens jobs whose ranks
// are threads, makes one call, and compares the counts for one size and for its double: messages
// and bytes between nodes, bytes of memory. The tests in Python beside this file count within one
// rank.
//
// A law that is at its limit is written as it is. One that is not is written as it is today, as an
// exact expectation, beside the goal. So a worse law fails, and whoever improves one replaces the
// expectation. There is no test where only a time shows a law, or where the count depends on one:
// how often a waiting rank wakes, what a float16 element costs, and how many copies of a model a
// round over nodes holds at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs.h"

namespace multiverso::testing {

struct Sent {
  int64_t messages = 0;
  int64_t bytes = 0;
};

// Counts what all ranks of a job send. Its threads may use it concurrently.
class SentCounter {
 public:
  void Add(int tag, int64_t bytes) {
    const std::lock_guard<std::mutex> guard(mutex_);
    sent_.emplace_back(tag, bytes);
  }
  void Clear() {
    const std::lock_guard<std::mutex> guard(mutex_);
    sent_.clear();
  }
  // Returns the sum of the messages with tags from `first` to `last`. Heartbeats have another tag
  // than calls, so a count does not depend on the time that has passed.
  Sent Of(int first, int last) {
    const std::lock_guard<std::mutex> guard(mutex_);
    Sent sum;
    for (const auto& [tag, bytes] : sent_) {
      if (tag < first || tag > last) continue;
      ++sum.messages;
      sum.bytes += bytes;
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<int, int64_t>> sent_;
};

// Counts the messages of the messenger that it has.
class CountingMessenger final : public Messenger {
 public:
  CountingMessenger(std::unique_ptr<Messenger> messenger, SentCounter* counter)
      : messenger_(std::move(messenger)), counter_(counter) {}

  int rank() const override { return messenger_->rank(); }
  int size() const override { return messenger_->size(); }
  Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) override {
    counter_->Add(tag, bytes);
    return messenger_->Send(to, tag, data, bytes, ticket);
  }
  Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) override {
    return messenger_->Receive(from, tag, buffer, bytes, ticket);
  }
  Status Test(Ticket* ticket, bool* done, int64_t* received) override {
    return messenger_->Test(ticket, done, received);
  }
  Withdrawn Withdraw(Ticket* ticket) override { return messenger_->Withdraw(ticket); }
  Status Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) override {
    return messenger_->Take(from, tag, max_bytes, bytes, got);
  }

 private:
  std::unique_ptr<Messenger> messenger_;
  SentCounter* counter_;
};

class CountingTransport final : public ThreadTransport {
 public:
  CountingTransport(std::shared_ptr<ThreadHub> hub, int rank, SentCounter* counter)
      : ThreadTransport(std::move(hub), rank), counter_(counter) {}

  Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& limit) override {
    auto messenger = ThreadTransport::Connect(limit);
    if (!messenger.ok()) return messenger.status();
    return std::unique_ptr<Messenger>(
        std::make_unique<CountingMessenger>(std::move(messenger.value()), counter_));
  }

 private:
  SentCounter* counter_;
};

// The sessions of a job on `nodes` nodes of `per_node` ranks.
class CountedJob {
 public:
  CountedJob(int nodes, int per_node, Mode mode = Mode::kAsync)
      : virtual_nodes_(per_node), sessions_(static_cast<size_t>(nodes * per_node)) {
    const auto hub = std::make_shared<ThreadHub>(nodes * per_node);
    SessionOptions options = OptionsOf(Role::kAll);
    options.mode.mode = mode;
    OnRanks([&](int rank) {
      sessions_[static_cast<size_t>(rank)] = ValueOf(multiverso::OpenSession(
          options, std::make_unique<CountingTransport>(hub, rank, &counter_)));
    });
  }
  ~CountedJob() {
    OnRanks([&](int rank) { EXPECT_TRUE(IsOk(session(rank)->Close())); });
  }
  CountedJob(const CountedJob&) = delete;
  CountedJob& operator=(const CountedJob&) = delete;

  Session* session(int rank) const { return sessions_[static_cast<size_t>(rank)].get(); }
  template <class Body>
  void OnRanks(const Body& body) const {
    OnThreads(static_cast<int>(sessions_.size()), body);
  }
  // Creates a table on all ranks, and returns that of each rank.
  std::vector<Table*> CreateTable(const TableSpec& spec) const {
    std::vector<Table*> tables(sessions_.size());
    OnRanks([&](int rank) {
      tables[static_cast<size_t>(rank)] = ValueOf(Create(session(rank), spec));
    });
    return tables;
  }
  // Returns what all ranks send with these tags while `body` runs.
  template <class Body>
  Sent Count(int first_tag, int last_tag, const Body& body) {
    counter_.Clear();
    body();
    return counter_.Of(first_tag, last_tag);
  }

 private:
  VirtualNodes virtual_nodes_;
  SentCounter counter_;  // outlives the sessions
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace multiverso::testing
