#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "transport/local_address.h"
#include "transport/rank_claim.h"

namespace multiverso {
namespace {

constexpr char kMark[] = "MULTIVERSO_RANK_OWNER";

struct Variable {
  int32_t launcher;
  const char* name;
  bool names_job;  // whether two jobs of a machine have different values
};

// The variables that identify a rank. PMI_FD is below.
constexpr Variable kVariables[] = {
    {kLauncherOfMultiverso, "MULTIVERSO_JOB", true},
    {kLauncherOfMultiverso, "MULTIVERSO_RANK", false},
    {kLauncherOfMultiverso, "MULTIVERSO_SIZE", false},
    {kLauncherOfMultiverso, "MULTIVERSO_JOIN", false},
    {kLauncherOfMpi, "PMIX_NAMESPACE", true},
    {kLauncherOfMpi, "PMIX_RANK", false},
    {kLauncherOfMpi, "OMPI_COMM_WORLD_SIZE", false},
    {kLauncherOfMpi, "PMI_RANK", false},
    {kLauncherOfMpi, "PMI_SIZE", false},
    {kLauncherOfMpi, "PMI_ID", false},
    {kLauncherOfMpi, "PMI_PORT", true},
    {kLauncherOfMpi, "MPI_LOCALNRANKS", false},
    {kLauncherOfMpi, "SLURM_STEP_ID", true},
    {kLauncherOfMpi, "SLURM_JOB_ID", false},
    {kLauncherOfMpi, "SLURM_PROCID", false},
    {kLauncherOfTorchrun, "TORCHELASTIC_RUN_ID", true},
    {kLauncherOfTorchrun, "TORCHELASTIC_RESTART_COUNT", false},
    {kLauncherOfTorchrun, "MASTER_PORT", false},
    {kLauncherOfTorchrun, "RANK", false},
    {kLauncherOfTorchrun, "WORLD_SIZE", false},
};

bool IsSet(const char* name) { return std::getenv(name) != nullptr; }

// Returns whether a variable is there for another reason than to tell the process its rank.
bool IsIgnored(const Variable& variable) {
  switch (variable.launcher) {
    case kLauncherOfMultiverso:
      return !IsSet("MULTIVERSO_JOB") && !IsSet("MULTIVERSO_JOIN");
    case kLauncherOfTorchrun:  // Programs without torchrun use RANK and WORLD_SIZE, too.
      return !IsSet("TORCHELASTIC_RUN_ID");
    default: {  // A batch script and an interactive step of Slurm have its variables, too.
      const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
      return std::strncmp(variable.name, "SLURM_", 6) == 0 &&
             (!IsSet("SLURM_STEP_ID") || tasks == nullptr || std::atoi(tasks) < 2);
    }
  }
}

// The variables of a launcher, as in "NAME=VALUE;NAME=VALUE;", and whether they name the job.
struct Identity {
  std::string text;
  bool names_job = false;
};

Identity IdentityOf(int32_t launcher) {
  Identity identity;
  for (const Variable& variable : kVariables) {
    const char* const value = std::getenv(variable.name);
    if (value == nullptr || variable.launcher != launcher || IsIgnored(variable)) continue;
    identity.text += StrCat(variable.name, "=", value, ";");
    identity.names_job |= variable.names_job;
  }
  // Two jobs of MPICH may have equal variables, but not the same socket to the launcher. A program
  // that a rank starts usually does not inherit the socket.
  const char* const socket = std::getenv("PMI_FD");
  struct stat status{};
  if (launcher == kLauncherOfMpi && socket != nullptr && fstat(std::atoi(socket), &status) == 0 &&
      S_ISSOCK(status.st_mode)) {
    identity.text += StrCat("PMI_FD=", status.st_ino, ";");
    identity.names_job = true;
  }
  return identity;
}

constexpr int32_t kLaunchers[] = {kLauncherOfMultiverso, kLauncherOfMpi, kLauncherOfTorchrun};

// The process that has marked variables: its id, its start, the launchers whose variables were
// about it, and the variables of all launchers, each after a semicolon.
struct Mark {
  long long process = 0;
  long long start = 0;
  int launchers = 0;
  std::string variables;

  static Mark Read() {
    Mark mark;
    const char* const text = std::getenv(kMark);
    int length = 0;
    if (text != nullptr && std::sscanf(text, "%lld:%lld:%d%n", &mark.process, &mark.start,
                                       &mark.launchers, &length) == 3) {
      mark.variables = text + length;
    }
    return mark;
  }

  bool IsOfLivingProcess() const { return start != 0 && ProcessStart(process) == start; }

  bool Has(const std::string& identity) const {
    for (size_t begin = 0; begin < identity.size();) {
      const size_t end = identity.find(';', begin) + 1;
      if (variables.find(";" + identity.substr(begin, end - begin)) == std::string::npos) {
        return false;
      }
      begin = end;
    }
    return true;
  }
};

std::atomic<int> held_socket{-1};

// Returns the id of the process that listens at the address, or 0 if it is unknown or of another
// user.
int64_t Listener([[maybe_unused]] const LocalAddress& address) {
  int64_t process = 0;
#if defined(SO_PEERCRED)
  const int fd = NewSocket(AF_UNIX);
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (fd >= 0 && address.Connect(fd) &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid()) {
    process = peer.pid;
  }
  if (fd >= 0) close(fd);
#endif
  return process;
}

}  // namespace

int32_t ClaimRank() {
  const Mark mark = Mark::Read();
  const int64_t self = ProcessId();
  const bool is_own_mark = mark.process == self && mark.IsOfLivingProcess();
  const bool is_inherited = mark.process != self && mark.IsOfLivingProcess();
  int32_t launchers = 0;
  std::string variables = ";";
  for (const int32_t launcher : kLaunchers) {
    const std::string identity = IdentityOf(launcher).text;
    variables += identity;
    if (identity.empty()) continue;
    const bool is_marked = mark.Has(identity);
    const bool is_of_other =
        is_own_mark ? is_marked && (mark.launchers & launcher) == 0 : is_inherited && is_marked;
    if (!is_of_other) launchers |= launcher;
  }
  if (launchers != 0) {
    const std::string text = StrCat(self, ":", ProcessStart(self), ":", launchers, variables);
    const char* const found = std::getenv(kMark);
    // A change of the environment disturbs other threads that read it.
    if (found == nullptr || text != found) setenv(kMark, text.c_str(), 1);
  }
  return launchers;
}

Status HoldRank(int32_t launchers) {
  std::string identity;
  for (const int32_t launcher : kLaunchers) {
    const Identity of_launcher = IdentityOf(launcher);
    if ((launcher & launchers) != 0 && of_launcher.names_job) identity += of_launcher.text;
  }
  if (identity.empty() || held_socket.load() >= 0 || !LocalAddress::EndsWithProcess()) {
    return Status::Ok();
  }
  const LocalAddress address(
      StrCat("multiverso/", geteuid(), "/rank/", std::hash<std::string>()(identity)));
  const int fd = NewSocket(AF_UNIX);
  if (fd < 0) return Status::Ok();  // Without a socket, only the launcher can notice it.
  if (address.Bind(fd) && listen(fd, 8) == 0) {
    held_socket.store(fd);
    return Status::Ok();
  }
  const bool is_taken = errno == EADDRINUSE;
  close(fd);
  const int64_t other = is_taken ? Listener(address) : 0;
  if (other == 0 || other == ProcessId()) return Status::Ok();
  return Status(
      Code::kState,
      StrCat(
          "processes ", ProcessId(), " (this one) and ", other, " are the same rank of a job (",
          identity.substr(0, identity.size() - 1),
          "): expected one process for each rank. A program that the rank itself starts, or that "
          "does not have these variables, is a session of its own"));
}

void ReleaseHeldRank() {
  const int fd = held_socket.exchange(-1);
  if (fd >= 0) close(fd);
}

}  // namespace multiverso
