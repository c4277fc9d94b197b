// Request: one operation on a table, as a value. The C API builds a request once; the request then
// travels through the table and its consistency mode to the shard that executes it, in this process
// or, as messages (table/request_message.h), on another node.
//
// A new operation is a RequestKind with its traits here and a case in Shard::Run, or in
// KeyedShard::Run if only hash tables have it; MV_TableRun then accepts its name. CONTRIBUTING.md
// lists the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "numbers/tensor_list.h"
#include "shard/row_order.h"

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
  kReleased = 8,  // the sender's node has released the table; no reply
  kExchange = 9,
  kTouch = 10,
  kTouchRows = 11,
  kGetKeys = 12,     // keys without rows have their initial values
  kFetchKeys = 13,   // gives rows to keys that have none
  kAddKeys = 14,     // the same
  kTouchKeys = 15,   // the same
  kLocateKeys = 16,  // the same, and returns the rows of the keys in the table
  kFindKeys = 17,    // returns the rows of the keys, or -1
  kRemoveKeys = 18,
  kKeysOfRows = 19,      // returns the keys of rows
  kCountsOfRows = 20,    // returns the KeyCounts of the nodes of rows
  kVersionsOfRows = 21,  // returns the versions of the last changes of the stripes of rows
  kFetchAdd = 22,        // adds to one element, and returns its value before
  kCompareSwap = 23,     // the same, but stores a value if the element has the expected one
  kEnd                   // no kind has this number or a larger one
};

// Properties of a kind.
constexpr unsigned kHasIds = 1;      // of rows or, with kNamesKeys, of keys; otherwise a range
constexpr unsigned kAddsDelta = 2;   // the updater applies its data
constexpr unsigned kStoresData = 4;  // its data overwrite the parameters
constexpr unsigned kReturnsParameters = 8;  // it returns parameters
constexpr unsigned kIsLocal = 16;    // never a message: it is for what is on the caller's node
constexpr unsigned kTouches = 32;    // prepares rows for a change by another request
constexpr unsigned kNamesKeys = 64;  // its ids are keys
constexpr unsigned kReturnsNumbers = 128;  // it returns int64 numbers, not parameters
constexpr unsigned kIsAtomic = 256;        // changes an element without the updater, and returns it
constexpr unsigned kIsAtOnce =
    512;  // waits for no other worker, and counts as no call, in any mode

struct RequestTraits {
  RequestKind kind;
  const char* operation;  // the name for MV_TableRun, or null if it cannot run the kind
  const char* call;       // the name of the call in messages to the user
  unsigned properties;
};

// By number of the kind.
inline constexpr RequestTraits kRequestTraits[] = {
    {RequestKind{0}, nullptr, "an unknown call", 0},
    {RequestKind::kGet, "get", "get", kReturnsParameters},
    {RequestKind::kAdd, "add", "add", kAddsDelta},
    {RequestKind::kAddGet, "add_get", "add_get", kAddsDelta | kReturnsParameters},
    {RequestKind::kStore, nullptr, "store", kStoresData},
    {RequestKind::kGetRows, "get_rows", "get", kHasIds | kReturnsParameters},
    {RequestKind::kAddRows, "add_rows", "add", kHasIds | kAddsDelta},
    {RequestKind::kSetHyper, nullptr, "set_option", kIsAtOnce},
    {RequestKind::kReleased, nullptr, "release", 0},
    {RequestKind::kExchange, nullptr, "sync", kAddsDelta | kReturnsParameters | kIsLocal},
    {RequestKind::kTouch, nullptr, "add", kTouches},
    {RequestKind::kTouchRows, nullptr, "add", kTouches | kHasIds},
    {RequestKind::kGetKeys, "get_keys", "get", kHasIds | kNamesKeys | kReturnsParameters},
    {RequestKind::kFetchKeys, "fetch_keys", "get", kHasIds | kNamesKeys | kReturnsParameters},
    {RequestKind::kAddKeys, "add_keys", "add", kHasIds | kNamesKeys | kAddsDelta},
    {RequestKind::kTouchKeys, nullptr, "add", kTouches | kHasIds | kNamesKeys},
    {RequestKind::kLocateKeys, nullptr, "get",
     kHasIds | kNamesKeys | kReturnsNumbers | kIsLocal | kIsAtOnce},
    {RequestKind::kFindKeys, "find_keys", "contains",
     kHasIds | kNamesKeys | kReturnsNumbers | kIsAtOnce},
    {RequestKind::kRemoveKeys, "remove_keys", "remove", kHasIds | kNamesKeys | kIsAtOnce},
    {RequestKind::kKeysOfRows, "cells", "items", kHasIds | kReturnsNumbers | kIsAtOnce},
    {RequestKind::kCountsOfRows, nullptr, "stats", kHasIds | kReturnsNumbers | kIsAtOnce},
    {RequestKind::kVersionsOfRows, nullptr, "get_changed", kHasIds | kReturnsNumbers},
    {RequestKind::kFetchAdd, nullptr, "fetch_add", kIsAtomic | kIsAtOnce},
    {RequestKind::kCompareSwap, nullptr, "compare_swap", kIsAtomic | kIsAtOnce},
};

constexpr bool IsKind(RequestKind kind) {
  return kind > RequestKind{0} && kind < RequestKind::kEnd;
}
constexpr bool TraitsAreInOrder() {
  for (size_t i = 0; i < std::size(kRequestTraits); ++i) {
    if (static_cast<size_t>(kRequestTraits[i].kind) != i) return false;
  }
  return std::size(kRequestTraits) == static_cast<size_t>(RequestKind::kEnd);
}
static_assert(TraitsAreInOrder());

constexpr const RequestTraits& TraitsOf(RequestKind kind) {
  return kRequestTraits[IsKind(kind) ? static_cast<size_t>(kind) : 0];
}
constexpr bool Has(RequestKind kind, unsigned properties) {
  return (TraitsOf(kind).properties & properties) != 0;
}

constexpr bool IsMessage(RequestKind kind) { return IsKind(kind) && !Has(kind, kIsLocal); }
constexpr bool HasIds(RequestKind kind) { return Has(kind, kHasIds); }
constexpr bool IsAdd(RequestKind kind) { return Has(kind, kAddsDelta); }
constexpr bool IsAtomic(RequestKind kind) { return Has(kind, kIsAtomic); }
constexpr bool CarriesData(RequestKind kind) {
  return Has(kind, kAddsDelta | kStoresData | kIsAtomic);
}
constexpr bool ReturnsData(RequestKind kind) {
  return Has(kind, kReturnsParameters | kReturnsNumbers | kIsAtomic);
}
constexpr bool ReturnsParameters(RequestKind kind) { return Has(kind, kReturnsParameters); }
constexpr bool IsGet(RequestKind kind) { return Has(kind, kReturnsParameters) && !IsAdd(kind); }
constexpr bool ReturnsNumbers(RequestKind kind) { return Has(kind, kReturnsNumbers); }
constexpr bool IsOfKeys(RequestKind kind) { return Has(kind, kNamesKeys); }
// Returns whether only hash tables have the operation.
constexpr bool NeedsKeys(RequestKind kind) {
  return IsOfKeys(kind) || (ReturnsNumbers(kind) && kind != RequestKind::kVersionsOfRows);
}
constexpr bool IsTouch(RequestKind kind) { return Has(kind, kTouches); }
constexpr const char* NameOf(RequestKind kind) { return TraitsOf(kind).call; }

// Returns the kind that does to a range of elements what `kind` does to rows. A row that is larger
// than a chunk travels as several ranges.
constexpr RequestKind RangeKindOf(RequestKind kind) {
  if (!IsAdd(kind)) return RequestKind::kGet;
  return ReturnsData(kind) ? RequestKind::kAddGet : RequestKind::kAdd;
}

// What a request says to the shard of any node. Rows and elements are counted from the first row of
// the table.
struct RequestFields {
  static constexpr int64_t kWholeShard = -1;
  static constexpr int64_t kLastVersion = int64_t{1} << 62;

  RequestKind kind = RequestKind::kGet;
  // The range of elements of kinds without ids. Of kSetHyper, `first` is the hyper-parameter.
  int64_t first = 0;
  int64_t count = kWholeShard;
  // If not 0, the range consists of runs of `width` elements in consecutive rows, of which the
  // first begins at `first`; `count` elements in all.
  int64_t width = 0;
  // In sync mode, of kSetHyper, kVersionsOfRows and of gets, the number of rounds that a server
  // must have applied before.
  uint64_t rounds = 0;
  // Of kVersionsOfRows: changes after the request get at least this version. It is at most
  // kLastVersion, so that adding 1 for each later change does not overflow.
  uint64_t version = 0;
  // Of kCompareSwap: the bytes of the value that the element must have.
  uint64_t expected = 0;
  double value = 0;  // of kSetHyper, checked
};

// The memory is the caller's and stays valid until the call ends.
struct Request : RequestFields {
  const void* delta = nullptr;  // or the values to store; of a range, only those of the range
  void* out = nullptr;          // may equal `delta`
  // The row ids or keys of kinds that have ids, in the order of the rows in `delta` and `out`. Row
  // ids have been checked.
  const int64_t* row_ids = nullptr;
  int64_t num_ids = 0;
  const RowOrder* order =
      nullptr;  // of adds to rows or keys, the order of row_ids; null: as in the list
  // Of kExchange. `delta` and `out` are then the last values of the whole table, even if the
  // request is for a range.
  const TensorList* tensors = nullptr;
  double scale = 1;  // of kExchange, by which deltas are multiplied before they are added
  // Whether a get takes part in no round: it reads the values after the last complete one, and
  // neither counts for this worker nor waits for another worker's call. No updater notes it.
  bool is_peek = false;

  bool HasBuffers() const {
    return (delta != nullptr || !CarriesData(kind)) && (out != nullptr || !ReturnsData(kind));
  }
  // Returns whether the request is for a range of elements that is not the whole table.
  bool IsPart() const { return count != kWholeShard && !HasIds(kind); }
  // Returns the distance from the first element of a part to the end of its last.
  int64_t Span(int64_t columns) const {
    return width == 0 ? count : (count / width - 1) * columns + width;
  }

  // Ignores ids, a delta or a result that the kind does not have, which may be any pointers.
  static Request Of(RequestKind kind, const int64_t* row_ids, int64_t num_ids, const void* delta,
                    void* out) {
    Request request;
    request.kind = kind;
    if (HasIds(kind)) {
      request.row_ids = row_ids;
      request.num_ids = num_ids;
    }
    if (CarriesData(kind)) request.delta = delta;
    if (ReturnsData(kind)) request.out = out;
    return request;
  }
  static Request Get(void* out) { return Of(RequestKind::kGet, nullptr, out); }
  static Request Add(const void* delta) { return Of(RequestKind::kAdd, delta, nullptr); }
  static Request AddGet(const void* delta, void* out) {
    return Of(RequestKind::kAddGet, delta, out);
  }
  // Overwrites the parameters without the updater, for initial values.
  static Request Store(const void* values) { return Of(RequestKind::kStore, values, nullptr); }
  static Request GetRows(const int64_t* row_ids, int64_t num_ids, void* out) {
    return Of(RequestKind::kGetRows, row_ids, num_ids, nullptr, out);
  }
  // With an `order`, a row that is named twice is updated as Updater::duplicates() says. Without,
  // it is updated twice.
  static Request AddRows(const int64_t* row_ids, int64_t num_ids, const void* delta) {
    return Of(RequestKind::kAddRows, row_ids, num_ids, delta, nullptr);
  }
  // Adds the difference between `tensors` and `last`, which covers the whole table, and writes the
  // new parameters to both, stripe by stripe. An exchange that is aborted between two stripes has
  // completed the earlier stripes and not touched the others, so the caller can repeat it. Over
  // several nodes and in sync mode, the last values are undefined if it fails.
  static Request Exchange(const TensorList& tensors, void* last) {
    Request request = Of(RequestKind::kExchange, last, last);
    request.tensors = &tensors;
    return request;
  }
  // Touches rows (LazyRows): those of an add that follows, or all.
  static Request Touch() { return Of(RequestKind::kTouch, nullptr, nullptr); }
  static Request TouchRows(const int64_t* row_ids, int64_t num_ids) {
    return Of(RequestKind::kTouchRows, row_ids, num_ids, nullptr, nullptr);
  }
  static Request SetHyper(int32_t hyper, double value) {
    Request request = Of(RequestKind::kSetHyper, nullptr, nullptr);
    request.first = hyper;
    request.value = value;
    return request;
  }

 private:
  static Request Of(RequestKind kind, const void* delta, void* out) {
    return Of(kind, nullptr, 0, delta, out);
  }
};

}  // namespace multiverso
