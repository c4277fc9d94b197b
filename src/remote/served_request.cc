#include "remote/served_request.h"

#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/failpoint.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The time for which a request may wait for a lock before other requests continue.
constexpr auto kTimeSlice = std::chrono::milliseconds(25);

// Returns the bytes up to a whole number of cache lines.
int64_t Aligned(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return DivideUp(bytes, kLine) * kLine;
}

}  // namespace

ServedRequest::ServedRequest(uint64_t number, const RequestHeader& header,
                             std::shared_ptr<TableShard> table, RankContext* rank_context,
                             BufferPool* buffers)
    : number_(number),
      header_(header),
      table_(std::move(table)),
      rank_context_(rank_context),
      messenger_(rank_context->control_channel()->messenger()),
      buffers_(buffers) {}

Status ServedRequest::BeginReceive(const char* payload) {
  const int64_t id_bytes = header_.id_bytes();
  PlaceValues(CarriesData(header_.kind) ? header_.bytes : 0);
  char* const ids = buffer_->data();
  char* const values = ids + id_bytes;
  static_cast<RequestFields&>(request_) = header_;
  request_.num_ids = header_.count;
  received_ = header_.inline_bytes();
  if (received_ > 0) {
    std::memcpy(ids, payload, static_cast<size_t>(id_bytes));
    std::memcpy(values, payload + id_bytes, static_cast<size_t>(header_.value_bytes()));
    return Status::Ok();
  }
  // Even an invalid request's values are received, so that no later request takes them for its own.
  if (id_bytes > 0) {
    MV_RETURN_IF_NOT_OK(
        messenger_->Receive(header_.sender, ValuesTag(header_.tag), ids, id_bytes, &receives_[0]));
  }
  if (!CarriesData(header_.kind)) return Status::Ok();
  return messenger_->Receive(header_.sender, ValuesTag(header_.tag), values, header_.value_bytes(),
                             &receives_[1]);
}

char* ServedRequest::SecondValues() const {
  return buffer_->data() + header_.id_bytes() + Aligned(header_.bytes);
}

void ServedRequest::PlaceValues(int64_t bytes) {
  const int64_t id_bytes = header_.id_bytes();
  const bool has_second = header_.is_encoded() && bytes > 0;
  buffers_->MakeRoom(id_bytes + (has_second ? Aligned(bytes) : 0) + bytes, &buffer_);
  char* const ids = buffer_->data();
  request_.row_ids = reinterpret_cast<const int64_t*>(ids);
  request_.delta = request_.out = ids + id_bytes;
  if (header_.delta_format != WireFormat::kFloat32) request_.delta = SecondValues();
}

Status ServedRequest::TestAll(Messenger::Ticket* tickets, bool* done) {
  *done = true;
  Status failure;
  for (int i = 0; i < 2; ++i) {
    if (!tickets[i].is_open) continue;
    bool is_over = false;
    int64_t bytes = 0;
    const Status status = messenger_->Test(&tickets[i], &is_over, &bytes);
    // After a failure the loop continues: the other message may still be written to the buffer.
    if (!status.ok() && failure.ok()) failure = status;
    if (is_over) received_ += bytes;
    *done = *done && (is_over || !status.ok());
  }
  return failure;
}

void ServedRequest::BeginWork() {
  if (failure_.ok()) CheckValues();
  phase_ = Phase::kWork;
}

void ServedRequest::DecodeValues() {
  if (header_.delta_format == WireFormat::kFloat32) return;
  const Instant began = Clock::now();
  Decode(header_.delta_format, buffer_->data() + header_.id_bytes(), FloatsIn(header_.bytes),
         reinterpret_cast<float*>(SecondValues()));
  CountEncoding(began);
}

int64_t ServedRequest::EncodeReply(const char** values) const {
  *values = static_cast<const char*>(request_.out);
  if (header_.answer_format == WireFormat::kFloat32) return header_.bytes;
  const Instant began = Clock::now();
  char* const encoded = SecondValues();
  const bool is_encoded =
      EncodeNearest(header_.answer_format, static_cast<const float*>(request_.out),
                    FloatsIn(header_.bytes), encoded);
  CountEncoding(began);
  if (is_encoded) *values = encoded;
  return is_encoded ? header_.BytesIn(header_.answer_format) : header_.bytes;
}

void ServedRequest::CountEncoding(Instant began) const {
  MessageCounts counts;
  counts.encoding = Clock::now() - began;
  rank_context_->memory()->recorder()->CountMessages(header_.table, counts);
}

void ServedRequest::CheckValues() {
  const int64_t expected = header_.payload_bytes();
  if (received_ != expected) {
    failure_ =
        Status(Code::kTransport, StrCat("a request of ", received_, " bytes, expected ", expected));
    return;
  }
  DecodeValues();
  if (HasIds(header_.kind)) {
    failure_ = table_->CheckRows(header_.kind, request_.row_ids, request_.num_ids);
  }
}

Status ServedRequest::Execute() {
  const Status worked = failure_.ok() ? Run() : failure_;
  if (worked.pending()) return worked;
  failure_ = worked;
  phase_ = Phase::kReply;
  return SendReply();
}

Status ServedRequest::Run() {
  // In sync mode, a get returns the values after a number of rounds, and a change of a
  // hyper-parameter waits for the rounds that use the old value.
  if (WaitsForRound()) return Status::Pending();
  const RequestKind kind = request_.kind;
  if (ReturnsData(kind) && !IsAdd(kind)) PlaceValues(header_.bytes);
  const WaitLimit limit{Instant::max(), Clock::now() + kTimeSlice};
  const Status status = table_->shard()->Run(request_, &progress_, limit);
  if (status.code() == Code::kMemory) {
    const Membership& members = rank_context_->members();
    return status.In(StrCat("the node of ", members.NameRank(members.rank())));
  }
  MV_RETURN_IF_NOT_OK(status);
  if (IsGet(kind) && table_->consistency()->HasBegun(request_.rounds)) {
    return Status(Code::kState,
                  StrCat("the values after ", request_.rounds, " rounds have been changed"));
  }
  return Status::Ok();
}

Status ServedRequest::SendReply() {
  (void)MV_FAILPOINT("service.reply");
  if (!ReturnsData(header_.kind)) {
    const Reply reply = Reply::Of(header_.call, failure_);
    reply_.assign(reinterpret_cast<const char*>(&reply), sizeof(reply));
    return messenger_->Send(header_.sender, header_.tag, reply_.data(),
                            static_cast<int64_t>(reply_.size()), &sends_[0]);
  }
  if (failure_.ok()) {
    const char* values = nullptr;
    const int64_t bytes = EncodeReply(&values);
    return messenger_->Send(header_.sender, header_.tag, values, bytes, &sends_[0]);
  }
  const Reply error = Reply::Of(header_.call, failure_);
  reply_.assign(reinterpret_cast<const char*>(&error), sizeof(error));
  MV_RETURN_IF_NOT_OK(messenger_->Send(header_.sender, ErrorTag(header_.tag), reply_.data(),
                                       static_cast<int64_t>(reply_.size()), &sends_[0]));
  return messenger_->Send(header_.sender, header_.tag, reply_.data(), 0, &sends_[1]);
}

void ServedRequest::Abandon() {
  bool in_use = sends_[0].is_open || sends_[1].is_open;
  for (Messenger::Ticket& ticket : receives_) {
    in_use = messenger_->Withdraw(&ticket) == Messenger::Withdrawn::kArriving || in_use;
  }
  if (!in_use) return;
  // The transport may still use the memory, so the memory is leaked rather than reused.
  (void)buffer_.release();                   // NOLINT: see above
  (void)new std::string(std::move(reply_));  // NOLINT
}

bool ServedRequest::WaitsForRound() const {
  const RequestKind kind = request_.kind;
  const bool is_of_round =
      IsGet(kind) || kind == RequestKind::kSetHyper || kind == RequestKind::kVersionsOfRows;
  return failure_.ok() && is_of_round && !table_->consistency()->HasApplied(request_.rounds);
}

}  // namespace multiverso
