#include "transport/thread_transport.h"

#include "base/text.h"

namespace multiverso {

ThreadHub::ThreadHub(int size, int longest_delay, uint64_t seed)
    : rounds_(static_cast<size_t>(size), 0),
      mail_(std::make_shared<MailRoom>(size, longest_delay, seed)) {
  for (auto& round : bytes_) round.resize(static_cast<size_t>(size));
}

void ThreadHub::Publish(int rank, const std::string& bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto index = static_cast<size_t>(rank);
  ++rounds_[index];
  bytes_[rounds_[index] % 2][index] = bytes;
  changed_.notify_all();
}

Status ThreadHub::Collect(int rank, const WaitLimit& limit, std::vector<std::string>* all) {
  std::unique_lock<std::mutex> guard(mutex_);
  const int64_t round = rounds_[static_cast<size_t>(rank)];
  const auto everybody_began = [&] {
    for (const int64_t began : rounds_) {
      if (began < round) return false;
    }
    return true;
  };
  // Slices keep Instant::max() out of the standard library's clock conversions.
  while (!everybody_began()) {
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      std::vector<int> late;
      for (size_t i = 0; i < rounds_.size(); ++i) {
        if (rounds_[i] < round) late.push_back(static_cast<int>(i));
      }
      return Status(Code::kTimeout, StrCat("waited for ", NameRanks(late)));
    }
    if (now >= limit.slice_end) return Status::Pending();
    changed_.wait_until(guard, std::min(limit.first(), now + std::chrono::milliseconds(50)));
  }
  *all = bytes_[round % 2];
  return Status::Ok();
}

Status ThreadTransport::BeginExchange(const std::string& mine) {
  hub_->Publish(rank_, mine);
  return Status::Ok();
}

Status ThreadTransport::PollExchange(const WaitLimit& limit, std::vector<std::string>* all) {
  return hub_->Collect(rank_, limit, all);
}

}  // namespace multiverso
