#include <thread>

#include "base/text.h"
#include "liveness/stream.h"

// On Windows no stream opens: a job detects a lost node only by its missing heartbeats.

namespace multiverso {
namespace {

Status NotHere() { return Status(Code::kUnsupported, "no connections between nodes on Windows"); }

}  // namespace

std::string NameOf(const NetworkAddress& /*address*/) { return "no address"; }
NetworkAddress LoopbackAddress() { return NetworkAddress(); }
std::vector<NetworkAddress> MachineAddresses() { return {}; }
bool FillWithRandom(void* /*bytes*/, size_t /*count*/) { return false; }

void Stream::Close() {}
void Stream::CloseInForkedChild() {}
Status Stream::Listen(uint16_t* /*port*/) { return NotHere(); }
Status Stream::Connect(const NetworkAddress& /*to*/, uint16_t /*port*/) { return NotHere(); }
Status Stream::CheckConnected() const { return NotHere(); }
Status Stream::Accept(Stream* /*connection*/, bool* came) {
  *came = false;
  return NotHere();
}
bool Stream::Send(const void* /*data*/, size_t /*bytes*/) { return false; }
Stream::Got Stream::Receive(void* /*data*/, size_t /*most*/, size_t* bytes) {
  *bytes = 0;
  return Got::kError;
}

bool Stream::HasEnded() const { return false; }

StreamBell::~StreamBell() = default;
Status StreamBell::Open() { return NotHere(); }
void StreamBell::Ring() const {}

bool AwaitStreams(const StreamBell& /*bell*/, Instant until, std::vector<Awaited>* /*all*/) {
  std::this_thread::sleep_until(until);
  return false;
}

}  // namespace multiverso
