// The messages that carry requests (shard/request.h) to the servers of other nodes.
//
// A call on a table is cut into chunks, each for one server. For a chunk the worker sends
//   a RequestHeader                       tag kRequestTag
//   the ids of the rows, if it has any    tag ValuesTag(header.tag)
//   the delta, if it adds or stores       tag ValuesTag(header.tag)
// and receives, with tag header.tag, the values or else a Reply. A server that cannot return values
// sends an ErrorMessage with kErrorTag and then a message of no bytes in their place. It answers
// the chunks of a call in the order in which they were sent.
#ifndef MULTIVERSO_TABLE_REQUEST_MESSAGE_H_
#define MULTIVERSO_TABLE_REQUEST_MESSAGE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "shard/request.h"
#include "shard/step_cells.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// Most bytes of values, and most row ids, of one chunk. Large enough for full speed, small enough
// that both sides work on one chunk while others cross the network: at 1 MiB, ten million values
// took up to twice as long between two hosts.
constexpr int64_t kChunkBytes = int64_t{1} << 18;
constexpr int64_t kChunkIds = int64_t{1} << 16;
static_assert(kChunkBytes == StepCells::kMostBytes, "no chunk ends within a cell");
static_assert(kChunkBytes % StripeLayout::kStripeBytes == 0, "nor in that of an array");

struct RequestHeader {
  uint32_t magic = 0;
  RequestKind kind = RequestKind::kGet;
  int32_t sender = 0;
  int32_t tag = 0;  // of the call
  int64_t table = 0;
  int64_t first = 0;  // first element of a range; number of a hyper-parameter
  int64_t count = 0;  // elements of a range, or rows; of kSetHyper, Request::rounds
  int64_t bytes = 0;  // of the values
  double value = 0;   // of a hyper-parameter
  // The number of a change in a sequence of the sender's, in a session that continues without lost
  // ranks. A change with the same number is not made twice (RequestLog).
  int32_t slot = -1;
  uint32_t unused = 0;
  uint64_t number = 0;

  int64_t id_bytes() const {
    return IsOfRows(kind) ? count * static_cast<int64_t>(sizeof(int64_t)) : 0;
  }
};

std::string EncodeRequest(RequestHeader header);
// Returns false if no rank of a job of `ranks` ranks can have sent these bytes. The sizes in a
// decoded header are safe to allocate; the table may still lack such rows.
bool DecodeRequest(const std::string& bytes, int ranks, RequestHeader* header);

// Whether a change has been applied.
struct Reply {
  int32_t code = 0;
  char text[252] = {};

  static Reply Of(const Status& status);
  Status status() const;
};

// Why a server returned no values.
struct ErrorMessage {
  int32_t tag = 0;
  Reply reply;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_REQUEST_MESSAGE_H_
