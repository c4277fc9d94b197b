#include "c_api/background.h"

#include <exception>
#include <new>
#include <utility>

#include "base/start_thread.h"
#include "base/text.h"

namespace multiverso::c_api {
namespace {

// How much longer than a call a wait for the call may take.
constexpr auto kGrace = std::chrono::seconds(10);

// Returns the status of a call, also if it throws.
Status StatusOf(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::kMemory, "out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kInternal, error.what());
  }
}

}  // namespace

BackgroundQueue::~BackgroundQueue() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

template <class IsOver>
Status BackgroundQueue::Wait(std::unique_lock<std::mutex>* lock, const WaitLimit& limit,
                             IsOver is_over) {
  while (!is_over()) {
    const Instant now = Clock::now();
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    if (now >= std::min(limit.deadline, call_began_at_ + timeout_ + kGrace)) {
      return Status(Code::kTimeout, StrCat("waited for ", calls_.size(),
                                           " background calls on the table, which have not ended"));
    }
    changed_.wait_until(*lock, limit.NextCheck(now));
  }
  return Status::Ok();
}

Status BackgroundQueue::WaitForRoom(int64_t bytes, const WaitLimit& limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  return Wait(&lock, limit, [&] { return Fits(bytes); });
}

Result<std::shared_ptr<BackgroundQueue::Call>> BackgroundQueue::Start(
    int64_t bytes, std::function<Status()> body) {
  auto call = std::make_shared<Call>();
  call->body = std::move(body);
  call->bytes = std::max(bytes, kLeastBytes);
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!thread_.joinable()) {
    MV_ASSIGN_OR_RETURN(thread_, StartThread("the background thread", [this] { MakeCalls(); }));
  }
  if (calls_.empty()) call_began_at_ = Clock::now();
  calls_.push_back(call);
  bytes_ += call->bytes;
  in_flight_.fetch_add(1);
  changed_.notify_all();
  return call;
}

void BackgroundQueue::MakeCalls() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closing_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const std::shared_ptr<Call> call = calls_.front();
    lock.unlock();
    Status status = StatusOf(call->body);
    call->body = nullptr;  // releases the arguments
    lock.lock();
    calls_.pop_front();
    call_began_at_ = Clock::now();
    bytes_ -= call->bytes;
    call->status = std::move(status);
    call->is_done = true;
    const auto is_reported = [](const std::shared_ptr<Call>& ended) { return ended->is_reported; };
    failed_.erase(std::remove_if(failed_.begin(), failed_.end(), is_reported), failed_.end());
    if (!call->status.ok()) failed_.push_back(call);
    in_flight_.fetch_sub(1);
    changed_.notify_all();
  }
}

bool BackgroundQueue::HasEnded(const Call& call) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return call.is_done;
}

Status BackgroundQueue::WaitFor(const std::shared_ptr<Call>& call, const WaitLimit& limit,
                                int32_t* done) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Status waited = Wait(&lock, limit, [&] { return call->is_done; });
  *done = call->is_done ? 1 : 0;
  if (!call->is_done) return waited;
  call->is_reported = true;
  return call->status;
}

Status BackgroundQueue::Drain(const WaitLimit& limit) {
  if (IsIdle()) return Status::Ok();
  std::unique_lock<std::mutex> lock(mutex_);
  return Wait(&lock, limit, [&] { return calls_.empty(); });
}

Status BackgroundQueue::Flush(const WaitLimit& limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  MV_RETURN_IF_NOT_OK(Wait(&lock, limit, [&] { return calls_.empty(); }));
  Status failure;
  int64_t others = 0;
  for (const std::shared_ptr<Call>& call : failed_) {
    if (call->is_reported) continue;
    if (failure.ok()) {
      failure = call->status;
    } else {
      ++others;
    }
    call->is_reported = true;
  }
  failed_.clear();
  return others == 0 ? failure : failure.In(StrCat(others + 1, " background calls failed, first"));
}

}  // namespace multiverso::c_api
