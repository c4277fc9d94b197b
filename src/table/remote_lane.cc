#include "table/remote_lane.h"

#include <cstring>
#include <utility>

#include "base/text.h"

namespace multiverso {

RemoteLane::RemoteLane(Messenger* messenger, int server, int tag, int64_t table,
                       const TableRequest& request, ChunkSource source, RowRange rows)
    : messenger_(messenger),
      server_(server),
      tag_(tag),
      table_(table),
      request_(request),
      source_(std::move(source)),
      rows_(rows) {}

RemoteLane::~RemoteLane() {
  for (std::unique_ptr<Parcel>& parcel : parcels_) {
    // Memory that the transport may still use is better lost than used twice.
    if (parcel->is_under_way) (void)parcel.release();  // NOLINT: see above
  }
}

Status RemoteLane::SendNext(Parcel* parcel) {
  Chunk& chunk = parcel->chunk;
  if (!source_.Next(&chunk)) {
    all_sent_ = true;
    return Status::Ok();
  }
  RequestHeader header;
  header.kind = chunk.kind;
  header.sender = messenger_->rank();
  header.tag = tag_;
  header.table = table_;
  header.first = chunk.kind == RequestKind::kSetHyper ? request_.hyper : chunk.first;
  header.count =
      chunk.kind == RequestKind::kSetHyper ? static_cast<int64_t>(request_.rounds) : chunk.count;
  header.bytes = chunk.bytes;
  header.value = request_.value;
  parcel->header = EncodeRequest(header);
  parcel->is_under_way = true;
  // There must be a place for the answer before the question is asked.
  const bool values = ReturnsData(chunk.kind);
  parcel->expected = values ? chunk.bytes : static_cast<int64_t>(sizeof(parcel->reply));
  MV_RETURN_IF_NOT_OK(messenger_->Receive(server_, tag_,
                                          values ? static_cast<void*>(chunk.out) : &parcel->reply,
                                          parcel->expected, &parcel->answer));
  MV_RETURN_IF_NOT_OK(messenger_->Send(server_, kRequestTag, parcel->header.data(),
                                       static_cast<int64_t>(parcel->header.size()),
                                       &parcel->sends[0]));
  if (IsOfRows(chunk.kind)) {
    MV_RETURN_IF_NOT_OK(messenger_->Send(server_, ValuesTag(tag_), chunk.ids.data(),
                                         chunk.count * static_cast<int64_t>(sizeof(int64_t)),
                                         &parcel->sends[1]));
  }
  if (!CarriesData(chunk.kind)) return Status::Ok();
  return messenger_->Send(server_, ValuesTag(tag_), chunk.delta, chunk.bytes, &parcel->sends[2]);
}

Status RemoteLane::Test(Parcel* parcel, bool* done) {
  *done = true;
  for (Messenger::Ticket& send : parcel->sends) {
    if (!send.is_open) continue;
    bool over = false;
    int64_t bytes = 0;
    MV_RETURN_IF_NOT_OK(messenger_->Test(&send, &over, &bytes));
    *done = *done && over;
  }
  if (parcel->answer.is_open) {
    bool over = false;
    MV_RETURN_IF_NOT_OK(messenger_->Test(&parcel->answer, &over, &parcel->received));
    *done = *done && over;
  }
  return Status::Ok();
}

Status RemoteLane::CheckAnswer(const Parcel& parcel) {
  if (parcel.received == parcel.expected) {
    return ReturnsData(parcel.chunk.kind) ? Status::Ok() : parcel.reply.status();
  }
  std::string bytes;
  bool got = false;
  MV_RETURN_IF_NOT_OK(messenger_->Take(server_, kErrorTag, sizeof(ErrorMessage), &bytes, &got));
  if (got && bytes.size() == sizeof(ErrorMessage)) {
    ErrorMessage error;
    std::memcpy(&error, bytes.data(), sizeof(error));
    if (error.tag == tag_ && error.reply.code < 0) return error.reply.status();
  }
  return Status(Code::kTransport, StrCat("rank ", server_, " answered with ", parcel.received,
                                         " bytes, expected ", parcel.expected));
}

Status RemoteLane::Step(bool* progressed) {
  bool any_under_way = false;
  for (size_t i = 0; i < kWindow; ++i) {
    if (i == parcels_.size()) {
      if (all_sent_) break;
      parcels_.push_back(std::make_unique<Parcel>());
    }
    Parcel* const parcel = parcels_[i].get();
    if (parcel->is_under_way) {
      bool done = false;
      MV_RETURN_IF_NOT_OK(Test(parcel, &done));
      if (done) {
        parcel->is_under_way = false;
        *progressed = true;
        MV_RETURN_IF_NOT_OK(CheckAnswer(*parcel));
        source_.Finish(parcel->chunk);
      }
    }
    if (!parcel->is_under_way && !all_sent_) {
      MV_RETURN_IF_NOT_OK(SendNext(parcel));
      *progressed = *progressed || parcel->is_under_way;
    }
    any_under_way = any_under_way || parcel->is_under_way;
  }
  return all_sent_ && !any_under_way ? Status::Ok() : Status::Pending();
}

bool RemoteLane::WindDown() {
  all_sent_ = true;
  source_.Stop();
  bool all_over = true;
  for (std::unique_ptr<Parcel>& parcel : parcels_) {
    if (!parcel->is_under_way) continue;
    bool done = false;
    // An error ends a message as well.
    if (!Test(parcel.get(), &done).ok()) done = false;
    // Takes the message that explains an empty answer, so that it is not taken for another's.
    if (done) (void)CheckAnswer(*parcel);
    if (done) parcel->is_under_way = false;
    all_over = all_over && done;
  }
  return all_over;
}

void RemoteLane::Abandon() {
  for (std::unique_ptr<Parcel>& parcel : parcels_) {
    if (!parcel->is_under_way || !messenger_->Withdraw(&parcel->answer)) continue;
    bool any_send = false;
    for (const Messenger::Ticket& send : parcel->sends) any_send = any_send || send.is_open;
    parcel->is_under_way = any_send;
  }
}

}  // namespace multiverso
