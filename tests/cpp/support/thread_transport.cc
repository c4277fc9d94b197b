#include "support/thread_transport.h"

#include <algorithm>

#include "base/text.h"

namespace multiverso {
namespace {

// How often a waiting rank checks its limit.
constexpr auto kCheckInterval = std::chrono::milliseconds(50);

}  // namespace

ThreadHub::ThreadHub(int size, int max_delay, uint64_t seed)
    : exchanges_(static_cast<size_t>(size), 0),
      mail_(std::make_shared<MailRoom>(size, max_delay, seed)) {
  for (auto& exchange : bytes_) exchange.resize(static_cast<size_t>(size));
}

Result<std::vector<std::string>> ThreadHub::Exchange(int rank, const std::string& bytes,
                                                     const WaitLimit& limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  const int64_t exchange = ++exchanges_[static_cast<size_t>(rank)];
  bytes_[exchange % 2][static_cast<size_t>(rank)] = bytes;
  changed_.notify_all();
  for (;;) {
    std::vector<int> late;
    for (size_t i = 0; i < exchanges_.size(); ++i) {
      if (exchanges_[i] < exchange) late.push_back(static_cast<int>(i));
    }
    if (late.empty()) return bytes_[exchange % 2];
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout, StrCat("waited for ", NameRanks(late)));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    changed_.wait_until(guard, std::min(limit.earliest(), now + kCheckInterval));
  }
}

}  // namespace multiverso
