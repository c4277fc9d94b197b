#include "session/session_opening.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "node/node_snapshot.h"
#include "session/version.h"

namespace multiverso {
namespace {

// What a rank says after it has made or mapped the control segment.
struct Vote {
  int32_t code = 0;
  int32_t unused = 0;
  char text[256] = {};
  SegmentLocator locator;
  ConnectionAddress lifeline;
};

std::string Bytes(const Status& status, const SegmentLocator& locator,
                  const ConnectionAddress& lifeline) {
  Vote outcome;
  outcome.code = static_cast<int32_t>(status.code());
  CopyText(outcome.text, status.text());
  outcome.locator = locator;
  outcome.lifeline = lifeline;
  return std::string(reinterpret_cast<const char*>(&outcome), sizeof(outcome));
}

// The first failure among all ranks' outcomes, the same on every rank.
Status FirstFailure(const std::vector<std::string>& outcomes, std::vector<Vote>* read) {
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Vote outcome;
    if (outcomes[i].size() != sizeof(outcome)) {
      return Status(Code::kTransport, StrCat("rank ", i, " sent a broken startup message"));
    }
    std::memcpy(&outcome, outcomes[i].data(), sizeof(outcome));
    if (outcome.code != 0) {
      return Status(static_cast<Code>(outcome.code), StrCat("rank ", i, ": ", outcome.text));
    }
    read->push_back(outcome);
  }
  return Status::Ok();
}

}  // namespace

SessionOpening::SessionOpening(const SessionOptions& options, std::unique_ptr<Transport> transport)
    : Operation(Clock::now() + options.timeout),
      options_(options),
      transport_(std::move(transport)) {}

Status SessionOpening::Step(const WaitLimit& limit) {
  std::vector<std::string> all;
  // Each phase is left by falling into the next; a pending wait comes back to where it was.
  switch (phase_) {
    case Phase::kStart:
      MV_RETURN_IF_NOT_OK(BeginHello());
      phase_ = Phase::kHello;
      [[fallthrough]];
    case Phase::kHello:
      MV_RETURN_IF_NOT_OK(transport_->PollExchange(limit, &all).In("init"));
      MV_RETURN_IF_NOT_OK(BeginControl(all).In("init"));
      phase_ = Phase::kControl;
      [[fallthrough]];
    case Phase::kControl:
      MV_RETURN_IF_NOT_OK(transport_->PollExchange(limit, &all).In("init"));
      MV_RETURN_IF_NOT_OK(MapControl(all).In("init"));
      if (members_.spans_nodes()) MV_RETURN_IF_NOT_OK(transport_->BeginConnect().In("init"));
      phase_ = Phase::kConnect;
      [[fallthrough]];
    case Phase::kConnect:
      if (members_.spans_nodes()) {
        MV_RETURN_IF_NOT_OK(transport_->PollConnect(limit, &messenger_).In("init"));
      }
      MV_RETURN_IF_NOT_OK(BeginMapped().In("init"));
      phase_ = Phase::kMapped;
      [[fallthrough]];
    case Phase::kMapped:
      MV_RETURN_IF_NOT_OK(transport_->PollExchange(limit, &all).In("init"));
      MV_RETURN_IF_NOT_OK(Join(all).In("init"));
      phase_ = Phase::kLifelines;
      [[fallthrough]];
    case Phase::kLifelines:
      if (group_->connections() != nullptr) {
        MV_RETURN_IF_NOT_OK(group_->connections()->AwaitSettled(limit));
      }
      group_->world()->BeginAllgather(CollectiveKind::kJoin);
      phase_ = Phase::kMeet;
      [[fallthrough]];
    case Phase::kMeet:
      MV_RETURN_IF_NOT_OK(group_->world()->Wait(limit).In("init"));
  }
  session_ =
      std::make_unique<Session>(options_, std::move(transport_), std::move(members_),
                                std::move(group_), std::move(service_), std::move(heartbeat_));
  return Status::Ok();
}

void SessionOpening::Cancel(const std::string& reason) {
  if (group_ != nullptr) group_->state()->Abort(Status(Code::kAborted, reason));
}

Status SessionOpening::BeginHello() {
  Hello hello;
  CopyText(hello.version, kVersion);
  hello.abi = kAbi;
  hello.mode = static_cast<int32_t>(options_.mode.mode);
  hello.staleness = options_.mode.staleness;
  hello.role = static_cast<int32_t>(options_.role);
  hello.on_loss = static_cast<int32_t>(options_.on_loss);
  hello.timeout_ms = options_.timeout.count();
  hello.peer_timeout_ms = options_.peer_timeout.count();
  MV_RETURN_IF_NOT_OK(DescribeThisPlace(&hello, transport_->rank()));
  return transport_->BeginExchange(
      std::string(reinterpret_cast<const char*>(&hello), sizeof(hello)));
}

Status SessionOpening::BeginControl(const std::vector<std::string>& hellos) {
  Result<Membership> members = Membership::FromHellos(hellos, transport_->rank());
  if (!members.ok()) return members.status();
  members_ = std::move(members.value());
  Status status;
  if (members_.spans_nodes()) status = transport_->CheckCanConnect();
  SegmentLocator locator;
  if (status.ok() && members_.local_rank() == 0) {
    const auto ranks = static_cast<int>(members_.node_ranks().size());
    const int64_t bytes = NodeMemory::ControlBytes(members_.size());
    const int64_t scratch = NodeMemory::ScratchBytes(ranks);
    // Of one rank it is shared only with who looks from outside.
    const bool shared = ranks > 1 || NodeSnapshot::CanBeSeen();
    Result<Segment> made =
        shared ? Segment::CreateShared(bytes, scratch) : Segment::CreatePrivate(bytes, scratch);
    if (!made.ok() && ranks == 1) made = Segment::CreatePrivate(bytes, scratch);
    status = made.status();
    if (made.ok()) {
      control_ = std::move(made.value());
      locator = control_.locator();
    }
  }
  return transport_->BeginExchange(Bytes(status, locator, OpenPort()));
}

ConnectionAddress SessionOpening::OpenPort() {
  if (!members_.spans_nodes()) return ConnectionAddress();
  Result<std::unique_ptr<ConnectionPort>> port = PeerConnections::OpenPort();
  if (!port.ok()) {
    // Also the others do without, and say so.
    LogWarning(StrCat("rank ", members_.rank(),
                      " can have no connections with other nodes: ", port.status().text()));
    return ConnectionAddress();
  }
  port_ = std::move(port.value());
  return port_->address;
}

Status SessionOpening::MapControl(const std::vector<std::string>& outcomes) {
  std::vector<Vote> read;
  MV_RETURN_IF_NOT_OK(FirstFailure(outcomes, &read));
  for (const Vote& outcome : read) addresses_.push_back(outcome.lifeline);
  if (members_.local_rank() != 0) {
    const auto first = static_cast<size_t>(members_.node_ranks()[0]);
    Result<Segment> mapped = Segment::OpenShared(read[first].locator);
    mapped_ = mapped.status();
    if (mapped.ok()) control_ = std::move(mapped.value());
  }
  return Status::Ok();
}

Status SessionOpening::BeginMapped() {
  return transport_->BeginExchange(Bytes(mapped_, SegmentLocator(), ConnectionAddress()));
}

Status SessionOpening::Join(const std::vector<std::string>& outcomes) {
  std::vector<Vote> read;
  MV_RETURN_IF_NOT_OK(FirstFailure(outcomes, &read));
  control_.Unlink();
  std::unique_ptr<PeerConnections> connections;
  if (port_ != nullptr) {
    auto opened = PeerConnections::Open(std::move(port_), members_, addresses_);
    if (!opened.ok()) return opened.status();
    connections = std::move(opened.value());
  }
  auto group = RankContext::Join(std::move(control_), members_, std::move(messenger_),
                                 std::move(connections));
  if (!group.ok()) return group.status();
  group_ = std::move(group.value());
  if (members_.spans_nodes()) {
    Result<std::unique_ptr<NodeService>> service = NodeService::Start(group_.get());
    if (!service.ok()) return service.status();
    service_ = std::move(service.value());
  }
  if (members_.size() > 1) {
    Result<std::unique_ptr<Heartbeat>> heartbeat = Heartbeat::Start(group_.get());
    if (!heartbeat.ok()) return heartbeat.status();
    heartbeat_ = std::move(heartbeat.value());
  }
  return Status::Ok();
}

}  // namespace multiverso
