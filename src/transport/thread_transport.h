// ThreadTransport: ranks as threads of one process, so that a test can run many of them, and
// under a sanitizer or a debugger.
#ifndef MULTIVERSO_TRANSPORT_THREAD_TRANSPORT_H_
#define MULTIVERSO_TRANSPORT_THREAD_TRANSPORT_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace multiverso {

// What the ranks of one such job share. Thread-safe.
class ThreadHub {
 public:
  explicit ThreadHub(int size);

  int size() const { return static_cast<int>(rounds_.size()); }
  void Deposit(int rank, const std::string& bytes);
  Status Collect(int rank, const WaitLimit& limit, std::vector<std::string>* all);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> rounds_;  // exchanges each rank has begun
  // Two rounds are enough: nobody begins round n + 2 before all have collected round n.
  std::vector<std::string> bytes_[2];
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string Describe() const override { return "threads of one process"; }
  Status BeginExchange(const std::string& mine) override;
  Status PollExchange(const WaitLimit& limit, std::vector<std::string>* all) override;

 private:
  std::shared_ptr<ThreadHub> hub_;
  int rank_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_THREAD_TRANSPORT_H_
