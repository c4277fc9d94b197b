#include "table/server_pipeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace multiverso {

bool ServerPipeline::Wire::is_in_use() const {
  return answer.is_open || std::any_of(std::begin(sends), std::end(sends),
                                       [](const Messenger::Ticket& one) { return one.is_open; });
}

ServerPipeline::ServerPipeline(Messenger* messenger, int server, int tag, int64_t table,
                               const TableRequest& request, ChunkSource source, RowRange rows,
                               LaneBackup backup)
    : messenger_(messenger),
      server_(server),
      tag_(tag),
      table_(table),
      request_(request),
      source_(std::move(source)),
      rows_(rows),
      backup_(backup) {}

ServerPipeline::~ServerPipeline() {
  for (std::unique_ptr<InFlightRequest>& parcel : parcels_) {
    // Memory that the transport may still use is better lost than used twice.
    if (parcel->is_under_way) (void)parcel.release();  // NOLINT: see above
  }
}

Status ServerPipeline::SendNext(InFlightRequest* parcel) {
  if (!source_.Next(&parcel->chunk)) {
    all_sent_ = true;
    return Status::Ok();
  }
  parcel->order = ++sent_;
  const bool is_numbered = backup_.slot >= 0 && IsChange(parcel->chunk.kind);
  parcel->number = is_numbered ? backup_.numbers->Next(backup_.node, backup_.slot) : 0;
  parcel->is_under_way = true;
  return Send(parcel);
}

Status ServerPipeline::Send(InFlightRequest* parcel) {
  const Chunk& chunk = parcel->chunk;
  Wire& wire = *parcel->wire;
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
  header.slot = parcel->number > 0 ? backup_.slot : -1;
  header.number = parcel->number;
  wire.header = EncodeRequest(header);
  const int64_t id_bytes =
      IsOfRows(chunk.kind) ? chunk.count * static_cast<int64_t>(sizeof(int64_t)) : 0;
  const char* ids = reinterpret_cast<const char*>(chunk.ids.data());
  const char* delta = chunk.delta;
  char* out = chunk.out;
  if (has_backup()) {
    // An answer does not come before all has been received of what it is the answer to.
    wire.values.resize(static_cast<size_t>(id_bytes + chunk.bytes));
    out = wire.values.data() + id_bytes;
    if (id_bytes > 0) std::memcpy(wire.values.data(), ids, static_cast<size_t>(id_bytes));
    if (delta != nullptr) std::memcpy(out, delta, static_cast<size_t>(chunk.bytes));
    ids = wire.values.data();
    delta = out;
  }
  // There must be a place for the answer before the question is asked.
  const bool values = ReturnsData(chunk.kind);
  parcel->expected = values ? chunk.bytes : static_cast<int64_t>(sizeof(wire.reply));
  MV_RETURN_IF_NOT_OK(messenger_->Receive(server_, tag_,
                                          values ? static_cast<void*>(out) : &wire.reply,
                                          parcel->expected, &wire.answer));
  MV_RETURN_IF_NOT_OK(messenger_->Send(server_, kRequestTag, wire.header.data(),
                                       static_cast<int64_t>(wire.header.size()), &wire.sends[0]));
  if (id_bytes > 0) {
    MV_RETURN_IF_NOT_OK(messenger_->Send(server_, ValuesTag(tag_), ids, id_bytes, &wire.sends[1]));
  }
  if (!CarriesData(chunk.kind)) return Status::Ok();
  return messenger_->Send(server_, ValuesTag(tag_), delta, chunk.bytes, &wire.sends[2]);
}

Status ServerPipeline::Test(InFlightRequest* parcel, bool* done) {
  *done = true;
  for (Messenger::Ticket& send : parcel->wire->sends) {
    if (!send.is_open) continue;
    bool over = false;
    int64_t bytes = 0;
    MV_RETURN_IF_NOT_OK(messenger_->Test(&send, &over, &bytes));
    *done = *done && over;
  }
  if (parcel->wire->answer.is_open) {
    bool over = false;
    MV_RETURN_IF_NOT_OK(messenger_->Test(&parcel->wire->answer, &over, &parcel->wire->received));
    *done = *done && over;
  }
  return Status::Ok();
}

Status ServerPipeline::CheckAnswer(const InFlightRequest& parcel) {
  if (parcel.wire->received == parcel.expected) {
    return ReturnsData(parcel.chunk.kind) ? Status::Ok() : parcel.wire->reply.status();
  }
  std::string bytes;
  bool got = false;
  MV_RETURN_IF_NOT_OK(messenger_->Take(server_, kErrorTag, sizeof(ErrorMessage), &bytes, &got));
  if (got && bytes.size() == sizeof(ErrorMessage)) {
    ErrorMessage error;
    std::memcpy(&error, bytes.data(), sizeof(error));
    if (error.tag == tag_ && error.reply.code < 0) return error.reply.status();
  }
  return Status(Code::kTransport, StrCat("rank ", server_, " answered with ", parcel.wire->received,
                                         " bytes, expected ", parcel.expected));
}

Status ServerPipeline::Finish(InFlightRequest* parcel) {
  parcel->is_under_way = false;
  MV_RETURN_IF_NOT_OK(CheckAnswer(*parcel));
  const Chunk& chunk = parcel->chunk;
  if (has_backup() && ReturnsData(chunk.kind)) {
    const std::vector<char>& values = parcel->wire->values;
    std::memcpy(chunk.out, values.data() + values.size() - chunk.bytes,
                static_cast<size_t>(chunk.bytes));
  }
  source_.Finish(chunk);
  return Status::Ok();
}

Status ServerPipeline::Stall(const Status& status) {
  if (!has_backup() || !MayMeanLoss(status)) return status;
  stall_ = status;
  return Status::Ok();
}

Status ServerPipeline::Step(bool* progressed) {
  bool any_under_way = false;
  for (size_t i = 0; i < kWindow && stall_.ok(); ++i) {
    if (i == parcels_.size()) {
      if (all_sent_) break;
      parcels_.push_back(std::make_unique<InFlightRequest>());
    }
    InFlightRequest* const parcel = parcels_[i].get();
    if (parcel->is_under_way) {
      bool done = false;
      MV_RETURN_IF_NOT_OK(Stall(Test(parcel, &done)));
      if (!stall_.ok()) break;
      if (done) {
        *progressed = true;
        MV_RETURN_IF_NOT_OK(Finish(parcel));
      }
    }
    if (!parcel->is_under_way && !all_sent_) {
      MV_RETURN_IF_NOT_OK(Stall(SendNext(parcel)));
      *progressed = *progressed || (parcel->is_under_way && stall_.ok());
    }
    any_under_way = any_under_way || parcel->is_under_way;
  }
  return stall_.ok() && all_sent_ && !any_under_way ? Status::Ok() : Status::Pending();
}

Status ServerPipeline::Redirect(int server, int tag) {
  std::vector<InFlightRequest*> unanswered;
  for (std::unique_ptr<InFlightRequest>& parcel : parcels_) {
    if (!parcel->is_under_way) continue;
    bool done = false;
    // Its answer may have been the last that the server sent.
    if (stall_.ok() && Test(parcel.get(), &done).ok() && done) {
      MV_RETURN_IF_NOT_OK(Finish(parcel.get()));
    } else {
      unanswered.push_back(parcel.get());
    }
  }
  std::sort(unanswered.begin(), unanswered.end(),
            [](const InFlightRequest* a, const InFlightRequest* b) { return a->order < b->order; });
  replaced_ = server_;
  server_ = server;
  tag_ = tag;
  stall_ = Status::Ok();
  for (InFlightRequest* const parcel : unanswered) {
    Detach(messenger_, &parcel->wire);
    const bool is_safe = parcel->number > 0 || !IsChange(parcel->chunk.kind);
    if (!is_safe && !MayRepeat(parcel->chunk.kind)) {
      parcel->is_under_way = false;
      return Status(Code::kPeerLost, StrCat("rank ", replaced_,
                                            " died before it had answered an add: it may be there, "
                                            "in part or as a whole, or not"));
    }
  }
  for (InFlightRequest* const parcel : unanswered) {
    // Those after a failure are sent by the next Redirect.
    if (stall_.ok()) MV_RETURN_IF_NOT_OK(Stall(Send(parcel)));
  }
  return Status::Ok();
}

void ServerPipeline::Detach(Messenger* messenger, std::unique_ptr<Wire>* wire) {
  (void)messenger->Withdraw(&(*wire)->answer);
  // Memory that the transport may still use is better lost than used twice.
  if ((*wire)->is_in_use()) (void)wire->release();  // NOLINT: see above
  *wire = std::make_unique<Wire>();
}

bool ServerPipeline::WindDown() {
  all_sent_ = true;
  source_.Stop();
  bool all_over = true;
  for (std::unique_ptr<InFlightRequest>& parcel : parcels_) {
    if (!parcel->is_under_way) continue;
    bool done = false;
    // An error ends a message as well.
    if (!stall_.ok() || !Test(parcel.get(), &done).ok()) done = false;
    // Takes the message that explains an empty answer, so that it is not taken for another's.
    if (done) (void)CheckAnswer(*parcel);
    if (done) parcel->is_under_way = false;
    all_over = all_over && done;
  }
  return all_over;
}

void ServerPipeline::Abandon() {
  for (std::unique_ptr<InFlightRequest>& parcel : parcels_) {
    if (!parcel->is_under_way || !messenger_->Withdraw(&parcel->wire->answer)) continue;
    parcel->is_under_way = parcel->wire->is_in_use();
  }
}

}  // namespace multiverso
