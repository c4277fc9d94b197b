#include "remote/distributed_call.h"

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
constexpr auto kMaxNap = std::chrono::milliseconds(2);
// The time in which the messages in flight of a failed call may complete, while receivers poll.
constexpr auto kWindDown = std::chrono::seconds(2);
// The time for that after a loss, a timeout or a mismatch, when a receiver may never poll again,
// and after an interrupt, which the caller wants to take effect.
constexpr auto kWindDownFromLost = std::chrono::milliseconds(100);

}  // namespace

DistributedCall::DistributedCall(TableShard* table_shard, ShardService* service,
                                 RankContext* rank_context, const Request& request,
                                 std::vector<RowRange> rows)
    : table_shard_(table_shard),
      service_(service),
      rank_context_(rank_context),
      request_(request),
      rows_(std::move(rows)),
      messenger_(rank_context->control_channel()->messenger()),
      call_(rank_context->control_channel()->tags()->Take()),
      watch_(&rank_context->members(), rank_context->peers(), rank_context->state()),
      backoff_(kMaxNap),
      last_check_(Clock::now()) {
  watch_.Begin();
  if (call_.tag >= 0) OpenPipelines();
}

DistributedCall::~DistributedCall() {
  if (call_.tag < 0) return;
  std::vector<LateAnswers::Part> parts;
  for (const ServerPipeline& pipeline : pipelines_) parts.push_back(pipeline.Missing());
  service_->late_answers()->Finish(call_.tag, std::move(parts));
}

void DistributedCall::AddPipeline(int server, ChunkSource source, RowRange rows) {
  pipelines_.emplace_back(messenger_, service_->buffers(), server, call_, table_shard_,
                          std::move(source), rows);
  answered_.push_back(false);
}

void DistributedCall::OpenPipelines() {
  const TableSpec& spec = table_shard_->spec();
  const Partition& partition = table_shard_->partition();
  if (request_.kind == RequestKind::kSetHyper) {
    for (int node = 0; node < rank_context_->members().num_nodes(); ++node) {
      if (node == rank_context_->members().node()) continue;
      AddPipeline(rank_context_->control_channel()->ServiceRankOf(node),
                  ChunkSource::WithoutValues(spec, request_), {});
    }
    return;
  }
  const Membership& members = rank_context_->members();
  const bool of_rows = HasIds(request_.kind);
  std::vector<std::vector<int64_t>> positions(partition.nodes().size());
  if (of_rows) SplitRowIds(&positions);
  for (size_t i = 0; i < partition.nodes().size(); ++i) {
    const Partition::NodePart& part = partition.nodes()[i];
    std::vector<RowRange> rows = of_rows ? std::vector<RowRange>() : PartsOf(part.rows);
    if (rows.empty() && positions[i].empty()) continue;
    ChunkSource source = of_rows ? ChunkSource(spec, request_, std::move(positions[i]))
                                 : ChunkSource(spec, request_, std::move(rows));
    if (part.node == members.node()) {
      local_source_ = std::make_unique<ChunkSource>(std::move(source));
      continue;
    }
    // Any server of the node can reach all of its rows. The workers of this node ask different
    // ones.
    const size_t servers = part.end_server - part.first_server;
    const size_t chosen = part.first_server + static_cast<size_t>(members.rank()) % servers;
    AddPipeline(partition.servers()[chosen], std::move(source), part.rows);
  }
}

std::vector<RowRange> DistributedCall::PartsOf(RowRange range) const {
  std::vector<RowRange> parts;
  if (rows_.empty() && range.count() > 0) parts.push_back(range);
  for (const RowRange& rows : rows_) {
    const RowRange both{std::max(rows.first, range.first), std::min(rows.end, range.end)};
    if (both.count() > 0) parts.push_back(both);
  }
  return parts;
}

void DistributedCall::SplitRowIds(std::vector<std::vector<int64_t>>* positions) const {
  const Partition& partition = table_shard_->partition();
  for (int64_t i = 0; i < request_.num_ids; ++i) {
    const int64_t row = table_shard_->spec().RowOfId(request_.kind, request_.row_ids[i]);
    (*positions)[partition.NodeOf(row)].push_back(i);
  }
}

Status DistributedCall::StepLocalRows(const WaitLimit& limit, bool* progressed) {
  if (local_source_ == nullptr) return Status::Ok();
  if (!has_local_chunk_) {
    has_local_chunk_ = local_source_->Next(&local_chunk_);
    local_progress_ = Progress();
    if (!has_local_chunk_) {
      local_source_.reset();
      return Status::Ok();
    }
  }
  MV_RETURN_IF_NOT_OK(table_shard_->shard()->Run(local_chunk_.request, &local_progress_, limit));
  local_source_->Finish(local_chunk_);
  has_local_chunk_ = false;
  *progressed = true;
  return Status::Pending();
}

Status DistributedCall::StepPipelines(bool* progressed) {
  bool all_answered = true;
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (answered_[i]) continue;
    const Status status = failure_.Defer(pipelines_[i].Step(progressed));
    if (!status.ok() && !status.pending()) return status;
    answered_[i] = status.ok();
    all_answered = all_answered && answered_[i];
  }
  return all_answered ? Status::Ok() : Status::Pending();
}

Status DistributedCall::Run(const WaitLimit& limit) {
  if (call_.tag < 0) {
    return Status(Code::kState, StrCat("expected at most ", CallTags::kTags,
                                       " calls to other nodes in flight, with those that have "
                                       "ended and whose answers have not arrived"));
  }
  const Status status = RunToAnswers(limit);
  if (!status.ok()) WindDown(status);
  FlightRecorder* const recorder = rank_context_->memory()->recorder();
  for (const ServerPipeline& pipeline : pipelines_) {
    recorder->CountMessages(table_shard_->id(), pipeline.counts());
  }
  recorder->CountMessages(table_shard_->id(), counts_);
  return status;
}

Status DistributedCall::RunToAnswers(const WaitLimit& limit) {
  const WaitLimit no_wait{limit.deadline, Instant::min()};
  SessionState* const state = rank_context_->state();
  const bool was_aborted = state->IsAborted();
  bool is_abort_noticed = false;
  Instant last = Clock::now();
  MV_RETURN_IF_NOT_OK(state->CheckNotExcluded());
  // What a lost server might still answer does not count.
  if (rank_context_->peers()->HasRecordedLoss()) MV_RETURN_IF_NOT_OK(CheckServers());
  for (;;) {
    bool progressed = false;
    const Status remote = failure_.is_set() ? failure_.Get() : StepPipelines(&progressed);
    // A server may be lost since the last check, which says more about it than the messenger does.
    if (remote.code() == Code::kPeerLost) MV_RETURN_IF_NOT_OK(CheckServers());
    if (!remote.ok() && !remote.pending()) return remote;
    // The call waits for a lock only after all servers have answered, so as not to delay pipelines.
    const Status local = StepLocalRows(remote.ok() ? limit : no_wait, &progressed);
    if (!local.ok() && !local.pending()) return local;
    if (remote.ok() && local.ok()) return Status::Ok();
    const Instant now = Clock::now();
    if (progressed) {
      backoff_.Reset();
    } else {
      counts_.waiting += now - last;
      if (now >= limit.deadline) return watch_.TimedOut(Unanswered(""));
      if (!remote.ok() && watch_.IsLineDue(now)) {
        const std::string call =
            StrCat(" in ", NameOf(request_.kind), " of table '", table_shard_->spec().name, "'");
        watch_.LogLate(Unanswered(call), limit.deadline);
      }
      if (now >= last_check_ + WaitLimit::kCheckInterval) {
        last_check_ = now;
        MV_RETURN_IF_NOT_OK(CheckServers());
        // Answers to this call still arrive soon after an abort, or not at all.
        if (is_abort_noticed) MV_RETURN_IF_NOT_OK(state->CheckRunning(!was_aborted));
        is_abort_noticed = state->IsAborted();
      }
    }
    last = now;
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
  MV_RETURN_IF_NOT_OK(rank_context_->state()->CheckNotExcluded());
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (answered_[i]) continue;
    const int server = pipelines_[i].server();
    if (!rank_context_->peers()->IsLost(server)) continue;
    const RowRange rows = pipelines_[i].rows();
    return watch_.Lost({server}, StrCat(" with rows ", rows.first, " to ", rows.end - 1));
  }
  // A server that has left may have told only the lost rank.
  const int silenced_by = watch_.LossThatSilences(UnansweredServers());
  if (silenced_by >= 0) {
    return watch_.Lost({silenced_by}, watch_.WhileWaiting(NameOf(request_.kind)));
  }
  return CheckRound();
}

Status DistributedCall::CheckRound() {
  const PeerStatus* const peers = rank_context_->peers();
  if (request_.rounds == 0) return Status::Ok();
  if (!peers->HasRecordedLoss()) return table_shard_->consistency()->CheckAdds(request_.rounds);
  // A round to which all workers have added is applied in spite of a loss.
  if (!watch_.MessagesHaveArrived()) return Status::Ok();
  const Membership& members = rank_context_->members();
  for (int rank = 0; rank < members.size(); ++rank) {
    if (rank == members.rank() || !peers->IsLost(rank)) continue;
    return watch_.Lost(
        {rank}, StrCat(" while rank ", members.rank(), " waited for other ranks to apply a round"));
  }
  return Status::Ok();
}

std::vector<int> DistributedCall::UnansweredServers() const {
  std::vector<int> servers;
  for (size_t i = 0; i < pipelines_.size(); ++i) {
    if (!answered_[i]) servers.push_back(pipelines_[i].server());
  }
  return servers;
}

PeerWatch::Late DistributedCall::Unanswered(const std::string& call) const {
  const std::vector<int> unanswered = UnansweredServers();
  const std::string round =
      request_.rounds == 0 ? "" : StrCat(", once all workers have made ", request_.rounds, " adds");
  return PeerWatch::Late{call, StrCat(NameRanks(unanswered), " to answer", round),
                         unanswered.empty() ? -1 : unanswered[0]};
}

void DistributedCall::WindDown(const Status& failure) {
  const bool is_short = failure.code() == Code::kPeerLost || failure.code() == Code::kTimeout ||
                        failure.code() == Code::kAborted || failure.code() == Code::kMismatch;
  const Instant until = Clock::now() + (is_short ? kWindDownFromLost : kWindDown);
  for (;;) {
    bool all_over = true;
    for (ServerPipeline& pipeline : pipelines_) all_over = pipeline.WindDown() && all_over;
    if (all_over) return;
    if (Clock::now() >= until) break;
    (void)service_->Poll();
    YieldCore();
  }
  for (ServerPipeline& pipeline : pipelines_) pipeline.Abandon();
  const auto has_left = [&](ServerPipeline& pipeline) {
    return pipeline.HasLeftMemory() || rank_context_->peers()->IsLost(pipeline.server());
  };
  (void)PollUntil(Clock::now() + rank_context_->members().peer_timeout(), Backoff(kMaxNap), [&] {
    (void)service_->Poll();
    const bool all_left = std::all_of(pipelines_.begin(), pipelines_.end(), has_left);
    return all_left ? Status::Ok() : Status::Pending();
  });
}

}  // namespace multiverso
