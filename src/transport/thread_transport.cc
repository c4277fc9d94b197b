#include "transport/thread_transport.h"

#include <algorithm>

#include "base/text.h"

namespace multiverso {
namespace {

// How often a waiting rank checks its limit.
constexpr auto kLook = std::chrono::milliseconds(50);

}  // namespace

ThreadHub::ThreadHub(int size, int longest_delay, uint64_t seed)
    : rounds_(static_cast<size_t>(size), 0),
      mail_(std::make_shared<MailRoom>(size, longest_delay, seed)) {
  for (auto& round : bytes_) round.resize(static_cast<size_t>(size));
}

Result<std::vector<std::string>> ThreadHub::Exchange(int rank, const std::string& bytes,
                                                     const WaitLimit& limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  const int64_t round = ++rounds_[static_cast<size_t>(rank)];
  bytes_[round % 2][static_cast<size_t>(rank)] = bytes;
  changed_.notify_all();
  for (;;) {
    std::vector<int> late;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      if (rounds_[i] < round) late.push_back(static_cast<int>(i));
    }
    if (late.empty()) return bytes_[round % 2];
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout, StrCat("waited for ", NameRanks(late)));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    changed_.wait_until(guard, std::min(limit.earliest(), now + kLook));
  }
}

}  // namespace multiverso
