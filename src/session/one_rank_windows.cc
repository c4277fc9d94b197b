// A session on Windows has one rank, and no other process sees it. So these functions, whose other
// versions are in files that end in _unix.cc, return errors, or what is true of one rank.
#include <cstdlib>

#include "base/text.h"
#include "liveness/peer_connections.h"
#include "memory/presence.h"
#include "node/find_sessions.h"
#include "node/place.h"
#include "transport/mpi_communicator.h"
#include "transport/rank_claim.h"
#include "transport/socket_communicator.h"

namespace multiverso {
namespace {

Status NeedsLinux() {
  return Status(
      Code::kUnsupported,
      "jobs of several ranks need Linux: on Windows, start the program without a launcher");
}

}  // namespace

Status MarkPresent(int /*fd*/, int /*index*/) { return NeedsLinux(); }
void ClearPresent(int /*fd*/, int /*index*/) {}
bool IsPresent(int /*fd*/, int /*index*/) { return true; }
int OpenForMarks(int /*fd*/) { return -1; }
Status MarkShared(int /*fd*/, int /*index*/) { return NeedsLinux(); }
void CloseMarks(int /*fd*/) {}

std::string HostName() {
  const char* const name = std::getenv("COMPUTERNAME");
  return name == nullptr ? "unknown host" : name;
}
std::string MemoryDomain() { return HostName(); }
std::vector<int64_t> OtherProcesses() { return {}; }
std::vector<std::string> SegmentsOf(int64_t, uint64_t, int64_t) { return {}; }

void Stream::Close() {}
StreamBell::~StreamBell() = default;
void StreamBell::Ring() const {}
Result<std::unique_ptr<ConnectionPort>> PeerConnections::OpenPort() { return NeedsLinux(); }
Result<std::unique_ptr<PeerConnections>> PeerConnections::Open(
    std::unique_ptr<ConnectionPort> /*port*/, const Membership& /*members*/,
    const std::vector<ConnectionAddress>& /*addresses*/, const ConnectionTimeouts& /*timeouts*/) {
  return NeedsLinux();
}
void PeerConnections::Attend(Instant /*until*/, const DeathHandler& /*on_death*/) {}
Status PeerConnections::AwaitSettled(const WaitLimit& /*limit*/) { return NeedsLinux(); }
void PeerConnections::AnnounceClose() {}
void PeerConnections::AnnounceLoss(int /*rank*/) {}
bool PeerConnections::HasEnded(int /*rank*/) { return false; }

// The variables of launchers are those of this process, so that it does not take itself for a
// program that a rank has started.
int32_t ClaimRank() { return kLauncherOfMultiverso + kLauncherOfMpi + kLauncherOfTorchrun; }
Status HoldRank(int32_t /*launchers*/) { return Status::Ok(); }
void ReleaseHeldRank() {}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Open(const std::string& /*path*/,
                                                            const void* /*handle*/,
                                                            std::chrono::milliseconds /*timeout*/) {
  return NeedsLinux();
}
void MpiCommunicator::SkipFinalizeAtExit(bool /*skips*/) {}
Status MpiCommunicator::MeetAtExit(std::chrono::milliseconds /*timeout*/) { return Status::Ok(); }
Result<std::unique_ptr<Communicator>> SocketCommunicator::Open(const LocalJob& /*job*/) {
  return NeedsLinux();
}

}  // namespace multiverso
