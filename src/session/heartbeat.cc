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
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Run() {
  std::unique_lock<std::mutex> guard(mutex_);
  while (!changed_.wait_for(guard, group_->pulse()->interval(), [&] { return stop_; })) {
    group_->pulse()->Beat();
    group_->pulse()->Warn();
  }
}

}  // namespace multiverso
