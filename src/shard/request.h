// Request: one operation on a table, as a value. The C API builds a request once; the request then
// travels through the table and its consistency mode to the shard that executes it, in this process
// or, as messages (table/request_message.h), on another node.
//
// A new operation is a new RequestKind with its properties here, a case in Shard::Run, and a
// function of the C API; CONTRIBUTING.md lists the steps.
#ifndef MULTIVERSO_SHARD_REQUEST_H_
#define MULTIVERSO_SHARD_REQUEST_H_

#include <cstdint>

#include "shard/tensor_list.h"

namespace multiverso {

// The numbers travel between nodes and into the flight recorder.
enum class RequestKind : uint32_t {
  kGet = 1,
  kAdd = 2,
  kAddGet = 3,
  kStore = 4,
  kGetRows = 5,
  kAddRows = 6,
  kSetHyper = 7,
  kReleased = 8,  // a message only: the sender's node has released the table; no reply
  kExchange = 9,  // never a message: its tensors are in the caller's memory
  kEnd            // no kind has this number or a larger one
};

constexpr bool IsMessage(RequestKind kind) {
  return kind >= RequestKind::kGet && kind < RequestKind::kEnd && kind != RequestKind::kExchange;
}

constexpr bool IsOfRows(RequestKind kind) {
  return kind == RequestKind::kGetRows || kind == RequestKind::kAddRows;
}
// Returns the kind that does to a range of elements what `kind` does to rows. A row that exceeds a
// message is sent as such ranges.
constexpr RequestKind OfRange(RequestKind kind) {
  return kind == RequestKind::kGetRows ? RequestKind::kGet : RequestKind::kAdd;
}
constexpr bool IsAdd(RequestKind kind) {
  return kind == RequestKind::kAdd || kind == RequestKind::kAddGet ||
         kind == RequestKind::kAddRows || kind == RequestKind::kExchange;
}
constexpr bool CarriesData(RequestKind kind) { return IsAdd(kind) || kind == RequestKind::kStore; }
constexpr bool ReturnsData(RequestKind kind) {
  return kind == RequestKind::kGet || kind == RequestKind::kAddGet ||
         kind == RequestKind::kGetRows || kind == RequestKind::kExchange;
}
constexpr bool IsChange(RequestKind kind) {
  return CarriesData(kind) || kind == RequestKind::kSetHyper;
}
constexpr bool IsIdempotent(RequestKind kind) {
  return kind == RequestKind::kStore || kind == RequestKind::kSetHyper;
}

// Returns the name of the call for messages to the user.
constexpr const char* NameOf(RequestKind kind) {
  switch (kind) {
    case RequestKind::kGet:
    case RequestKind::kGetRows:
      return "get";
    case RequestKind::kAdd:
    case RequestKind::kAddRows:
      return "add";
    case RequestKind::kAddGet:
      return "add_get";
    case RequestKind::kStore:
      return "store";
    case RequestKind::kSetHyper:
      return "set_option";
    case RequestKind::kReleased:
      return "release";
    case RequestKind::kExchange:
      return "sync";
    case RequestKind::kEnd:
      break;
  }
  return "an unknown call";
}

// The memory is the caller's and stays valid until the call ends. Rows and elements are counted
// from the first row of the table.
struct Request {
  static constexpr int64_t kWhole = -1;
  static constexpr int kOwn = -2;

  RequestKind kind = RequestKind::kGet;
  // The worker that made the call; kOwn means the worker that executes the request.
  int worker = kOwn;
  const void* delta = nullptr;  // or the values to store
  void* out = nullptr;          // may equal `delta`; of kExchange, the last values
  // Row ids of a request for rows, in the given order and checked by the caller.
  const int64_t* row_ids = nullptr;
  int64_t num_ids = 0;
  // The range of elements of other requests, which `delta` and `out` hold alone; kWhole means the
  // whole shard.
  int64_t first = 0;
  int64_t count = kWhole;
  const TensorList* tensors = nullptr;  // of kExchange
  // The hyper-parameter of kSetHyper, checked by the caller.
  int32_t hyper = 0;
  double value = 0;
  uint64_t rounds = 0;  // the number of rounds that a server must have applied before

  static Request Get(void* out) { return Of(RequestKind::kGet, nullptr, out); }
  static Request Add(const void* delta) { return Of(RequestKind::kAdd, delta, nullptr); }
  static Request AddGet(const void* delta, void* out) {
    return Of(RequestKind::kAddGet, delta, out);
  }
  // Overwrites the parameters without the updater, for initial values.
  static Request Store(const void* values) { return Of(RequestKind::kStore, values, nullptr); }
  static Request GetRows(const int64_t* row_ids, int64_t num_ids, void* out) {
    return OfRows(RequestKind::kGetRows, row_ids, num_ids, nullptr, out);
  }
  // A row that is named twice is updated twice; the caller handles the other cases of
  // Updater::duplicates().
  static Request AddRows(const int64_t* row_ids, int64_t num_ids, const void* delta) {
    return OfRows(RequestKind::kAddRows, row_ids, num_ids, delta, nullptr);
  }
  // Adds the difference between `tensors` and `last`, which covers the whole table, and writes the
  // new parameters to both, stripe by stripe. An exchange that is aborted between two stripes has
  // completed the earlier stripes and not touched the others, so the caller can repeat it.
  static Request Exchange(const TensorList& tensors, void* last) {
    Request request = Of(RequestKind::kExchange, last, last);
    request.tensors = &tensors;
    return request;
  }
  static Request SetHyper(int32_t hyper, double value) {
    Request request = Of(RequestKind::kSetHyper, nullptr, nullptr);
    request.hyper = hyper;
    request.value = value;
    return request;
  }

 private:
  static Request Of(RequestKind kind, const void* delta, void* out) {
    Request request;
    request.kind = kind;
    request.delta = delta;
    request.out = out;
    return request;
  }
  static Request OfRows(RequestKind kind, const int64_t* row_ids, int64_t num_ids,
                        const void* delta, void* out) {
    Request request = Of(kind, delta, out);
    request.row_ids = row_ids;
    request.num_ids = num_ids;
    return request;
  }
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_REQUEST_H_
