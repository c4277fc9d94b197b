#include "remote/shard_service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace multiverso {
namespace {

// The most time for which the destructor lets the last answers leave.
constexpr auto kMaxFarewell = std::chrono::milliseconds(200);
// The most ended calls that are remembered: those of which values may still arrive are few.
constexpr size_t kMostEndedCalls = 1000;
constexpr auto kCleanUpInterval = std::chrono::milliseconds(200);

// Returns whether an earlier request of the same call is unanswered in that list. The answers to a
// call's requests are in their order, by which the caller tells them apart.
bool HasEarlierIn(const std::list<ServedRequest>& jobs, const ServedRequest& job) {
  return std::any_of(jobs.begin(), jobs.end(), [&](const ServedRequest& other) {
    return other.number() < job.number() && other.phase() != ServedRequest::Phase::kReply &&
           other.header().sender == job.header().sender && other.header().tag == job.header().tag;
  });
}

}  // namespace

ShardService::ShardService(RankContext* rank_context)
    : rank_context_(rank_context),
      messenger_(rank_context->control_channel()->messenger()),
      late_answers_(rank_context) {}

ShardService::~ShardService() {
  const Instant until = Clock::now() + kMaxFarewell;
  for (bool all_over = false; !all_over && Clock::now() < until;) {
    all_over = true;
    for (ServedRequest& job : jobs_) {
      bool done = true;
      if (job.phase() == ServedRequest::Phase::kReply) (void)job.TestReply(&done);
      all_over = all_over && done;
    }
  }
  for (std::list<ServedRequest>* jobs : {&jobs_, &waiting_}) {
    for (ServedRequest& job : *jobs) job.Abandon();
  }
}

void ShardService::Keep(std::shared_ptr<TableShard> table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const int64_t id = table->id();
  tables_[id] = std::move(table);
}

void ShardService::Forget(int64_t table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  tables_.erase(table);
}

void ShardService::Release(const TableShard& table) {
  if (table.shard()->holders()->ranks_here.fetch_sub(1) != 1) return;
  // At the end of the session, no rank listens any more.
  if (rank_context_->memory()->own_slot().state.load() != RankSlot::kAlive) return;
  // The last rank of this node to release the table tells the other nodes.
  RequestHeader header;
  header.kind = RequestKind::kReleased;
  header.sender = rank_context_->members().rank();
  header.table = table.id();
  for (int node = 0; node < rank_context_->members().num_nodes(); ++node) {
    if (node == rank_context_->members().node()) continue;
    (void)messenger_->Post(rank_context_->control_channel()->ServiceRankOf(node), kRequestTag,
                           EncodeRequest(header));
  }
}

size_t ShardService::num_tables() const {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  return tables_.size();
}

std::shared_ptr<TableShard> ShardService::Find(int64_t id) const {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second;
}

bool ShardService::Poll() {
  const std::unique_lock<std::mutex> guard(polling_mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  bool did_work = false;
  late_answers_.Poll();
  ResumeWaiting();
  Status status = TakeRequests(&did_work);
  for (auto job = jobs_.begin(); status.ok() && job != jobs_.end();) {
    const Status continued = Continue(job, &did_work);
    if (continued.ok()) {
      job = jobs_.erase(job);
    } else if (job->phase() == ServedRequest::Phase::kWork && MustWait(*job)) {
      const auto waiting = job++;
      waiting_.splice(waiting_.end(), jobs_, waiting);
    } else {
      // An error that may mean a loss concerns only the sender, which died or will time out.
      if (!continued.pending() && !MayMeanLoss(continued)) status = continued;
      ++job;
    }
  }
  // A rank whose transport failed can serve no other rank, so it aborts the session.
  if (!status.ok() && !rank_context_->state()->IsAborted()) rank_context_->state()->Abort(status);
  CleanUp();
  busy_.store(!jobs_.empty() || !waiting_.empty(), std::memory_order_relaxed);
  return did_work;
}

bool ShardService::MustWait(const ServedRequest& job) const {
  return job.WaitsForRound() || HasEarlierIn(waiting_, job);
}

void ShardService::ResumeWaiting() {
  // They come first, since they are earlier than most.
  const auto first = jobs_.begin();
  for (auto job = waiting_.begin(); job != waiting_.end() && jobs_.size() < kMostJobs;) {
    const auto resumed = job++;
    if (!resumed->WaitsForRound()) jobs_.splice(first, waiting_, resumed);
  }
}

Status ShardService::TakeRequests(bool* did_work) {
  while (jobs_.size() < kMostJobs) {
    std::string bytes;
    bool received = false;
    MV_RETURN_IF_NOT_OK(messenger_->Take(Messenger::kAnyRank, kRequestTag,
                                         kRequestBytes + kInlineBytes, &bytes, &received));
    if (!received) return Status::Ok();
    *did_work = true;
    RequestHeader header;
    if (!DecodeRequest(bytes, messenger_->size(), &header) ||
        rank_context_->members().is_local(header.sender)) {
      rank_context_->control_channel()->ReportInvalid("request", -1);
      continue;
    }
    MV_RETURN_IF_NOT_OK(Begin(header, bytes.data() + kRequestBytes));
    // A complete request is answered before the next one is taken.
    if (header.inline_bytes() == header.payload_bytes()) return Status::Ok();
  }
  return Status::Ok();
}

Status ShardService::Begin(const RequestHeader& header, const char* payload) {
  const std::shared_ptr<TableShard> table = Find(header.table);
  if (header.kind == RequestKind::kReleased) {
    if (table != nullptr) table->shard()->holders()->nodes_released.fetch_add(1);
    return Status::Ok();
  }
  ServedRequest& job = jobs_.emplace_back(++num_requests_, header, table, rank_context_, &buffers_);
  if (table == nullptr) {
    job.Fail(Status(Code::kTransport, StrCat("rank ", rank_context_->members().rank(),
                                             " has no table number ", header.table)));
  } else {
    job.Fail(table->CheckRequest(header));
  }
  return job.BeginReceive(payload);
}

Status ShardService::Continue(const std::list<ServedRequest>::iterator& job, bool* did_work) {
  bool done = false;
  switch (job->phase()) {
    case ServedRequest::Phase::kReceive: {
      job->TestReceives(&done);
      if (!done) return Status::Pending();
      *did_work = true;
      if (job->failure().ok()) MV_RETURN_IF_NOT_OK(CheckStillCounts(&*job));
      job->BeginWork();
      [[fallthrough]];
    }
    case ServedRequest::Phase::kWork: {
      if (HasEarlierIn(jobs_, *job) || MustWait(*job)) return Status::Pending();
      const Status executed = job->Execute();
      if (executed.pending()) return executed;
      *did_work = true;
      MV_RETURN_IF_NOT_OK(executed);
      [[fallthrough]];
    }
    case ServedRequest::Phase::kReply:
      MV_RETURN_IF_NOT_OK(job->TestReply(&done));
      *did_work = *did_work || done;
      return done ? Status::Ok() : Status::Pending();
  }
  return Status(Code::kInternal, "internal error: invalid phase of a request");
}

Status ShardService::CheckStillCounts(ServedRequest* job) {
  const RequestHeader& header = job->header();
  const int by = rank_context_->peers()->ExcludedBy(header.sender);
  if (by >= 0) {
    job->Fail(
        Status(Code::kState,
               StrCat("rank ", by, " has excluded rank ", header.sender,
                      ", which sent no heartbeat for too long: it cannot take part any more")));
  }
  if (header.payload_bytes() == header.inline_bytes()) return Status::Ok();
  // The workers may have ended their calls when they found this rank silent.
  job->Fail(rank_context_->state()->CheckNotExcluded());
  for (bool got = true; got;) {
    std::string bytes;
    constexpr int64_t kMostBytes = FrameBytes<EndedCall>();
    MV_RETURN_IF_NOT_OK(messenger_->Take(Messenger::kAnyRank, kEndTag, kMostBytes, &bytes, &got));
    EndedCall ended;
    if (!got || !FrameReader(bytes).ReadHeader(FrameKind::kEndedCall, &ended)) continue;
    ended_.push_back(ended);
    if (ended_.size() > kMostEndedCalls) ended_.pop_front();
  }
  const bool has_ended = std::any_of(ended_.begin(), ended_.end(), [&](const EndedCall& ended) {
    return ended.sender == header.sender && ended.call == header.call;
  });
  if (has_ended) {
    job->Fail(Status(Code::kAborted, "the call ended before its values were received"));
  }
  return Status::Ok();
}

void ShardService::CleanUp() {
  const Instant now = Clock::now();
  if (now < last_clean_up_ + kCleanUpInterval) return;
  last_clean_up_ = now;
  for (std::list<ServedRequest>* jobs : {&jobs_, &waiting_}) {
    for (auto job = jobs->begin(); job != jobs->end();) {
      if (!rank_context_->peers()->IsLost(job->header().sender)) {
        ++job;
        continue;
      }
      job->Abandon();
      job = jobs->erase(job);
    }
  }
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  for (auto kept = tables_.begin(); kept != tables_.end();) {
    const Holders* const holders = kept->second->shard()->holders();
    const bool unused = holders->ranks_here.load() == 0 &&
                        holders->nodes_released.load() >=
                            static_cast<uint32_t>(rank_context_->members().num_nodes() - 1);
    kept = unused ? tables_.erase(kept) : std::next(kept);
  }
}

}  // namespace multiverso
