// The messages that carry requests (shard/request.h) to the servers of other nodes.
//
// A call on a table is cut into chunks, each for one server. For a chunk the worker sends
//   a RequestHeader                       tag kRequestTag
//   the ids of the rows, for rows         tag ValuesTag(header.tag)
//   the delta, for an add or a store      tag ValuesTag(header.tag)
// and receives, with tag header.tag, the values or else a Reply. A server that cannot return values
// sends an ErrorMessage with kErrorTag and then, in place of the values, a message of no bytes. The
// server answers the chunks of a call in the order in which they were sent.
#ifndef MULTIVERSO_TABLE_REQUEST_MESSAGE_H_
#define MULTIVERSO_TABLE_REQUEST_MESSAGE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "shard/request.h"
#include "shard/step_cells.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// The most bytes of values, and the most row ids, of one chunk. Chunks are large enough for full
// speed and small enough that both sides work on one chunk while others cross the network: at 1
// MiB, a request of ten million values took up to twice as long between two hosts.
constexpr int64_t kChunkBytes = int64_t{1} << 18;
constexpr int64_t kChunkIds = int64_t{1} << 16;
static_assert(kChunkBytes == StepCells::kMaxCellBytes, "no chunk ends within a cell");
static_assert(kChunkBytes % StripeLayout::kStripeBytes == 0, "nor in that of an array");

struct RequestHeader {
  uint32_t magic = 0;
  RequestKind kind = RequestKind::kGet;
  int32_t sender = 0;
  int32_t tag = 0;  // tag of the call
  int64_t table = 0;
  int64_t first = 0;  // first element of a range; number of a hyper-parameter
  int64_t count = 0;  // elements of a range, or rows; of kSetHyper, Request::rounds
  int64_t bytes = 0;  // bytes of the values
  double value = 0;   // value of a hyper-parameter
  // In a session that continues without lost ranks, `number` numbers the changes of the sender in
  // `slot`, so that no change is applied twice (RequestLog). Slot -1 means no number.
  int32_t slot = -1;
  uint32_t unused = 0;
  uint64_t number = 0;

  int64_t id_bytes() const {
    return IsOfRows(kind) ? count * static_cast<int64_t>(sizeof(int64_t)) : 0;
  }
};

std::string EncodeRequest(RequestHeader header);
// Returns false if no rank of a job of `ranks` ranks can have sent `bytes`. The sizes in a decoded
// header are safe to allocate, but the table may not have the header's rows.
bool DecodeRequest(const std::string& bytes, int ranks, RequestHeader* header);

// The result of a change: ok, or the reason why the change failed.
struct Reply {
  int32_t code = 0;
  char text[252] = {};

  static Reply Of(const Status& status);
  Status status() const;
};

// The reason why a server returned no values.
struct ErrorMessage {
  int32_t tag = 0;
  Reply reply;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_REQUEST_MESSAGE_H_
