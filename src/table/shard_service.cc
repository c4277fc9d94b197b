#include "table/shard_service.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The time for which a job may wait for a lock before other jobs continue.
constexpr auto kTimeSlice = std::chrono::milliseconds(25);
// The most time for which the destructor lets the last answers leave.
constexpr auto kMaxFarewell = std::chrono::milliseconds(200);
// The most ended calls that are remembered: those of which values may still arrive are few.
constexpr size_t kMostEndedCalls = 1000;
constexpr auto kCleanUpInterval = std::chrono::milliseconds(200);

bool IsEncoded(const RequestHeader& header) {
  return header.wire != WireFormat::kFloat32 || header.reply != WireFormat::kFloat32;
}

// Returns the bytes up to a whole number of cache lines.
int64_t Aligned(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return DivideUp(bytes, kLine) * kLine;
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
    for (Job& job : jobs_) {
      bool done = true;
      if (job.phase == Job::Phase::kReply) (void)TestAll(job.sends, &job, &done);
      all_over = all_over && done;
    }
  }
  for (std::list<Job>* jobs : {&jobs_, &waiting_}) {
    for (Job& job : *jobs) Abandon(&job);
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
    } else if (job->phase == Job::Phase::kWork && WaitsForRound(*job)) {
      const auto waiting = job++;
      waiting_.splice(waiting_.end(), jobs_, waiting);
    } else {
      // An error that may mean a loss concerns only the sender, which died or will time out.
      if (!continued.pending() && !MayMeanLoss(continued)) status = continued;
      ++job;
    }
  }
  // A rank whose transport failed can serve no other rank, so it aborts the session.
  const bool is_loss = rank_context_->members().survives_losses() && MayMeanLoss(status);
  if (!status.ok() && !is_loss && !rank_context_->state()->IsAborted())
    rank_context_->state()->Abort(status);
  CleanUp();
  busy_.store(!jobs_.empty() || !waiting_.empty(), std::memory_order_relaxed);
  return did_work;
}

bool ShardService::WaitsForRound(const Job& job) {
  const RequestKind kind = job.request.kind;
  const bool is_of_round =
      IsGet(kind) || kind == RequestKind::kSetHyper || kind == RequestKind::kVersionsOfRows;
  return job.failure.ok() && is_of_round &&
         !job.table->consistency()->HasApplied(job.request.rounds);
}

void ShardService::ResumeWaiting() {
  for (auto job = waiting_.begin(); job != waiting_.end() && jobs_.size() < kMostJobs;) {
    const auto resumed = job++;
    if (!WaitsForRound(*resumed)) jobs_.splice(jobs_.end(), waiting_, resumed);
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
  std::shared_ptr<TableShard> table = Find(header.table);
  if (header.kind == RequestKind::kReleased) {
    if (table != nullptr) table->shard()->holders()->nodes_released.fetch_add(1);
    return Status::Ok();
  }
  Job job;
  job.header = header;
  job.table = std::move(table);
  if (job.table == nullptr) {
    job.failure = Status(Code::kTransport, StrCat("rank ", rank_context_->members().rank(),
                                                  " has no table number ", header.table));
  } else if (rank_context_->peers()->IsExcludedForSilence(header.sender)) {
    job.failure = Status(Code::kState, StrCat("the other ranks have excluded rank ", header.sender,
                                              ", which sent no heartbeat for too long: it cannot "
                                              "take part any more"));
  } else {
    job.failure = job.table->CheckRequest(header);
  }
  jobs_.push_back(std::move(job));
  return ReceiveValues(&jobs_.back(), payload);
}

Status ShardService::ReceiveValues(Job* job, const char* payload) {
  const RequestHeader& header = job->header;
  const int64_t id_bytes = header.id_bytes();
  PlaceValues(job, CarriesData(header.kind) ? header.bytes : 0);
  char* const ids = job->buffer->data();
  char* const values = ids + id_bytes;
  Request* const request = &job->request;
  request->kind = header.kind;
  request->worker = header.worker == Request::kNoWorker
                        ? Request::kNoWorker
                        : rank_context_->members().worker_id(header.sender);
  request->first = header.first;
  request->count = header.count;
  request->num_ids = header.count;
  request->width = header.width;
  request->expected = header.expected;
  request->hyper = static_cast<int32_t>(header.first);
  request->value = header.value;
  request->rounds = header.rounds;
  request->version = header.version;
  job->received = header.inline_bytes();
  if (job->received > 0) {
    std::memcpy(ids, payload, static_cast<size_t>(id_bytes));
    std::memcpy(values, payload + id_bytes, static_cast<size_t>(header.value_bytes()));
    return Status::Ok();
  }
  // Even an invalid request's values are received, so that no later request takes them for its own.
  if (id_bytes > 0) {
    MV_RETURN_IF_NOT_OK(messenger_->Receive(header.sender, ValuesTag(header.tag), ids, id_bytes,
                                            &job->receives[0]));
  }
  if (!CarriesData(header.kind)) return Status::Ok();
  return messenger_->Receive(header.sender, ValuesTag(header.tag), values, header.value_bytes(),
                             &job->receives[1]);
}

bool ShardService::IsEncodedRange(const RequestHeader& header) {
  return !IsOfRows(header.kind) && IsEncoded(header);
}

char* ShardService::SecondValuesOf(const Job& job) {
  return job.buffer->data() + job.header.id_bytes() + Aligned(job.header.bytes);
}

void ShardService::PlaceValues(Job* job, int64_t bytes) {
  const RequestHeader& header = job->header;
  const int64_t id_bytes = header.id_bytes();
  const bool has_second = IsEncoded(header) && bytes > 0;
  buffers_.MakeRoom(id_bytes + (has_second ? Aligned(bytes) : 0) + bytes, &job->buffer);
  char* const ids = job->buffer->data();
  job->request.row_ids = reinterpret_cast<const int64_t*>(ids);
  job->request.delta = job->request.out = ids + id_bytes;
  if (!has_second) return;
  if (IsOfRows(header.kind)) {
    if (header.wire != WireFormat::kFloat32) job->request.delta = SecondValuesOf(*job);
  } else if (header.wire != header.reply) {
    // Values of one format can replace each other in pieces.
    job->request.out = SecondValuesOf(*job);
  }
}

bool ShardService::HasEarlierRequest(const std::list<Job>::iterator& job) {
  const auto is_earlier = [&](const Job& other) {
    return other.phase != Job::Phase::kReply && other.header.sender == job->header.sender &&
           other.header.tag == job->header.tag;
  };
  return std::any_of(jobs_.begin(), job, is_earlier) ||
         std::any_of(waiting_.begin(), waiting_.end(), is_earlier);
}

Status ShardService::TestAll(Messenger::Ticket* tickets, Job* job, bool* done) {
  *done = true;
  Status failure;
  for (int i = 0; i < 2; ++i) {
    if (!tickets[i].is_open) continue;
    bool is_over = false;
    int64_t bytes = 0;
    const Status status = messenger_->Test(&tickets[i], &is_over, &bytes);
    // After a failure the loop continues: the other message may still be written to the buffer.
    if (!status.ok() && failure.ok()) failure = status;
    if (is_over) job->received += bytes;
    *done = *done && (is_over || !status.ok());
  }
  return failure;
}

Status ShardService::Continue(const std::list<Job>::iterator& job, bool* did_work) {
  bool done = false;
  switch (job->phase) {
    case Job::Phase::kReceive: {
      const Status received = TestAll(job->receives, &*job, &done);
      if (!received.ok() && job->failure.ok()) job->failure = received;
      if (!done) return Status::Pending();
      *did_work = true;
      if (job->failure.ok()) CheckValues(&*job);
      if (job->failure.ok()) MV_RETURN_IF_NOT_OK(CheckHasNotEnded(&*job));
      job->phase = Job::Phase::kWork;
      [[fallthrough]];
    }
    case Job::Phase::kWork: {
      if (HasEarlierRequest(job)) return Status::Pending();
      const Status worked = job->failure.ok() ? ClaimAndRun(&*job) : job->failure;
      if (worked.pending()) return worked;
      *did_work = true;
      job->failure = worked;
      job->phase = Job::Phase::kReply;
      MV_RETURN_IF_NOT_OK(SendReply(&*job));
      [[fallthrough]];
    }
    case Job::Phase::kReply:
      MV_RETURN_IF_NOT_OK(TestAll(job->sends, &*job, &done));
      *did_work = *did_work || done;
      return done ? Status::Ok() : Status::Pending();
  }
  return Status(Code::kInternal, "internal error: invalid phase of a request");
}

void ShardService::DecodeRows(Job* job) {
  const RequestHeader& header = job->header;
  if (header.wire == WireFormat::kFloat32) return;
  const Instant began = Clock::now();
  Decode(header.wire, job->buffer->data() + header.id_bytes(), FloatsIn(header.bytes),
         reinterpret_cast<float*>(SecondValuesOf(*job)));
  CountEncoding(*job, began);
}

int64_t ShardService::EncodeReply(const Job& job, const char** values) {
  const RequestHeader& header = job.header;
  *values = static_cast<const char*>(job.request.out);
  if (!IsOfRows(header.kind) || header.reply == WireFormat::kFloat32) {
    return header.BytesIn(header.reply);
  }
  const Instant began = Clock::now();
  char* const encoded = SecondValuesOf(job);
  const bool is_encoded = EncodeNearest(header.reply, static_cast<const float*>(job.request.out),
                                        FloatsIn(header.bytes), encoded);
  CountEncoding(job, began);
  if (is_encoded) *values = encoded;
  return is_encoded ? header.BytesIn(header.reply) : header.bytes;
}

void ShardService::CountEncoding(const Job& job, Instant began) {
  MessageCounts counts;
  counts.encoding = Clock::now() - began;
  rank_context_->memory()->recorder()->CountMessages(job.header.table, counts);
}

void ShardService::CheckValues(Job* job) {
  const RequestHeader& header = job->header;
  const int64_t expected = header.payload_bytes();
  if (job->received != expected) {
    job->failure = Status(Code::kTransport,
                          StrCat("a request of ", job->received, " bytes, expected ", expected));
    return;
  }
  if (IsOfRows(header.kind)) {
    DecodeRows(job);
    job->failure = job->table->CheckRows(header.kind, job->request.row_ids, job->request.num_ids);
  }
}

Status ShardService::CheckHasNotEnded(Job* job) {
  const RequestHeader& header = job->header;
  if (header.payload_bytes() == header.inline_bytes()) return Status::Ok();
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
    job->failure = Status(Code::kAborted, "the call ended before its values were received");
  }
  return Status::Ok();
}

Status ShardService::Claim(Job* job, bool* done) {
  const RequestHeader& header = job->header;
  *done = false;
  const bool is_numbered = header.slot >= 0 && rank_context_->members().survives_losses();
  if (!is_numbered || job->is_claimed || !IsChange(header.kind)) return Status::Ok();
  // An excluded rank must apply no change, since other ranks of the node have taken over.
  MV_RETURN_IF_NOT_OK(rank_context_->state()->CheckNotExcluded());
  const auto is_alive = [&](int local_rank) {
    return rank_context_->peers()->IsAlive(local_rank) &&
           rank_context_->memory()
                   ->slot(rank_context_->members().rank_of(local_rank))
                   .was_excluded.load() == 0;
  };
  RequestRecord* const record = rank_context_->memory()->request_record(header.sender, header.slot);
  const ChangeId change{
      static_cast<uint64_t>(header.sender) << 32 | static_cast<uint64_t>(header.slot),
      header.number};
  const RowSaver* const saver = job->table->shard()->saver();
  const auto position_of = [&](int local_rank) -> int64_t {
    const int64_t position = saver->PositionOf(local_rank, change);
    if (position > 0 && IsAtomic(header.kind)) record->KeepResult(saver->ResultOf(local_rank));
    return position;
  };
  switch (
      record->Take(header.number, rank_context_->members().local_rank(), is_alive, position_of)) {
    case RequestRecord::Claim::kMine:
      job->is_claimed = true;
      job->request.change = change;
      job->progress.done = record->PositionOf(header.number);
      job->is_continued = job->progress.done > 0;
      return Status::Ok();
    case RequestRecord::Claim::kDone:
      *done = true;
      return Status::Ok();
    case RequestRecord::Claim::kInHand:
      return Status::Pending();
    case RequestRecord::Claim::kBroken:
      break;
  }
  const int owner = rank_context_->members().rank_of(record->owner());
  return Status(Code::kPeerLost,
                StrCat(rank_context_->peers()->EndOf(owner), " before it could tell rank ",
                       header.sender, " why its add to table '", job->table->spec().name,
                       "' has failed: the add has not been made"));
}

Status ShardService::ClaimAndRun(Job* job) {
  const RequestHeader& header = job->header;
  bool is_done = false;
  MV_RETURN_IF_NOT_OK(Claim(job, &is_done));
  if (!job->is_claimed && !is_done) return Run(job);
  RequestRecord* const record = rank_context_->memory()->request_record(header.sender, header.slot);
  const bool is_atomic = IsAtomic(header.kind);
  if (is_atomic && (is_done || job->progress.done > 0)) {
    const uint64_t result = record->result();
    std::memcpy(job->request.out, &result, static_cast<size_t>(header.bytes));
  }
  if (!is_done) {
    const Status status = Run(job);
    if (status.pending()) {
      // This rank may save the rows of another request before it continues with this one.
      const int local_rank = rank_context_->members().local_rank();
      record->SetPosition(
          header.number, job->table->shard()->saver()->PositionOf(local_rank, job->request.change));
    }
    if (!status.ok()) return status;
    uint64_t result = 0;
    if (is_atomic) std::memcpy(&result, job->request.out, static_cast<size_t>(header.bytes));
    record->Finish(header.number, result);
  }
  if (is_atomic || !ReturnsData(header.kind) || (!is_done && !job->is_continued)) {
    return Status::Ok();
  }
  // What a lost rank has computed of the answer is lost with it. The current values, which include
  // the add, are an answer, too.
  if (!is_done) {
    job->is_claimed = false;
    job->progress = Progress();
    job->fits = true;
  }
  job->request.kind = RequestKind::kGet;
  return Run(job);
}

Status ShardService::Run(Job* job) {
  // In sync mode, a get returns the values after a number of rounds, and a change of a
  // hyper-parameter waits for the rounds that use the old value.
  if (WaitsForRound(*job)) return Status::Pending();
  const RequestKind kind = job->request.kind;
  if (ReturnsData(kind) && !IsAdd(kind)) PlaceValues(job, job->header.bytes);
  const Status status = RunOnShard(job);
  if (status.code() == Code::kMemory) {
    const Membership& members = rank_context_->members();
    return status.In(StrCat("the node of ", members.NameRank(members.rank())));
  }
  MV_RETURN_IF_NOT_OK(status);
  if (IsGet(kind) && job->table->consistency()->HasBegun(job->request.rounds)) {
    return Status(Code::kState,
                  StrCat("the values after ", job->request.rounds, " rounds have been changed"));
  }
  return Status::Ok();
}

Status ShardService::RunOnShard(Job* job) {
  Shard* const shard = job->table->shard();
  const Instant began = Clock::now();
  const WaitLimit limit{Instant::max(), began + kTimeSlice};
  if (!IsEncodedRange(job->header)) return shard->Run(job->request, &job->progress, limit);
  const Status status = shard->RunEncoded(job->request, job->header.wire, job->header.reply,
                                          &job->progress, limit, &job->fits);
  CountEncoding(*job, began);
  if (!status.ok() || job->fits) return status;
  // The values, which include the add, travel as they are.
  job->header.wire = job->header.reply = WireFormat::kFloat32;
  job->fits = true;
  job->progress = Progress();
  job->request.kind = RequestKind::kGet;
  PlaceValues(job, job->header.bytes);
  return RunOnShard(job);
}

Status ShardService::SendReply(Job* job) {
  const RequestHeader& header = job->header;
  (void)MV_FAILPOINT("service.reply");
  if (!ReturnsData(header.kind)) {
    const Reply reply = Reply::Of(header.call, job->failure);
    job->reply.assign(reinterpret_cast<const char*>(&reply), sizeof(reply));
    return messenger_->Send(header.sender, header.tag, job->reply.data(),
                            static_cast<int64_t>(job->reply.size()), &job->sends[0]);
  }
  if (job->failure.ok()) {
    const char* values = nullptr;
    const int64_t bytes = EncodeReply(*job, &values);
    return messenger_->Send(header.sender, header.tag, values, bytes, &job->sends[0]);
  }
  const Reply error = Reply::Of(header.call, job->failure);
  job->reply.assign(reinterpret_cast<const char*>(&error), sizeof(error));
  MV_RETURN_IF_NOT_OK(messenger_->Send(header.sender, ErrorTag(header.tag), job->reply.data(),
                                       static_cast<int64_t>(job->reply.size()), &job->sends[0]));
  return messenger_->Send(header.sender, header.tag, job->reply.data(), 0, &job->sends[1]);
}

void ShardService::Abandon(Job* job) {
  bool in_use = job->sends[0].is_open || job->sends[1].is_open;
  for (Messenger::Ticket& ticket : job->receives) {
    in_use = messenger_->Withdraw(&ticket) == Messenger::Withdrawn::kArriving || in_use;
  }
  if (!in_use) return;
  // The transport may still use the memory, so the memory is leaked rather than reused.
  (void)job->buffer.release();                   // NOLINT: see above
  (void)new std::string(std::move(job->reply));  // NOLINT
}

void ShardService::CleanUp() {
  const Instant now = Clock::now();
  if (now < last_clean_up_ + kCleanUpInterval) return;
  last_clean_up_ = now;
  for (std::list<Job>* jobs : {&jobs_, &waiting_}) {
    for (auto job = jobs->begin(); job != jobs->end();) {
      if (!rank_context_->peers()->IsLost(job->header.sender)) {
        ++job;
        continue;
      }
      Abandon(&*job);
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
