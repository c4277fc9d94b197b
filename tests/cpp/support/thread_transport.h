// ThreadTransport: the Transport of ranks that are threads of one process. With it a test can run
// many ranks, also under a sanitizer or a debugger.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/thread_messenger.h"
#include "transport/transport.h"

namespace multiverso {

// The state that the ranks of one job share. Their threads may use the hub concurrently.
class ThreadHub {
 public:
  // `max_delay` and `seed` are those of the MailRoom.
  explicit ThreadHub(int size, int max_delay = 0, uint64_t seed = 0);

  int size() const { return static_cast<int>(exchanges_.size()); }
  Result<std::vector<std::string>> Exchange(int rank, const std::string& bytes,
                                            const WaitLimit& limit);
  const std::shared_ptr<MailRoom>& mail() const { return mail_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> exchanges_;  // number of exchanges that each rank has begun
  // The bytes of even and of odd exchanges; no rank begins exchange n + 2 before all have ended
  // exchange n.
  std::vector<std::string> bytes_[2];
  std::shared_ptr<MailRoom> mail_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string Describe() const override { return "threads of one process"; }
  Result<std::vector<std::string>> Exchange(const std::string& mine,
                                            const WaitLimit& limit) override {
    return hub_->Exchange(rank_, mine, limit);
  }
  Status CheckCanConnect() const override { return Status::Ok(); }
  Result<std::unique_ptr<Messenger>> Connect(const WaitLimit& /*limit*/) override {
    return std::unique_ptr<Messenger>(std::make_unique<ThreadMessenger>(hub_->mail(), rank_));
  }

 private:
  std::shared_ptr<ThreadHub> hub_;
  int rank_;
};

}  // namespace multiverso
