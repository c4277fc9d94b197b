// The messages that carry requests (shard/request.h) to the servers of other nodes.
//
// A call on a table is cut into chunks, each for one server. For each chunk the worker sends
//   a RequestHeader                       tag kRequestTag
//   the ids of the rows, for rows         tag ValuesTag(header.tag)
//   the delta, for an add or a store      tag ValuesTag(header.tag)
// If the ids and the delta together have at most kInlineBytes, they follow the header in the same
// message instead. The worker receives, with tag header.tag, the values, or a Reply if the request
// returns no values. A server that cannot return the values sends a Reply with tag
// ErrorTag(header.tag) and, in place of the values, a message of no bytes. The server answers the
// chunks of a call in the order in which they were sent. A kReleased header stands alone, without
// an answer.
//
// Values are received where the caller wants them, so an answer must be known before it arrives.
// Its tag identifies the call, because no other call has the tag until the last answer has been
// received (CallTags, LateAnswers). A Reply repeats the number of the call, and is dropped if it
// has another.
//
// Values are also sent from the caller's memory. If a call ends before they have all been sent, MPI
// may send them later, when the caller has changed them. So the worker then sends an EndedCall with
// kEndTag, and the server applies no values of that call that it receives afterwards. Nor does it
// apply any once it knows that it counts as lost. This does not protect a large add whose last
// chunks MPI already holds: they may carry the changed values.
#pragma once

#include <cstdint>
#include <string>

#include "base/frame.h"
#include "base/status.h"
#include "numbers/wire_format.h"
#include "shard/request.h"
#include "shard/step_cells.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// The most bytes of values, and the most row ids, of one chunk. Chunks are large enough for full
// speed and small enough that both sides work on one chunk while others cross the network: at 1
// MiB, a request of ten million values took up to twice as long between two hosts.
constexpr int64_t kChunkBytes = int64_t{1} << 19;
constexpr int64_t kChunkIds = int64_t{1} << 16;
// The most bytes of an answer.
constexpr int64_t kMostAnswerBytes = kChunkBytes;
// The most bytes of row ids and delta in a header's message. Copying them takes less time than
// another message. The limit is low because the server waits for the whole of such a message.
constexpr int64_t kInlineBytes = int64_t{1} << 14;
static_assert(kChunkBytes % StepCells::kMaxCellBytes == 0, "chunks of a row end with a step cell");
static_assert(kChunkBytes % StripeLayout::kStripeBytes == 0, "chunks of an array, with a stripe");

// For rows, `count` is their number.
struct RequestHeader : RequestFields {
  int32_t sender = 0;
  int32_t tag = 0;  // of the answers; with `call`, the CallNumber of the call
  uint64_t call = 0;
  int64_t table = 0;
  int64_t bytes = 0;  // of the values in memory; of kTouchRows, of the ids
  WireFormat delta_format = WireFormat::kFloat32;   // of the values that follow
  WireFormat answer_format = WireFormat::kFloat32;  // of the answer, if it can represent the values

  bool is_encoded() const {
    return delta_format != WireFormat::kFloat32 || answer_format != WireFormat::kFloat32;
  }
  int64_t id_bytes() const {
    return HasIds(kind) ? count * static_cast<int64_t>(sizeof(int64_t)) : 0;
  }
  // Returns the bytes of the values that follow.
  int64_t value_bytes() const { return CarriesData(kind) ? BytesIn(delta_format) : 0; }
  // Returns the bytes of the values in that format.
  int64_t BytesIn(WireFormat format) const {
    if (format == WireFormat::kFloat32) return bytes;
    return WireBytes(format, FloatsIn(bytes));
  }
  // Returns the bytes of the row ids and of the values that follow.
  int64_t payload_bytes() const { return id_bytes() + value_bytes(); }
  // Returns the bytes of the payload that follow the header in its message: all or none.
  int64_t inline_bytes() const { return payload_bytes() <= kInlineBytes ? payload_bytes() : 0; }
};

constexpr int64_t kRequestBytes = FrameBytes<RequestHeader>();

// Returns the header as a message, to which the caller appends the inline bytes.
std::string EncodeRequest(const RequestHeader& header);
// Returns false if no rank of a job of `num_ranks` ranks can have sent `bytes`. The sizes in a
// decoded header are safe to allocate and match `bytes`, but the table may not have the header's
// rows.
bool DecodeRequest(const std::string& bytes, int num_ranks, RequestHeader* header);

struct EndedCall {
  int32_t sender = 0;
  uint64_t call = 0;  // RequestHeader::call
};

// The answer to a request that returns no values: ok, or why the request failed. Also why a server
// cannot return the values of a request.
struct Reply {
  uint64_t call = 0;  // RequestHeader::call
  int32_t code = 0;
  char text[252] = {};

  static Reply Of(uint64_t call, const Status& status);
  Status status() const;
};

}  // namespace multiverso
