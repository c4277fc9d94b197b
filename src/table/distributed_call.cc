#include "table/distributed_call.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/text.h"
#include "group/control_channel.h"
#include "memory/futex.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// The longest sleep between two checks for answers.
constexpr auto kLongestNap = std::chrono::milliseconds(2);
// The interval at which a waiting call checks whether its servers were lost.
constexpr auto kCheckEvery = std::chrono::milliseconds(50);
// The wait of a failed call for its messages in flight, whose receivers are polling.
constexpr auto kWindDown = std::chrono::seconds(2);
// The same wait after a loss or a timeout: it is shorter, since the receiver may never poll again.
constexpr auto kWindDownFromLost = std::chrono::milliseconds(100);
// The time in which the death of a server becomes known after messages to the server fail.
constexpr auto kKnownWithin = std::chrono::seconds(2);

}  // namespace

DistributedCall::DistributedCall(TableShard* here, ShardService* service, RankContext* rank_context,
                                 const Request& request)
    : here_(here),
      service_(service),
      rank_context_(rank_context),
      request_(request),
      messenger_(rank_context->control_channel()->messenger()),
      tag_(rank_context->control_channel()->tags()->Take()),
      began_(Clock::now()),
      backoff_(kLongestNap),
      checked_(began_) {
  if (tag_ >= 0) OpenPipelines();
}

DistributedCall::~DistributedCall() {
  const bool over = std::all_of(pipelines_.begin(), pipelines_.end(),
                                [](ServerPipeline& pipeline) { return pipeline.WindDown(); });
  if (!over) return;
  ControlChannel* const control_channel = rank_context_->control_channel();
  if (tag_ >= 0) control_channel->tags()->GiveBack(tag_);
  for (const ServerPipeline& pipeline : pipelines_) {
    if (pipeline.tag() != tag_) control_channel->tags()->GiveBack(pipeline.tag());
    const Failover& failover = pipeline.failover();
    if (failover.slot >= 0) failover.numbers->GiveBack(failover.node, failover.slot);
  }
}

void DistributedCall::AddPipeline(int server, ChunkSource source, RowRange rows) {
  Failover failover;
  int tag = tag_;
  if (survives_losses()) {
    ControlChannel* const control_channel = rank_context_->control_channel();
    failover.node = rank_context_->members().node_of(server);
    if (!rank_context_->peers()->ExitReason(server).empty()) {
      // Another pipeline may use tag_ with the same rank, so this pipeline takes its own tag.
      server = control_channel->ServiceRankOf(failover.node);
      const int other = control_channel->tags()->Take();
      if (other >= 0) tag = other;
    }
    failover.numbers = control_channel->numbers();
    if (IsChange(request_.kind)) failover.slot = failover.numbers->Take(failover.node);
  }
  pipelines_.emplace_back(messenger_, server, tag, here_->id(), std::move(source), rows, failover);
  answered_.push_back(false);
}

void DistributedCall::OpenPipelines() {
  const TableSpec& spec = here_->spec();
  const Partition& partition = here_->partition();
  if (request_.kind == RequestKind::kSetHyper) {
    for (int node = 0; node < rank_context_->members().num_nodes(); ++node) {
      if (node == rank_context_->members().node()) continue;
      const int leader = rank_context_->members().leader_of(node);
      // A node without workers has no replica.
      if (partition.is_replicated() && !rank_context_->members().is_worker(leader)) continue;
      AddPipeline(partition.is_replicated() ? leader
                                            : rank_context_->control_channel()->ServiceRankOf(node),
                  ChunkSource::OfOne(spec, request_), {});
    }
    return;
  }
  const bool of_rows = IsOfRows(request_.kind);
  std::vector<std::vector<int64_t>> by_owner(partition.servers().size() + 1);
  if (of_rows) SplitRows(&by_owner);
  for (size_t place = 0; place < partition.servers().size(); ++place) {
    const int server = partition.servers()[place];
    const RowRange rows = of_rows ? partition.RowsOf(place) : RowsAskedOf(place);
    if (rank_context_->members().is_local(server)) continue;
    if (of_rows && !by_owner[place].empty()) {
      AddPipeline(server, ChunkSource(spec, request_, std::move(by_owner[place])), rows);
    } else if (!of_rows && rows.count() > 0) {
      AddPipeline(server, ChunkSource(spec, request_, rows), rows);
    }
  }
  if (of_rows) {
    source_ = std::make_unique<ChunkSource>(spec, request_, std::move(by_owner.back()));
  } else {
    source_ = std::make_unique<ChunkSource>(spec, request_, partition.node_rows());
  }
}

void DistributedCall::SplitRows(std::vector<std::vector<int64_t>>* by_owner) const {
  const Partition& partition = here_->partition();
  const RowRange here = partition.node_rows();
  for (int64_t i = 0; i < request_.num_ids; ++i) {
    const int64_t row = request_.row_ids[i];
    const size_t owner = here.Contains(row) ? by_owner->size() - 1 : partition.OwnerOf(row);
    (*by_owner)[owner].push_back(i);
  }
}

RowRange DistributedCall::RowsAskedOf(size_t place) const {
  const Partition& partition = here_->partition();
  RowRange rows = partition.RowsOf(place);
  const bool is_array = here_->spec().kind == static_cast<int32_t>(TableKind::kArray);
  if (!is_array || !here_->shard()->updater().counts_steps()) return rows;
  // A stripe of an array is updated in one piece, so the boundaries move to whole stripes.
  const Membership& members = rank_context_->members();
  const std::vector<int>& servers = partition.servers();
  const int node = members.node_of(servers[place]);
  size_t first_place = place;
  while (first_place > 0 && members.node_of(servers[first_place - 1]) == node) --first_place;
  const int64_t node_first = partition.RowsOf(first_place).first;
  const int64_t stripe = here_->shard()->layout().rows_per_stripe();
  const auto cut = [&](int64_t row) { return node_first + (row - node_first) / stripe * stripe; };
  const bool is_last = place + 1 == servers.size() || members.node_of(servers[place + 1]) != node;
  return RowRange{cut(rows.first), is_last ? rows.end : cut(rows.end)};
}

Status DistributedCall::StepHere(const WaitLimit& limit, bool* progressed) {
  if (source_ == nullptr) return Status::Ok();
  if (!has_chunk_) {
    has_chunk_ = source_->Next(&chunk_);
    progress_ = Progress();
    if (!has_chunk_) {
      source_.reset();
      return Status::Ok();
    }
  }
  MV_RETURN_IF_NOT_OK(here_->shard()->Run(chunk_.request, &progress_, limit));
  source_->Finish(chunk_);
  has_chunk_ = false;
  *progressed = true;
  return Status::Pending();
}

Status DistributedCall::StepPipelines(bool* progressed) {
  bool all_answered = true;
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (answered_[i]) continue;
    Status status = pipelines_[i].Step(progressed);
    // With failover, the pipeline itself keeps errors that may mean a loss, until it is redirected.
    if (!survives_losses()) {
      status = failure_.Defer(status);
    } else if (status.code() == Code::kPeerLost && pipelines_[i].replaced() >= 0) {
      status = rank_context_->peers()->About(pipelines_[i].replaced(), status);
    }
    if (!status.ok() && !status.pending()) return status;
    answered_[i] = status.ok();
    all_answered = all_answered && answered_[i];
  }
  return all_answered ? Status::Ok() : Status::Pending();
}

Status DistributedCall::Replace(ServerPipeline* pipeline) {
  ControlChannel* const control_channel = rank_context_->control_channel();
  const int node = rank_context_->members().node_of(pipeline->server());
  const int next = control_channel->ServiceRankOf(node);
  if (!rank_context_->peers()->ExitReason(next).empty()) return Status::Pending();
  const int tag = control_channel->tags()->Take();
  if (tag < 0) return Status(Code::kState, "too many calls at once");
  if (pipeline->tag() != tag_) control_channel->tags()->GiveBack(pipeline->tag());
  return pipeline->Redirect(next, tag);
}

Status DistributedCall::Run(const WaitLimit& limit) {
  if (tag_ < 0) return Status(Code::kState, "too many calls at once");
  const Status status = RunToAnswers(limit);
  if (!status.ok()) WindDown(status);
  return status;
}

Status DistributedCall::RunToAnswers(const WaitLimit& limit) {
  const WaitLimit no_wait{limit.deadline, Instant::min()};
  for (;;) {
    bool progressed = false;
    const Status there = failure_.is_set() ? failure_.Get() : StepPipelines(&progressed);
    if (!there.ok() && !there.pending()) return there;
    // The call waits for a lock only after all servers have answered, so as not to delay pipelines.
    const Status here = StepHere(there.ok() ? limit : no_wait, &progressed);
    if (!here.ok() && !here.pending()) return here;
    if (there.ok() && here.ok()) return Status::Ok();
    const Instant now = Clock::now();
    if (progressed) {
      backoff_.Reset();
    } else {
      if (now >= limit.deadline) return TimeoutStatus();
      if (now >= checked_ + kCheckEvery) {
        checked_ = now;
        MV_RETURN_IF_NOT_OK(CheckServers());
      }
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    // A waiting thread does the service thread's work, which saves a context switch.
    if (progressed || service_->Poll()) continue;
    const auto nap = backoff_.Next(now, ShardService::kEagerWhenBusy);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

Status DistributedCall::CheckServers() {
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (answered_[i]) continue;
    ServerPipeline* const pipeline = &pipelines_[i];
    const int server = pipeline->server();
    const std::string reason = rank_context_->peers()->ExitReason(server);
    if (reason.empty()) {
      if (pipeline->stall().ok()) continue;
      if (!stalled_at_.has_value()) stalled_at_ = Clock::now();
      if (Clock::now() >= *stalled_at_ + kKnownWithin) return pipeline->stall();
      continue;
    }
    if (survives_losses()) {
      const Status replaced = Replace(pipeline);
      stalled_at_.reset();
      if (replaced.ok()) continue;
      if (!replaced.pending()) return replaced;
    }
    const RowRange rows = pipeline->rows();
    return rank_context_->state()->ReportLost(
        server, StrCat(rank_context_->members().NameRank(server), " ", reason, " with rows ",
                       rows.first, " to ", rows.end - 1, rank_context_->peers()->Trace(server)));
  }
  return Status::Ok();
}

Status DistributedCall::TimeoutStatus() const {
  std::vector<int> silent;
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (!answered_[i]) silent.push_back(pipelines_[i].server());
  }
  const Status timeout(
      Code::kTimeout,
      StrCat("waited ", SecondsBetween(began_, Clock::now()), " s for ", NameRanks(silent),
             " to answer", silent.empty() ? "" : rank_context_->peers()->Trace(silent[0])));
  return silent.empty() ? timeout : rank_context_->peers()->About(silent[0], timeout);
}

void DistributedCall::WindDown(const Status& failure) {
  const bool lost = failure.code() == Code::kPeerLost || failure.code() == Code::kTimeout;
  const Instant until = Clock::now() + (lost ? kWindDownFromLost : kWindDown);
  for (;;) {
    bool over = true;
    for (ServerPipeline& pipeline : pipelines_) over = pipeline.WindDown() && over;
    if (over) return;
    if (Clock::now() >= until) break;
    (void)service_->Poll();
    YieldCore();
  }
  for (ServerPipeline& pipeline : pipelines_) pipeline.Abandon();
}

}  // namespace multiverso
