#include "table/request_message.h"

#include <cstring>

#include "base/text.h"
#include "transport/messenger.h"

namespace multiverso {

std::string EncodeRequest(const RequestHeader& header) {
  return MakeFrame(FrameKind::kRequest, header);
}

bool DecodeRequest(const std::string& bytes, int num_ranks, RequestHeader* header) {
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kRequest, header)) return false;
  if (header->sender < 0 || header->sender >= num_ranks) return false;
  if (!IsMessage(header->kind)) return false;
  if (header->kind == RequestKind::kReleased) return reader.remaining() == 0;
  if (header->tag < kFirstCallTag || header->tag > kLastCallTag) return false;
  // Only these kinds are for runs of elements, of which each has a part in each row.
  const bool may_have_runs = header->kind == RequestKind::kGet || header->kind == RequestKind::kAdd;
  if (header->width < 0 || (header->width > 0 && !may_have_runs)) return false;
  if (IsAtomic(header->kind) && header->count != 1) return false;
  if (header->is_encoded() && (!IsAdd(header->kind) || HasIds(header->kind))) return false;
  if (header->kind == RequestKind::kSetHyper) {
    return header->first >= 0 && header->first <= INT32_MAX && header->bytes == 0 &&
           reader.remaining() == 0;
  }
  if (header->kind == RequestKind::kTouch) {
    return header->first >= 0 && header->count > 0 && header->bytes == 0 && reader.remaining() == 0;
  }
  if (!IsWireFormat(static_cast<int32_t>(header->delta_format)) ||
      !IsWireFormat(static_cast<int32_t>(header->answer_format))) {
    return false;
  }
  // Encoded values take less memory than the values, so that a receiver has room for both.
  if (header->BytesIn(header->delta_format) > header->bytes) return false;
  if (header->answer_format == WireFormat::kInt8) return false;  // no sender asks for it
  if (header->answer_format != WireFormat::kFloat32 && !ReturnsParameters(header->kind)) {
    return false;
  }
  const int64_t max_count = HasIds(header->kind) ? kChunkIds : kChunkBytes;
  return header->count > 0 && header->count <= max_count && header->first >= 0 &&
         header->bytes > 0 && header->bytes <= kChunkBytes &&
         static_cast<int64_t>(reader.remaining()) == header->inline_bytes();
}

Reply Reply::Of(uint64_t call, const Status& status) {
  Reply reply;
  reply.call = call;
  reply.code = static_cast<int32_t>(status.code());
  CopyText(reply.text, status.text());
  return reply;
}

Status Reply::status() const {
  if (code == 0) return Status::Ok();
  const auto length = strnlen(text, sizeof(text));
  return Status(code < 0 ? static_cast<Code>(code) : Code::kTransport, std::string(text, length));
}

}  // namespace multiverso
