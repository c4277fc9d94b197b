#include "table/distributed_call.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/text.h"
#include "group/control_channel.h"
#include "memory/futex.h"
#include "table/shard_service.h"
#include "transport/transport.h"

namespace multiverso {
namespace {

// Longest sleep between two looks for answers.
constexpr auto kLongestNap = std::chrono::milliseconds(2);
// How often a waiting call looks after those it waits for.
constexpr auto kLook = std::chrono::milliseconds(50);
// How long a call that failed waits for what is under way; its receivers are polling.
constexpr auto kWindDown = std::chrono::seconds(2);
// The same if the other side is known to have gone.
constexpr auto kWindDownFromLost = std::chrono::milliseconds(100);
// How long it may take to learn of the death of a server to which messages fail.
constexpr auto kKnownWithin = std::chrono::seconds(2);

}  // namespace

DistributedCall::DistributedCall(Table* table, const TableRequest& request, Instant deadline)
    : Operation(deadline),
      table_(table),
      request_(request),
      messenger_(table->group()->control_channel()->messenger()),
      tag_(table->group()->control_channel()->tags()->Take()),
      began_(Clock::now()),
      backoff_(kLongestNap),
      looked_(began_) {
  if (tag_ >= 0) OpenLanes();
}

DistributedCall::~DistributedCall() {
  const bool over = std::all_of(lanes_.begin(), lanes_.end(),
                                [](ServerPipeline& lane) { return lane.WindDown(); });
  if (!over) return;
  ControlChannel* const control_channel = table_->group()->control_channel();
  if (tag_ >= 0) control_channel->tags()->GiveBack(tag_);
  for (const ServerPipeline& lane : lanes_) {
    if (lane.tag() != tag_) control_channel->tags()->GiveBack(lane.tag());
    const LaneBackup& backup = lane.backup();
    if (backup.slot >= 0) backup.numbers->GiveBack(backup.node, backup.slot);
  }
}

void DistributedCall::AddLane(int server, ChunkSource source, RowRange rows) {
  LaneBackup backup;
  int tag = tag_;
  if (survives_losses()) {
    ControlChannel* const control_channel = table_->group()->control_channel();
    backup.node = table_->group()->members().node_of(server);
    if (!table_->group()->peers()->ExitReason(server).empty()) {
      // Another lane may go there, too.
      server = control_channel->ServiceRankOf(backup.node);
      const int other = control_channel->tags()->Take();
      if (other >= 0) tag = other;
    }
    backup.numbers = control_channel->numbers();
    if (IsChange(request_.kind)) backup.slot = backup.numbers->Take(backup.node);
  }
  lanes_.emplace_back(messenger_, server, tag, table_->id(), request_, std::move(source), rows,
                      backup);
  answered_.push_back(false);
}

void DistributedCall::OpenLanes() {
  const TableSpec& spec = table_->spec();
  const Partition& partition = table_->partition();
  const RankContext* const group = table_->group();
  if (request_.kind == RequestKind::kSetHyper || request_.kind == RequestKind::kReleased) {
    for (int node = 0; node < group->members().num_nodes(); ++node) {
      if (node == group->members().node()) continue;
      const int leader = group->members().leader_of(node);
      // A node without workers has no replica.
      if (partition.is_replicated() && !group->members().is_worker(leader)) continue;
      AddLane(partition.is_replicated() ? leader : group->control_channel()->ServiceRankOf(node),
              ChunkSource::OfOne(spec, request_), {});
    }
    return;
  }
  const bool of_rows = IsOfRows(request_.kind);
  std::vector<std::vector<int64_t>> by_owner(partition.servers().size() + 1);
  if (of_rows) SplitRows(&by_owner);
  for (size_t place = 0; place < partition.servers().size(); ++place) {
    const int server = partition.servers()[place];
    const RowRange rows = of_rows ? partition.RowsOf(place) : table_->RowsAskedOf(place);
    if (group->members().is_local(server)) continue;
    if (of_rows && !by_owner[place].empty()) {
      AddLane(server, ChunkSource(spec, request_, std::move(by_owner[place])), rows);
    } else if (!of_rows && rows.count() > 0) {
      AddLane(server, ChunkSource(spec, request_, rows), rows);
    }
  }
  if (of_rows) {
    here_ = std::make_unique<ChunkSource>(spec, request_, std::move(by_owner.back()));
  } else {
    here_ = std::make_unique<ChunkSource>(spec, request_, partition.node_rows());
  }
}

void DistributedCall::SplitRows(std::vector<std::vector<int64_t>>* by_owner) const {
  const Partition& partition = table_->partition();
  const RowRange here = partition.node_rows();
  for (int64_t i = 0; i < request_.num_ids; ++i) {
    const int64_t row = request_.row_ids[i];
    const size_t owner = here.Contains(row) ? by_owner->size() - 1 : partition.OwnerOf(row);
    (*by_owner)[owner].push_back(i);
  }
}

Status DistributedCall::StepHere(const WaitLimit& limit, bool* progressed) {
  if (here_ == nullptr) return Status::Ok();
  if (!has_chunk_) {
    has_chunk_ = here_->Next(&chunk_);
    progress_ = Progress();
    if (!has_chunk_) {
      here_.reset();
      return Status::Ok();
    }
    table_->CountFromShard(&chunk_);
  }
  MV_RETURN_IF_NOT_OK(table_->Operate(&chunk_, &progress_, limit));
  here_->Finish(chunk_);
  has_chunk_ = false;
  *progressed = true;
  return Status::Pending();
}

Status DistributedCall::StepLanes(bool* progressed) {
  bool all_answered = true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (answered_[i]) continue;
    Status status = lanes_[i].Step(progressed);
    // With a backup it has been held back already, or is the server's answer.
    if (!survives_losses()) {
      status = failure_.Filter(status);
    } else if (status.code() == Code::kPeerLost && lanes_[i].replaced() >= 0) {
      status = table_->group()->peers()->About(lanes_[i].replaced(), status);
    }
    if (!status.ok() && !status.pending()) return status;
    answered_[i] = status.ok();
    all_answered = all_answered && answered_[i];
  }
  return all_answered ? Status::Ok() : Status::Pending();
}

Status DistributedCall::Replace(ServerPipeline* lane) {
  RankContext* const group = table_->group();
  const int server = lane->server();
  const int next = group->control_channel()->ServiceRankOf(group->members().node_of(server));
  if (!group->peers()->ExitReason(next).empty()) return Status::Pending();
  const int tag = group->control_channel()->tags()->Take();
  if (tag < 0) return Status(Code::kState, "too many calls at once");
  if (lane->tag() != tag_) group->control_channel()->tags()->GiveBack(lane->tag());
  return lane->Redirect(next, tag);
}

Status DistributedCall::Step(const WaitLimit& limit) {
  if (tag_ < 0) return Status(Code::kState, "too many calls at once");
  const WaitLimit no_wait{limit.deadline, Instant::min()};
  for (;;) {
    bool progressed = false;
    const Status there = failure_.is_set() ? failure_.Get() : StepLanes(&progressed);
    if (!there.ok() && !there.pending()) return Fail(there);
    // A lock of this node may be waited for while nothing else is to be done.
    const Status here = StepHere(there.ok() ? limit : no_wait, &progressed);
    if (!here.ok() && !here.pending()) return Fail(here);
    if (there.ok() && here.ok()) return Status::Ok();
    const Instant now = Clock::now();
    if (progressed) {
      backoff_.Reset();
    } else {
      if (now >= limit.deadline) return Fail(TooLate());
      if (now >= looked_ + kLook) {
        looked_ = now;
        const Status lost = LookAfterServers();
        if (!lost.ok()) return Fail(lost);
      }
    }
    if (now >= limit.slice_end) return Status::Pending();
    // While it waits this thread does the service thread's work, which saves a change of threads.
    if (progressed || table_->service()->Poll()) continue;
    const auto nap = backoff_.Next(now, ShardService::kUnderWay);
    if (nap.count() == 0) {
      YieldCore();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

Status DistributedCall::LookAfterServers() {
  RankContext* const group = table_->group();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (answered_[i]) continue;
    const std::string gone = group->peers()->ExitReason(lanes_[i].server());
    if (gone.empty()) {
      if (lanes_[i].stall().ok()) continue;
      if (!stalled_at_.has_value()) stalled_at_ = Clock::now();
      if (Clock::now() >= *stalled_at_ + kKnownWithin) return lanes_[i].stall();
      continue;
    }
    if (survives_losses()) {
      const Status replaced = Replace(&lanes_[i]);
      stalled_at_.reset();
      if (replaced.ok()) continue;
      if (!replaced.pending()) return replaced;
    }
    const RowRange rows = lanes_[i].rows();
    const int server = lanes_[i].server();
    return group->state()->ReportLost(
        server, StrCat(group->members().NameRank(server), " ", gone, " with rows ", rows.first,
                       " to ", rows.end - 1, group->peers()->Trace(server)));
  }
  return Status::Ok();
}

Status DistributedCall::TooLate() const {
  std::vector<int> silent;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!answered_[i]) silent.push_back(lanes_[i].server());
  }
  const RankContext& group = *table_->group();
  const Status timeout(
      Code::kTimeout,
      StrCat("waited ", SecondsBetween(began_, Clock::now()), " s for ", NameRanks(silent),
             " to answer", silent.empty() ? "" : group.peers()->Trace(silent[0])));
  return silent.empty() ? timeout : group.peers()->About(silent[0], timeout);
}

Status DistributedCall::Fail(const Status& status) {
  const bool lost = status.code() == Code::kPeerLost || status.code() == Code::kTimeout;
  const Instant until = Clock::now() + (lost ? kWindDownFromLost : kWindDown);
  for (;;) {
    bool over = true;
    for (ServerPipeline& lane : lanes_) over = lane.WindDown() && over;
    if (over) return status;
    if (Clock::now() >= until) break;
    (void)table_->service()->Poll();
    YieldCore();
  }
  for (ServerPipeline& lane : lanes_) lane.Abandon();
  return status;
}

void DistributedCall::Cancel(const std::string& /*reason*/) {
  (void)Fail(Status(Code::kAborted, "given up"));
}

}  // namespace multiverso
