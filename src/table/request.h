// Requests: what a worker asks of the servers of another node, as messages.
//
// A call on a table is cut into chunks, each the affair of one server. For a chunk the worker sends
//   a RequestHeader                         tag kRequestTag
//   the ids of the rows, if it is of rows   tag ValuesTag(header.tag)
//   the delta, if it adds or stores         tag ValuesTag(header.tag)
// and gets, with tag header.tag, the values or else a Reply. Values that cannot be had are no bytes
// at all, and an ErrorMessage with kErrorTag comes before them. The chunks of a call to one server
// are answered in the order in which they were asked for.
#ifndef MULTIVERSO_TABLE_REQUEST_H_
#define MULTIVERSO_TABLE_REQUEST_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "shard/step_cells.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// Numbers on the wire.
enum class RequestKind : uint32_t {
  kGet = 1,
  kAdd = 2,
  kAddGet = 3,
  kStore = 4,
  kGetRows = 5,
  kAddRows = 6,
  kSetHyper = 7,
  kReleased = 8,  // the sender's node has released the table; no reply
};

constexpr bool IsOfRows(RequestKind kind) {
  return kind == RequestKind::kGetRows || kind == RequestKind::kAddRows;
}
constexpr bool CarriesData(RequestKind kind) {
  return kind == RequestKind::kAdd || kind == RequestKind::kAddGet || kind == RequestKind::kStore ||
         kind == RequestKind::kAddRows;
}
constexpr bool ReturnsData(RequestKind kind) {
  return kind == RequestKind::kGet || kind == RequestKind::kAddGet || kind == RequestKind::kGetRows;
}

constexpr bool IsChange(RequestKind kind) {
  return CarriesData(kind) || kind == RequestKind::kSetHyper;
}
// Has the same effect twice as once.
constexpr bool MayRepeat(RequestKind kind) {
  return kind == RequestKind::kStore || kind == RequestKind::kSetHyper;
}

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
  int64_t first = 0;  // the table's element that a range begins with; which hyper-parameter
  int64_t count = 0;  // elements of a range, or rows; rounds to be applied before kSetHyper
  int64_t bytes = 0;  // of the values
  double value = 0;   // of a hyper-parameter
  // Of a change, in a session that goes on without lost ranks: its place in a sequence of the
  // sender's that must not be made twice (RequestLog).
  int32_t slot = -1;
  uint32_t unused = 0;
  uint64_t number = 0;
};

std::string EncodeRequest(RequestHeader header);
// False if these bytes are no request that one of `ranks` ranks can have sent: whatever they are,
// what is then in the header can be used for sizes. Whether the table has such rows is not checked.
bool DecodeRequest(const std::string& bytes, int ranks, RequestHeader* header);

// An add or a store has been applied, or why not.
struct Reply {
  int32_t code = 0;
  char text[252] = {};

  static Reply Of(const Status& status);
  Status status() const;
};

// Why values could not be had.
struct ErrorMessage {
  int32_t tag = 0;
  Reply reply;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_REQUEST_H_
