// Heartbeat: the thread that sends a rank's heartbeats, even while its program does something else,
// and learns at once of the death of ranks of other nodes (PeerConnections).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"

namespace multiverso {

// The thread runs for a few microseconds per second and otherwise sleeps.
class Heartbeat {
 public:
  // Returns MemoryError if the thread cannot be started. `context` outlives the heartbeat.
  static Result<std::unique_ptr<Heartbeat>> Start(RankContext* context);
  ~Heartbeat();

 private:
  explicit Heartbeat(RankContext* context) : context_(context) {}

  void Run();
  // Attends to the peer connections, if there are any, until `next`. Returns whether to stop.
  bool AttendUntil(Instant next);

  RankContext* context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace multiverso
