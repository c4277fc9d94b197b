#include "session/heartbeat.h"

#include <system_error>

#include "base/text.h"
#include "base/without_signals.h"

namespace multiverso {

Result<std::unique_ptr<Heartbeat>> Heartbeat::Start(NodeGroup* group) {
  std::unique_ptr<Heartbeat> heartbeat(new Heartbeat(group));
  // Before anybody can miss it.
  group->pulse()->Beat();
  const WithoutSignals without_signals;
  try {
    heartbeat->thread_ = std::thread(&Heartbeat::Run, heartbeat.get());
  } catch (const std::system_error& error) {
    return Status(Code::kMemory, StrCat("cannot start the heartbeat: ", error.what()));
  }
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (group_->lifelines() != nullptr) group_->lifelines()->Wake();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Run() {
  const auto interval = group_->pulse()->interval();
  for (Instant next = Clock::now() + interval; !SleepUntil(next); next = Clock::now() + interval) {
    group_->pulse()->Beat();
    group_->pulse()->Warn();
    if (group_->intercom() != nullptr) group_->intercom()->WarnIfStuck();
  }
}

bool Heartbeat::SleepUntil(Instant next) {
  std::unique_lock<std::mutex> guard(mutex_);
  Lifelines* const lifelines = group_->lifelines();
  if (lifelines == nullptr) return changed_.wait_until(guard, next, [&] { return stop_; });
  while (!stop_ && Clock::now() < next) {
    guard.unlock();
    lifelines->Attend(next, [&](int rank, const std::string& how, int after) {
      group_->NoteDeath(rank, how, after);
    });
    guard.lock();
  }
  return stop_;
}

}  // namespace multiverso
