#include <thread>

#include "base/text.h"
#include "liveness/stream.h"

// On Windows no stream opens: a job detects a lost node only by its missing heartbeats.

namespace multiverso {
namespace {

Status Failure() { return Status(Code::kUnsupported, "no connections between nodes on Windows"); }

}  // namespace

std::string NameOf(const NetworkAddress& /*address*/) { return "no address"; }
NetworkAddress LoopbackAddress() { return NetworkAddress(); }
std::vector<NetworkAddress> MachineAddresses() { return {}; }
bool FillWithRandom(void* /*bytes*/, size_t /*count*/) { return false; }

void Stream::Close() {}
Status Stream::Listen(uint16_t* /*port*/) { return Failure(); }
Status Stream::Connect(const NetworkAddress& /*to*/, uint16_t /*port*/) { return Failure(); }
Status Stream::CheckConnected() const { return Failure(); }
Status Stream::Accept(Stream* /*connection*/, bool* accepted) {
  *accepted = false;
  return Failure();
}
bool Stream::Send(const void* /*data*/, size_t /*bytes*/) { return false; }
Stream::Received Stream::Receive(void* /*data*/, size_t /*max_bytes*/, size_t* bytes) {
  *bytes = 0;
  return Received::kError;
}

bool Stream::HasEnded() const { return false; }

StreamBell::~StreamBell() = default;
Status StreamBell::Open() { return Failure(); }
void StreamBell::Ring() const {}

bool AwaitStreams(const StreamBell& /*bell*/, Instant until,
                  std::vector<AwaitedStream>* /*streams*/) {
  std::this_thread::sleep_until(until);
  return false;
}

}  // namespace multiverso
