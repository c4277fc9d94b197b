#include "table/server_pipeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace multiverso {

bool ServerPipeline::Wire::is_in_use() const {
  return answer.is_open || std::any_of(std::begin(sends), std::end(sends),
                                       [](const Messenger::Ticket& send) { return send.is_open; });
}

ServerPipeline::ServerPipeline(Messenger* messenger, int server, int tag, int64_t table,
                               ChunkSource source, RowRange rows, Failover failover)
    : messenger_(messenger),
      server_(server),
      tag_(tag),
      table_(table),
      source_(std::move(source)),
      rows_(rows),
      failover_(failover) {}

ServerPipeline::~ServerPipeline() {
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    // The transport may still use the memory, so the memory is leaked rather than reused.
    if (request->is_in_flight) (void)request.release();  // NOLINT: see above
  }
}

Status ServerPipeline::SendNext(InFlightRequest* request) {
  if (!source_.Next(&request->chunk)) {
    all_sent_ = true;
    return Status::Ok();
  }
  request->order = ++num_sent_;
  const bool is_numbered = failover_.slot >= 0 && IsChange(request->chunk.request.kind);
  request->number = is_numbered ? failover_.numbers->Next(failover_.node, failover_.slot) : 0;
  request->is_in_flight = true;
  return Send(request);
}

Status ServerPipeline::Send(InFlightRequest* request) {
  const Chunk& chunk = request->chunk;
  Wire& wire = *request->wire;
  RequestHeader header;
  const bool is_hyper = chunk.request.kind == RequestKind::kSetHyper;
  header.kind = chunk.request.kind;
  header.sender = messenger_->rank();
  header.tag = tag_;
  header.worker = chunk.request.worker;
  header.table = table_;
  header.first = is_hyper ? chunk.request.hyper : chunk.request.first;
  header.count = is_hyper ? 0 : chunk.count;
  header.width = chunk.request.width;
  header.expected = chunk.request.expected;
  header.rounds = chunk.request.rounds;
  header.version = chunk.request.version;
  header.bytes = chunk.bytes;
  header.value = chunk.request.value;
  header.slot = request->number > 0 ? failover_.slot : -1;
  header.number = request->number;
  wire.message = EncodeRequest(header);
  const int64_t id_bytes = header.id_bytes();
  const char* ids = reinterpret_cast<const char*>(chunk.ids.data());
  const char* delta = static_cast<const char*>(chunk.request.delta);
  void* out = chunk.request.out;
  if (has_failover()) {
    // The answer shares the memory of the values, since it arrives after the server has them all.
    wire.values.resize(static_cast<size_t>(id_bytes + chunk.bytes));
    char* const values = wire.values.data() + id_bytes;
    if (id_bytes > 0) std::memcpy(wire.values.data(), ids, static_cast<size_t>(id_bytes));
    if (delta != nullptr) std::memcpy(values, delta, static_cast<size_t>(chunk.bytes));
    ids = wire.values.data();
    delta = values;
    out = values;
  }
  bytes_sent_ += kRequestBytes + header.payload_bytes();
  const bool is_inline = header.inline_bytes() > 0;
  if (is_inline) {
    wire.message.append(ids, static_cast<size_t>(id_bytes));
    wire.message.append(delta, static_cast<size_t>(header.payload_bytes() - id_bytes));
  }
  // The receive of the answer is posted first, so that the answer never arrives unexpected.
  const bool returns = ReturnsData(chunk.request.kind);
  request->expected = returns ? chunk.bytes : static_cast<int64_t>(sizeof(wire.reply));
  MV_RETURN_IF_NOT_OK(messenger_->Receive(server_, tag_, returns ? out : &wire.reply,
                                          request->expected, &wire.answer));
  MV_RETURN_IF_NOT_OK(messenger_->Send(server_, kRequestTag, wire.message.data(),
                                       static_cast<int64_t>(wire.message.size()), &wire.sends[0]));
  if (is_inline) return Status::Ok();
  if (id_bytes > 0) {
    MV_RETURN_IF_NOT_OK(messenger_->Send(server_, ValuesTag(tag_), ids, id_bytes, &wire.sends[1]));
  }
  if (!CarriesData(chunk.request.kind)) return Status::Ok();
  return messenger_->Send(server_, ValuesTag(tag_), delta, chunk.bytes, &wire.sends[2]);
}

Status ServerPipeline::Test(InFlightRequest* request, bool* done) {
  *done = true;
  for (Messenger::Ticket& send : request->wire->sends) {
    if (!send.is_open) continue;
    bool is_over = false;
    int64_t bytes = 0;
    MV_RETURN_IF_NOT_OK(messenger_->Test(&send, &is_over, &bytes));
    *done = *done && is_over;
  }
  if (request->wire->answer.is_open) {
    bool is_over = false;
    MV_RETURN_IF_NOT_OK(
        messenger_->Test(&request->wire->answer, &is_over, &request->wire->received));
    *done = *done && is_over;
  }
  return Status::Ok();
}

Status ServerPipeline::CheckAnswer(const InFlightRequest& request) {
  if (request.wire->received == request.expected) {
    return ReturnsData(request.chunk.request.kind) ? Status::Ok() : request.wire->reply.status();
  }
  std::string bytes;
  bool found = false;
  MV_RETURN_IF_NOT_OK(messenger_->Take(server_, kErrorTag, sizeof(ErrorMessage), &bytes, &found));
  if (found && bytes.size() == sizeof(ErrorMessage)) {
    ErrorMessage error;
    std::memcpy(&error, bytes.data(), sizeof(error));
    if (error.tag == tag_ && error.reply.code < 0) return error.reply.status();
  }
  return Status(Code::kTransport,
                StrCat("rank ", server_, " answered with ", request.wire->received,
                       " bytes, expected ", request.expected));
}

Status ServerPipeline::Finish(InFlightRequest* request) {
  request->is_in_flight = false;
  bytes_received_ += request->wire->received;
  MV_RETURN_IF_NOT_OK(CheckAnswer(*request));
  const Chunk& chunk = request->chunk;
  if (has_failover() && ReturnsData(chunk.request.kind)) {
    const std::vector<char>& values = request->wire->values;
    std::memcpy(chunk.request.out, values.data() + values.size() - chunk.bytes,
                static_cast<size_t>(chunk.bytes));
  }
  source_.Finish(chunk);
  return Status::Ok();
}

Status ServerPipeline::StoreIfLoss(const Status& status) {
  if (!has_failover() || !MayMeanLoss(status)) return status;
  stall_ = status;
  return Status::Ok();
}

Status ServerPipeline::Step(bool* progressed) {
  bool any_in_flight = false;
  for (size_t i = 0; i < kWindow && stall_.ok(); ++i) {
    if (i == in_flight_.size()) {
      if (all_sent_) break;
      in_flight_.push_back(std::make_unique<InFlightRequest>());
    }
    InFlightRequest* const request = in_flight_[i].get();
    if (request->is_in_flight) {
      bool done = false;
      MV_RETURN_IF_NOT_OK(StoreIfLoss(Test(request, &done)));
      if (!stall_.ok()) break;
      if (done) {
        *progressed = true;
        MV_RETURN_IF_NOT_OK(Finish(request));
      }
    }
    if (!request->is_in_flight && !all_sent_) {
      MV_RETURN_IF_NOT_OK(StoreIfLoss(SendNext(request)));
      *progressed = *progressed || (request->is_in_flight && stall_.ok());
    }
    any_in_flight = any_in_flight || request->is_in_flight;
  }
  return stall_.ok() && all_sent_ && !any_in_flight ? Status::Ok() : Status::Pending();
}

Status ServerPipeline::Redirect(int server, int tag) {
  std::vector<InFlightRequest*> unanswered;
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    if (!request->is_in_flight) continue;
    bool done = false;
    // The server may have answered this request before the server died.
    if (stall_.ok() && Test(request.get(), &done).ok() && done) {
      MV_RETURN_IF_NOT_OK(Finish(request.get()));
    } else {
      unanswered.push_back(request.get());
    }
  }
  std::sort(unanswered.begin(), unanswered.end(),
            [](const InFlightRequest* a, const InFlightRequest* b) { return a->order < b->order; });
  replaced_server_ = server_;
  server_ = server;
  tag_ = tag;
  stall_ = Status::Ok();
  for (InFlightRequest* const request : unanswered) {
    Detach(messenger_, &request->wire);
    const bool is_safe = request->number > 0 || !IsChange(request->chunk.request.kind);
    if (!is_safe && !IsIdempotent(request->chunk.request.kind)) {
      request->is_in_flight = false;
      return Status(Code::kPeerLost,
                    StrCat("rank ", replaced_server_,
                           " died before it answered an add: the add may have been "
                           "applied completely, in part or not at all"));
    }
  }
  for (InFlightRequest* const request : unanswered) {
    // After a failure, the next Redirect sends the remaining requests.
    if (stall_.ok()) MV_RETURN_IF_NOT_OK(StoreIfLoss(Send(request)));
  }
  return Status::Ok();
}

void ServerPipeline::Detach(Messenger* messenger, std::unique_ptr<Wire>* wire) {
  (void)messenger->Withdraw(&(*wire)->answer);
  // The transport may still use the memory, so the memory is leaked rather than reused.
  if ((*wire)->is_in_use()) (void)wire->release();  // NOLINT: see above
  *wire = std::make_unique<Wire>();
}

bool ServerPipeline::WindDown() {
  all_sent_ = true;
  source_.Stop();
  bool all_over = true;
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    if (!request->is_in_flight) continue;
    bool done = false;
    if (!stall_.ok() || !Test(request.get(), &done).ok()) done = false;
    // CheckAnswer takes the ErrorMessage of an empty answer, so that no later call receives it.
    if (done) (void)CheckAnswer(*request);
    if (done) request->is_in_flight = false;
    all_over = all_over && done;
  }
  return all_over;
}

void ServerPipeline::Abandon() {
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    if (!request->is_in_flight || !messenger_->Withdraw(&request->wire->answer)) continue;
    request->is_in_flight = request->wire->is_in_use();
  }
}

}  // namespace multiverso
