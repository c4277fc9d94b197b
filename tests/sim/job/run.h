// RunJob: runs one plan under the simulator, in this process or in one of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "job/plan.h"

namespace sim {

// What a run leaves. It lies in memory that parent and child share, so that it is there after a
// crash, too.
struct Result {
  static constexpr size_t kTraceBytes = 1 << 20;
  static constexpr size_t kViolationBytes = 1 << 14;

  bool is_complete = false;  // false after a crash
  uint64_t hash = 0, points = 0, switches = 0;
  int64_t virtual_ns = 0;
  int kills = 0, suspensions = 0;
  char violation[kViolationBytes] = {};  // the first one, or ""
  size_t num_violations = 0;
  size_t trace_bytes = 0;
  char trace[kTraceBytes] = {};  // calls, faults and outcomes in order of virtual time

  std::string Trace() const { return std::string(trace, trace_bytes); }
};

// Runs the plan in this process, once, and checks it.
void RunJob(const Plan& plan, Result* result);

// Runs plans in processes of their own, several at a time.
class Runner {
 public:
  // A run may take `wall_seconds` of real time.
  Runner(int processes, int wall_seconds);
  ~Runner();

  // Starts a run, after waiting until there is room for it. `then` gets the result when it is over.
  using Then = std::function<void(const Plan&, const Result&)>;
  void Start(const Plan& plan, Then then);
  // Waits for all runs.
  void Wait();
  // Runs one plan, and returns its violation, or "".
  std::string Run(const Plan& plan);

 private:
  struct Slot {
    int pid = -1;
    Plan plan;
    Result* result = nullptr;
    Then then;
  };

  void WaitForOne();

  std::vector<Slot> slots_;
  int wall_seconds_;
};

}  // namespace sim
