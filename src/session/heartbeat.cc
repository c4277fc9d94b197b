#include "session/heartbeat.h"

#include "base/start_thread.h"

namespace multiverso {

Result<std::unique_ptr<Heartbeat>> Heartbeat::Start(RankContext* context) {
  std::unique_ptr<Heartbeat> heartbeat(new Heartbeat(context));
  // The first heartbeat is sent here, before any rank can miss it.
  context->failure_detector()->Beat();
  MV_ASSIGN_OR_RETURN(heartbeat->thread_, StartThread("the heartbeat", [beating = heartbeat.get()] {
                        beating->Run();
                      }));
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (context_->connections() != nullptr) context_->connections()->Wake();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Run() {
  const auto interval = context_->failure_detector()->interval();
  for (Instant next = Clock::now() + interval; !AttendUntil(next); next = Clock::now() + interval) {
    ControlChannel* const channel = context_->control_channel();
    // After a suspension, this rank learns whether others count it as lost before its next
    // heartbeat, since its calls ask only until then (SessionState::CheckNotExcluded).
    if (channel != nullptr && context_->failure_detector()->HasMissedHeartbeats())
      channel->CatchUp();
    context_->failure_detector()->Beat();
    context_->failure_detector()->WarnOfSilentRanks();
    context_->state()->AbortIfAnyIsSilent();
    if (channel != nullptr) channel->WarnIfStuck();
  }
}

bool Heartbeat::AttendUntil(Instant next) {
  std::unique_lock<std::mutex> guard(mutex_);
  PeerConnections* const connections = context_->connections();
  if (connections == nullptr) return changed_.wait_until(guard, next, [&] { return stop_; });
  while (!stop_ && Clock::now() < next) {
    guard.unlock();
    connections->Attend(next, [&](int rank, const std::string& how, int after) {
      context_->state()->RecordDeath(rank, how, after);
    });
    guard.lock();
  }
  return stop_;
}

}  // namespace multiverso
