#include "session/session_opening.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/process.h"
#include "base/raw_bytes.h"
#include "base/text.h"
#include "base/version.h"
#include "base/vote.h"
#include "group/collective_call.h"
#include "liveness/peer_connections.h"
#include "memory/segment.h"
#include "multiverso/constants.h"
#include "session/heartbeat.h"
#include "session/node_service.h"

namespace multiverso {
namespace {

// The second message: whether the rank has created the control segment.
struct Report {
  Vote vote;
  SegmentLocator locator;     // from the first rank of each node
  ConnectionAddress address;  // with several nodes
};

static_assert(sizeof(Report) <= Transport::kMaxBytes);

Status BrokenMessageOf(size_t rank) {
  return Status(Code::kTransport, StrCat("rank ", rank, " sent a broken startup message"));
}

class Opening final : private Abandonable {
 public:
  Opening(const SessionOptions& options, std::unique_ptr<Transport> transport)
      : options_(options), transport_(std::move(transport)) {}

  Result<std::unique_ptr<Session>> Run(Interrupt* interrupt);

 private:
  // The other ranks, which have joined, would otherwise wait for this rank.
  void GiveUp(const Status& why) override { context_->state()->Abort(why); }
  Status MakeHello(std::string* bytes) const;
  // Sends whether this rank has created its node's control segment, and where that and this rank
  // are. Returns the reports of all ranks, or the first failure.
  Result<std::vector<Report>> ExchangeReports(const Status& made, const WaitLimit& limit);
  // Returns the first failure among the results of all ranks. Success is sent as an empty message.
  Status AgreeOn(const Status& mine, const WaitLimit& limit);
  // Runs all steps until this rank has its group.
  Status JoinGroup(const WaitLimit& limit);
  // Waits until all ranks have their group, and are connected.
  Status AwaitAll(const WaitLimit& limit);
  // Creates the control segment on the first rank of the node.
  Status CreateControl();
  // Returns the address of this rank for other nodes, empty without other nodes or on failure.
  ConnectionAddress OpenPort();
  // Maps the control segment on the other ranks.
  Status MapControl(const std::vector<Report>& reports);
  Status MakeGroup(const std::vector<Report>& reports, std::unique_ptr<Messenger> messenger);

  SessionOptions options_;
  std::unique_ptr<Transport> transport_;
  Membership members_;
  Segment control_;
  std::unique_ptr<ConnectionPort> port_;
  std::unique_ptr<RankContext> context_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

Result<std::unique_ptr<Session>> Opening::Run(Interrupt* interrupt) {
  const WaitLimit limit = WaitLimit::Until(Clock::now() + options_.start_timeout, interrupt);
  MV_RETURN_IF_NOT_OK(JoinGroup(limit).In("init"));
  if (interrupt != nullptr) interrupt->OnAbort(this);
  const Status all_came = AwaitAll(limit);
  if (!all_came.ok()) {
    context_->state()->Leave(all_came.text());
    return all_came;
  }
  CollectiveCall::EndOpening(context_.get());
  if (interrupt != nullptr) interrupt->OnAbort(nullptr);
  return std::make_unique<Session>(options_, std::move(transport_), std::move(members_),
                                   std::move(context_), std::move(service_), std::move(heartbeat_));
}

Status Opening::AwaitAll(const WaitLimit& limit) {
  if (context_->connections() != nullptr) {
    MV_RETURN_IF_NOT_OK(context_->connections()->AwaitSettled(limit));
  }
  context_->world()->BeginAllgather(CollectiveKind::kOpen);
  return context_->world()->Wait(limit).In("init");
}

Status Opening::JoinGroup(const WaitLimit& limit) {
  std::string hello;
  MV_RETURN_IF_NOT_OK(MakeHello(&hello));
  MV_ASSIGN_OR_RETURN(const std::vector<std::string> hellos, transport_->Exchange(hello, limit));
  MV_ASSIGN_OR_RETURN(members_, Membership::FromHellos(hellos, transport_->rank()));

  MV_ASSIGN_OR_RETURN(const std::vector<Report> created, ExchangeReports(CreateControl(), limit));

  const Status mapped = MapControl(created);
  std::unique_ptr<Messenger> messenger;
  if (members_.spans_nodes()) {
    MV_ASSIGN_OR_RETURN(messenger, transport_->Connect(limit));
  }
  MV_RETURN_IF_NOT_OK(transport_->PrepareExit(limit));
  MV_RETURN_IF_NOT_OK(AgreeOn(mapped, limit));
  control_.Unlink();
  return MakeGroup(created, std::move(messenger));
}

Result<std::vector<Report>> Opening::ExchangeReports(const Status& made, const WaitLimit& limit) {
  std::string mine;
  AppendRaw(Report{Vote::Of(made), control_.locator(), OpenPort()}, &mine);
  MV_ASSIGN_OR_RETURN(const std::vector<std::string> received, transport_->Exchange(mine, limit));
  std::vector<Report> reports(received.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    size_t position = 0;
    if (!ReadRaw(received[i], &position, &reports[i])) return BrokenMessageOf(i);
    MV_RETURN_IF_NOT_OK(reports[i].vote.ToStatus(StrCat("rank ", i)));
  }
  return reports;
}

Status Opening::AgreeOn(const Status& mine, const WaitLimit& limit) {
  std::string bytes;
  if (!mine.ok()) AppendRaw(Vote::Of(mine), &bytes);
  MV_ASSIGN_OR_RETURN(const std::vector<std::string> received, transport_->Exchange(bytes, limit));
  for (size_t i = 0; i < received.size(); ++i) {
    if (received[i].empty()) continue;
    size_t position = 0;
    Vote failure;
    if (!ReadRaw(received[i], &position, &failure)) return BrokenMessageOf(i);
    MV_RETURN_IF_NOT_OK(failure.ToStatus(StrCat("rank ", i)));
  }
  return Status::Ok();
}

Status Opening::MakeHello(std::string* bytes) const {
  Hello hello;
  CopyText(hello.version, kVersion);
  hello.abi = MV_ABI_VERSION;
  hello.role = static_cast<int32_t>(options_.role);
  hello.options = options_;
  if (transport_->rank() == 0) {
    hello.pid = ProcessId();
    std::random_device random;
    hello.session = (uint64_t{random()} << 32) | random();
  }
  MV_RETURN_IF_NOT_OK(DescribeThisPlace(&hello, transport_->rank()));
  AppendRaw(hello, bytes);
  return Status::Ok();
}

Status Opening::CreateControl() {
  if (members_.spans_nodes()) MV_RETURN_IF_NOT_OK(transport_->CheckCanConnect());
  if (members_.local_rank() != 0) return Status::Ok();
  const auto ranks = static_cast<int>(members_.node_ranks().size());
  int64_t bytes = NodeMemory::ControlBytes(members_);
  int64_t scratch = NodeMemory::ScratchBytes(ranks, members_.num_nodes());
  if (members_.is_elastic()) {
    // Little is used of the memory for all ranks that may ever join.
    const int64_t needed =
        NodeMemory::ControlBytes(members_.initial_size(), members_.initial_size());
    scratch += bytes - needed;
    bytes = needed;
    Result<Segment> elastic = Segment::CreateShared(bytes, scratch, PageSize::kSmall);
    if (elastic.ok()) control_ = std::move(elastic.value());
    return elastic.status();
  }
  // On a node with one rank, the segment is shared only so that observers can read it.
  const bool is_shared = ranks > 1 || Segment::CanBeFound();
  Result<Segment> made =
      is_shared ? Segment::CreateShared(bytes, scratch) : Segment::CreatePrivate(bytes, scratch);
  if (!made.ok() && ranks == 1) made = Segment::CreatePrivate(bytes, scratch);
  if (made.ok()) control_ = std::move(made.value());
  return made.status();
}

ConnectionAddress Opening::OpenPort() {
  if (!members_.spans_nodes()) return ConnectionAddress();
  Result<std::unique_ptr<ConnectionPort>> port = PeerConnections::OpenPort();
  if (!port.ok()) {
    // The session works without connections, so the failure is only logged.
    LogWarning(StrCat("rank ", members_.rank(),
                      " can have no connections with other nodes: ", port.status().text()));
    return ConnectionAddress();
  }
  port_ = std::move(port.value());
  return port_->address;
}

Status Opening::MapControl(const std::vector<Report>& reports) {
  if (members_.local_rank() == 0) return Status::Ok();
  const auto first = static_cast<size_t>(members_.node_ranks()[0]);
  Result<Segment> mapped = Segment::OpenShared(reports[first].locator);
  if (mapped.ok()) control_ = std::move(mapped.value());
  return mapped.status();
}

Status Opening::MakeGroup(const std::vector<Report>& reports,
                          std::unique_ptr<Messenger> messenger) {
  std::unique_ptr<PeerConnections> connections;
  if (port_ != nullptr) {
    std::vector<ConnectionAddress> addresses;
    for (const Report& report : reports) addresses.push_back(report.address);
    MV_ASSIGN_OR_RETURN(connections, PeerConnections::Open(std::move(port_), members_, addresses));
  }
  if (members_.is_elastic()) {
    members_.Follow(&reinterpret_cast<NodeControl*>(control_.data())->joined);
  }
  MV_ASSIGN_OR_RETURN(context_, RankContext::Join(std::move(control_), members_,
                                                  std::move(messenger), std::move(connections)));
  if (members_.spans_nodes()) {
    MV_ASSIGN_OR_RETURN(service_, NodeService::Start(context_.get()));
  }
  if (members_.size() > 1 || members_.is_elastic()) {
    MV_ASSIGN_OR_RETURN(heartbeat_, Heartbeat::Start(context_.get()));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Session>> OpenSession(const SessionOptions& options,
                                             std::unique_ptr<Transport> transport,
                                             Interrupt* interrupt) {
  return Opening(options, std::move(transport)).Run(interrupt);
}

}  // namespace multiverso
