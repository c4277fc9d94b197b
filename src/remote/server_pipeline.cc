#include "remote/server_pipeline.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace multiverso {
namespace {

// Returns a seed that no other call on any rank uses, because equal seeds have equal errors, which
// would not cancel out.
uint64_t SeedOf(int rank) {
  static std::atomic<uint64_t> encoded{0};
  return (static_cast<uint64_t>(rank) << 40) + encoded.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool ServerPipeline::InFlightRequest::HasOpenMessages() const {
  return answer.is_open || std::any_of(std::begin(sends), std::end(sends),
                                       [](const Messenger::Ticket& send) { return send.is_open; });
}

ServerPipeline::ServerPipeline(Messenger* messenger, BufferPool* buffers, int server,
                               CallNumber call, const TableShard* table, ChunkSource source,
                               RowRange rows)
    : messenger_(messenger),
      buffers_(buffers),
      server_(server),
      call_(call),
      table_(table),
      source_(std::move(source)),
      rows_(rows) {}

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
  request->is_in_flight = true;
  Prepare(request);
  return Send(request);
}

TensorExchange ServerPipeline::ExchangeOf(const Request& request) const {
  const Shard& shard = *table_->shard();
  return TensorExchange(shard.updater(), *shard.hyper(), request);
}

void ServerPipeline::Prepare(InFlightRequest* request) {
  const Request& chunk = request->chunk.request;
  request->header = HeaderOf(request->chunk);
  request->is_separate = false;
  if (!IsAdd(chunk.kind)) return;
  const bool has_format = table_->spec().wire_format() != WireFormat::kFloat32;
  if (has_format && !HasIds(chunk.kind)) return Encode(request);
  if (chunk.kind == RequestKind::kExchange) {
    const TensorExchange exchange = ExchangeOf(chunk);
    exchange.TakeDelta(chunk.first, chunk.count, exchange.last(chunk.first));
  }
}

void ServerPipeline::Encode(InFlightRequest* request) {
  const Request& chunk = request->chunk.request;
  const WireFormat format = table_->spec().wire_format();
  const int64_t bytes = request->chunk.bytes;
  const int64_t count = FloatsIn(bytes);
  const Instant began = Clock::now();
  buffers_->MakeRoom(std::max(bytes, WireBytes(format, count)), &request->encoded);
  char* const encoded = request->encoded->data();
  if (chunk.kind == RequestKind::kExchange) {
    request->header.delta_format =
        ExchangeOf(chunk).TakeEncoded(format, chunk.first, count, encoded);
    request->is_separate = true;
  } else if (WireBytes(format, count) < bytes &&
             EncodeAtRandom(format, static_cast<const float*>(chunk.delta), count,
                            SeedOf(messenger_->rank()), encoded)) {
    request->header.delta_format = format;
    request->is_separate = true;
  }
  counts_.encoding += Clock::now() - began;
}

RequestHeader ServerPipeline::HeaderOf(const Chunk& chunk) const {
  RequestHeader header;
  static_cast<RequestFields&>(header) = chunk.request;
  if (header.kind == RequestKind::kExchange) header.kind = RequestKind::kAddGet;
  header.count = chunk.count;
  header.sender = messenger_->rank();
  header.tag = call_.tag;
  header.call = call_.number;
  header.table = table_->id();
  header.bytes = chunk.bytes;
  const bool has_format = table_->spec().wire_format() != WireFormat::kFloat32;
  if (has_format && IsAdd(header.kind) && ReturnsData(header.kind)) {
    header.answer_format = WireFormat::kBFloat16;
  }
  return header;
}

Status ServerPipeline::Send(InFlightRequest* request) {
  const Chunk& chunk = request->chunk;
  const RequestHeader& header = request->header;
  request->message = EncodeRequest(header);
  const int64_t id_bytes = header.id_bytes();
  const int64_t value_bytes = header.value_bytes();
  const bool is_exchange = chunk.request.kind == RequestKind::kExchange;
  const char* ids = reinterpret_cast<const char*>(chunk.ids.data());
  const auto* values = static_cast<const char*>(chunk.request.delta);
  void* out = chunk.request.out;
  if (is_exchange) {
    out = ExchangeOf(chunk.request).last(chunk.request.first);
    values = static_cast<const char*>(out);
  }
  if (request->is_separate) values = request->encoded->data();
  if (header.answer_format != WireFormat::kFloat32) {
    buffers_->MakeRoom(chunk.bytes, &request->values);
    out = request->values->data();
  }
  counts_.bytes_sent += kRequestBytes + header.payload_bytes();
  counts_.raw_bytes_sent += kRequestBytes + id_bytes + (value_bytes > 0 ? chunk.bytes : 0);
  const bool is_inline = header.inline_bytes() > 0;
  if (is_inline) {
    request->message.append(ids, static_cast<size_t>(id_bytes));
    request->message.append(values, static_cast<size_t>(value_bytes));
  }
  // The receive of the answer is posted first, so that the answer never arrives unexpected.
  const bool returns = ReturnsData(header.kind);
  request->expected = returns ? chunk.bytes : static_cast<int64_t>(sizeof(request->reply));
  MV_RETURN_IF_NOT_OK(messenger_->Receive(server_, tag(), returns ? out : &request->reply,
                                          request->expected, &request->answer));
  MV_RETURN_IF_NOT_OK(messenger_->Send(server_, kRequestTag, request->message.data(),
                                       static_cast<int64_t>(request->message.size()),
                                       &request->sends[0]));
  if (is_inline) return Status::Ok();
  if (id_bytes > 0) {
    MV_RETURN_IF_NOT_OK(
        messenger_->Send(server_, ValuesTag(tag()), ids, id_bytes, &request->sends[1]));
  }
  if (value_bytes == 0) return Status::Ok();
  return messenger_->Send(server_, ValuesTag(tag()), values, value_bytes, &request->sends[2]);
}

Status ServerPipeline::Test(InFlightRequest* request, bool* done) {
  *done = true;
  const auto test = [&](Messenger::Ticket* ticket, int64_t* bytes) -> Status {
    bool is_over = !ticket->is_open;
    if (!is_over) MV_RETURN_IF_NOT_OK(messenger_->Test(ticket, &is_over, bytes));
    *done = *done && is_over;
    return Status::Ok();
  };
  int64_t sent = 0;
  for (Messenger::Ticket& send : request->sends) MV_RETURN_IF_NOT_OK(test(&send, &sent));
  return test(&request->answer, &request->received);
}

Status ServerPipeline::CheckAnswer(const InFlightRequest& request) {
  const int64_t received = request.received;
  const RequestHeader& header = request.header;
  const bool returns = ReturnsData(header.kind);
  const Reply& reply = request.reply;
  if (!returns && received == request.expected && reply.call == call_.number) return reply.status();
  if (returns &&
      (received == request.expected || received == header.BytesIn(header.answer_format))) {
    return Status::Ok();
  }
  while (returns && received == 0) {
    std::string bytes;
    bool found = false;
    MV_RETURN_IF_NOT_OK(messenger_->Take(server_, ErrorTag(tag()), sizeof(Reply), &bytes, &found));
    if (!found) return Status::Pending();
    Reply error;
    if (bytes.size() == sizeof(error)) std::memcpy(&error, bytes.data(), sizeof(error));
    // A reply with another number is left over from a call that ended without it.
    if (error.call == call_.number && error.code < 0) return error.status();
  }
  return Status(Code::kTransport, StrCat("rank ", server_, " answered with ", request.received,
                                         " bytes, expected ", request.expected));
}

void ServerPipeline::TakeValues(const InFlightRequest& request) {
  const Chunk& chunk = request.chunk;
  const Request& call = chunk.request;
  const BufferPool::Buffer& memory = request.values;
  const char* const values = memory == nullptr ? nullptr : memory->data();
  const bool is_encoded = request.received < request.expected;
  const WireFormat format = is_encoded ? request.header.answer_format : WireFormat::kFloat32;
  const auto bytes = static_cast<size_t>(chunk.bytes);
  const Instant began = is_encoded ? Clock::now() : Instant();
  if (call.kind != RequestKind::kExchange) {
    if (is_encoded) {
      Decode(format, values, FloatsIn(chunk.bytes), static_cast<float*>(call.out));
    } else if (values != nullptr) {
      std::memcpy(call.out, values, bytes);
    }
  } else if (request.is_separate) {
    ExchangeOf(call).SettleEncoded(format, call.first, call.count, values);
  } else {
    const TensorExchange exchange = ExchangeOf(call);
    if (values != nullptr) std::memcpy(exchange.last(call.first), values, bytes);
    exchange.Settle(call.first, call.count);
  }
  if (is_encoded) counts_.encoding += Clock::now() - began;
}

Status ServerPipeline::Finish(InFlightRequest* request) {
  const Status answer = CheckAnswer(*request);
  if (answer.pending()) return answer;
  request->is_in_flight = false;
  counts_.bytes_received += request->received;
  counts_.raw_bytes_received += request->expected;
  MV_RETURN_IF_NOT_OK(answer);
  if (ReturnsData(request->chunk.request.kind)) TakeValues(*request);
  source_.Finish(request->chunk);
  return Status::Ok();
}

Status ServerPipeline::Step(bool* progressed) {
  bool any_in_flight = false;
  for (size_t i = 0; i < kWindow; ++i) {
    if (i == in_flight_.size()) {
      if (all_sent_) break;
      in_flight_.push_back(std::make_unique<InFlightRequest>());
    }
    InFlightRequest* const request = in_flight_[i].get();
    if (request->is_in_flight) {
      bool done = false;
      MV_RETURN_IF_NOT_OK(Test(request, &done));
      if (done) {
        const Status finished = Finish(request);
        if (!finished.ok() && !finished.pending()) return finished;
        *progressed = *progressed || finished.ok();
      }
    }
    if (!request->is_in_flight && !all_sent_) {
      MV_RETURN_IF_NOT_OK(SendNext(request));
      *progressed = *progressed || request->is_in_flight;
    }
    any_in_flight = any_in_flight || request->is_in_flight;
  }
  return all_sent_ && !any_in_flight ? Status::Ok() : Status::Pending();
}

bool ServerPipeline::WindDown() {
  all_sent_ = true;
  source_.Stop();
  bool all_over = true;
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    if (!request->is_in_flight) continue;
    bool done = false;
    if (!Test(request.get(), &done).ok()) done = false;
    if (done) request->is_in_flight = false;
    all_over = all_over && done;
  }
  return all_over;
}

void ServerPipeline::Abandon() {
  bool is_sending = false;
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    if (!request->is_in_flight) continue;
    if (messenger_->Withdraw(&request->answer) == Messenger::Withdrawn::kCancelled) ++missing_;
    request->is_in_flight = request->HasOpenMessages();
    is_sending = is_sending || request->sends[1].is_open || request->sends[2].is_open;
  }
  if (!is_sending) return;
  const EndedCall ended{messenger_->rank(), call_.number};
  (void)messenger_->Post(server_, kEndTag, MakeFrame(FrameKind::kEndedCall, ended));
}

bool ServerPipeline::HasLeftMemory() {
  bool has_left = true;
  for (std::unique_ptr<InFlightRequest>& request : in_flight_) {
    const Chunk& chunk = request->chunk;
    const bool is_callers =
        ReturnsData(chunk.request.kind) && request->values == nullptr && chunk.positions == nullptr;
    if (!request->is_in_flight || !request->answer.is_open || !is_callers) continue;
    bool done = false;
    const Status tested = messenger_->Test(&request->answer, &done, &request->received);
    request->is_in_flight = request->HasOpenMessages();
    has_left = has_left && (done || !tested.ok());
  }
  return has_left;
}

}  // namespace multiverso
