#include "job/run.h"

#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>

#include "base/text.h"
#include "engine/scheduler.h"
#include "job/ledger.h"
#include "job/options.h"
#include "job/rank.h"
#include "memory/limits.h"
#include "world/network.h"

namespace sim {
namespace {

using multiverso::StrCat;

// The longest virtual time of a job. All limits of calls are shorter, so a job that is not over by
// then waits for what never comes.
constexpr int64_t kLongestJob = int64_t{3600} * 1000000000;

Result* result_of_this_process = nullptr;
constexpr size_t kAlternateStackBytes = 1 << 16;

void Write(Result* result, const std::string& violation) {
  ++result->num_violations;
  if (result->violation[0] != '\0') return;
  const size_t bytes = std::min(violation.size(), Result::kViolationBytes - 1);
  std::memcpy(result->violation, violation.data(), bytes);
  result->violation[bytes] = '\0';
}

// Says in the result where the process is, and ends it.
void OnSignal(int number) {
  Result* const result = result_of_this_process;
  char text[256];
  std::snprintf(text, sizeof(text), "%s in rank %d at %.6f s of virtual time",
                number == SIGALRM ? "no hang: the limit of real time was reached"
                                  : (std::string("no crash: ") + strsignal(number)).c_str(),
                CurrentRank(), static_cast<double>(Now() - StartOfTime()) * 1e-9);
  Write(result, text);
  void* frames[64];
  const int count = backtrace(frames, 64);
  char** const names = backtrace_symbols(frames, count);
  for (int i = 0; i < count && names != nullptr; ++i) {
    const size_t room = Result::kTraceBytes - result->trace_bytes;
    const int written = std::snprintf(result->trace + result->trace_bytes, room, "%s\n", names[i]);
    if (written < 0 || static_cast<size_t>(written) >= room) break;
    result->trace_bytes += static_cast<size_t>(written);
  }
  _exit(1);
}

void CatchSignals(int wall_seconds) {
  stack_t stack{};
  stack.ss_sp = std::malloc(kAlternateStackBytes);
  stack.ss_size = kAlternateStackBytes;
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) {
    sigaction(number, &action, nullptr);
  }
  alarm(static_cast<unsigned>(wall_seconds));
}

int CountDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  int count = 0;
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count;
}

int CountSharedMappings() {
  FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[4096];
  int count = 0;
  while (maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
    if (std::strstr(line, "memfd:") != nullptr) ++count;
  }
  if (maps != nullptr) std::fclose(maps);
  return count;
}

Options OptionsOfWorld(const Plan& plan) {
  Options options;
  options.seed = plan.seed;
  options.mean_run = plan.mean_run;
  options.writes_are_points = plan.writes;
  options.reorders = plan.reorders;
  options.may_signal = plan.signals;
  options.point_ns = plan.point_ns;
  options.net_max_ns = plan.latency_us * 1000;
  options.deadline_ns = kLongestJob;
  return options;
}

}  // namespace

void RunJob(const Plan& plan, Result* result) {
  // What the library does once in a process it has done now, also for a plan that was not drawn
  // here.
  (void)IsSupported(plan);
  (void)multiverso::CheckFitsInMemory(int64_t{1} << 24);
  setenv("MULTIVERSO_RANKS_PER_NODE", std::to_string(plan.per_node).c_str(), 1);
  setenv("MULTIVERSO_LOG", "off", 0);
  const int descriptors = CountDescriptors();
  const int mappings = CountSharedMappings();
  Ledger ledger(plan);
  ledger.WriteTo(result->trace, &result->trace_bytes, Result::kTraceBytes);
  std::list<std::vector<char>> memory;
  Start(OptionsOfWorld(plan));
  {
    Job job;
    job.plan = &plan;
    job.ledger = &ledger;
    job.hub = std::make_shared<Hub>(plan.ranks);
    job.network = std::make_shared<Network>(plan.ranks);
    job.memory = &memory;
    OnDeath([&](int rank) {
      job.network->Die(rank);
      ledger.Died(rank);
      ++result->kills;
    });
    OnSuspend([&](int rank, int64_t ns) {
      ledger.Suspended(rank, ns);
      ++result->suspensions;
    });
    for (int rank = 0; rank < plan.ranks; ++rank) {
      Spawn(rank, [job, rank] { RankProgram(job, rank).Run(); });
    }
    const bool is_over = Run();
    ledger.CheckJob(is_over ? "" : Why());
    result->hash = Hash();
    result->points = Points();
    result->switches = Switches();
    result->virtual_ns = Now() - StartOfTime();
    if (is_over && result->kills == 0) {
      if (CountDescriptors() != descriptors)
        ledger.Violation("nothing is left behind: descriptors");
      if (CountSharedMappings() != mappings) ledger.Violation("nothing is left behind: mappings");
    }
    for (const std::string& violation : ledger.violations()) Write(result, violation);
    Finish();
  }
  result->is_complete = true;
}

Runner::Runner(int processes, int wall_seconds)
    : slots_(static_cast<size_t>(processes)), wall_seconds_(wall_seconds) {
  for (Slot& slot : slots_) {
    void* const memory =
        mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    slot.result = static_cast<Result*>(memory);
  }
}

Runner::~Runner() {
  Wait();
  for (Slot& slot : slots_) munmap(slot.result, sizeof(Result));
}

void Runner::Start(const Plan& plan, Then then) {
  const auto is_free = [](const Slot& slot) { return slot.pid < 0; };
  auto slot = std::find_if(slots_.begin(), slots_.end(), is_free);
  if (slot == slots_.end()) {
    WaitForOne();
    slot = std::find_if(slots_.begin(), slots_.end(), is_free);
  }
  // The trace is not cleared, since that would touch all of its memory.
  slot->result->is_complete = false;
  slot->result->kills = slot->result->suspensions = 0;
  slot->result->violation[0] = '\0';
  slot->result->num_violations = 0;
  slot->result->trace_bytes = 0;
  slot->plan = plan;
  slot->then = std::move(then);
  std::fflush(stdout);
  slot->pid = fork();
  if (slot->pid != 0) return;
  result_of_this_process = slot->result;
  CatchSignals(wall_seconds_);
  RunJob(slot->plan, slot->result);
  _exit(0);
}

void Runner::WaitForOne() {
  int status = 0;
  const int pid = waitpid(-1, &status, 0);
  for (Slot& slot : slots_) {
    if (slot.pid != pid || pid < 0) continue;
    slot.pid = -1;
    if (!slot.result->is_complete && slot.result->violation[0] == '\0') {
      Write(slot.result, StrCat("no crash: the process ended with status ", status));
    }
    const Then then = std::move(slot.then);
    then(slot.plan, *slot.result);
  }
}

void Runner::Wait() {
  while (
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.pid >= 0; })) {
    WaitForOne();
  }
}

std::string Runner::Run(const Plan& plan) {
  std::string violation;
  Start(plan, [&](const Plan&, const Result& result) { violation = result.violation; });
  Wait();
  return violation;
}

}  // namespace sim
