// The part of the C API that describes and frees tables, runs operations on them, and keeps their
// memory mapped.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "calls/collective_get.h"
#include "memory/segment.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

struct MemoryEntry {
  std::shared_ptr<Segment> memory;
};

using MemoryHandles = HandleTable<MV_Memory, MemoryEntry>;

MemoryHandles& Memories() {
  return HandlesOf<MemoryHandles>("memory",
                                  [](MemoryEntry* entry) { entry->memory->ForgetInChild(); });
}

Status CheckFlags(RequestKind kind, int32_t flags) {
  const bool is_flag =
      flags == MV_COLLECTIVE || (flags == MV_PEEK && kind != RequestKind::kFetchKeys);
  if (is_flag && IsGet(kind)) return Status::Ok();
  return Status(Code::kValue,
                StrCat("flags: expected 0", IsGet(kind) ? ", MV_COLLECTIVE or MV_PEEK" : "",
                       ", received ", flags, " for ", NameOf(kind)));
}

// Runs `body`, a Status(Table*, const WaitLimit&), as a call of that kind which passes no data.
// `result` is the caller's pointer to a pointer.
template <class Pointed, class Body>
int32_t RunWithoutData(MV_Table handle, RequestKind kind, Pointed* result, const Body& body) {
  return OpenTables().With(handle, [&](TableEntry* entry) -> Status {
    Table* const table = entry->table;
    const int64_t count = table->spec().count();
    // The check of a get into `result` is right here, too: the call needs a worker, and a pointer
    // that is not null.
    MV_RETURN_IF_NOT_OK(table->Check(Request::Get(result), count));
    return RunTableCall(entry, kind, count,
                        [&](const WaitLimit& limit) { return body(table, limit); });
  });
}

// Makes a collective get, which Table::Check has accepted.
Status RunCollectiveGet(TableEntry* entry, const Request& get, int64_t count) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  const CallGuard guard(&entry->owner->in_collective_call);
  MV_RETURN_IF_NOT_OK(guard.Check("session"));
  return RunRecorded(
      *entry, NameOf(get.kind), RecordCollectiveGet(*entry->table, count), /*is_collective=*/true,
      [&](const WaitLimit& limit) { return CollectiveGet(entry->table, get, limit); });
}

// Runs a request whose delta or result has `count` elements in the caller's memory, or, with a
// `part`, as many elements as the part. `expected` is that of kCompareSwap.
Status RunRequest(TableEntry* entry, Request request, int64_t count, int32_t flags = 0,
                  const TablePart* part = nullptr, const void* expected = nullptr) {
  Table* const table = entry->table;
  if (part == nullptr) {
    MV_RETURN_IF_NOT_OK(table->Check(request, count));
  } else {
    MV_RETURN_IF_NOT_OK(table->PlacePart(*part, &request));
    count = request.count;
    const auto bytes = static_cast<size_t>(SizeOf(table->spec().value_type()));
    if (expected != nullptr) std::memcpy(&request.expected, expected, bytes);
  }
  if (flags != 0) {
    MV_RETURN_IF_NOT_OK(CheckFlags(request.kind, flags));
    request.is_peek = flags == MV_PEEK;
    if (!request.is_peek && !table->EveryGetIsCollective()) {
      return RunCollectiveGet(entry, request, count);
    }
  }
  return RunTableCall(
      entry, request.kind, count,
      [&](const WaitLimit& limit) { return table->Run(request, limit); }, request.is_peek);
}

int32_t RunRequest(MV_Table handle, const Request& request, int64_t count, int32_t flags = 0) {
  return OpenTables().With(
      handle, [&](TableEntry* entry) { return RunRequest(entry, request, count, flags); });
}

// Runs a request for a part.
int32_t RunPart(MV_Table handle, RequestKind kind, const TablePart& part, const void* delta,
                void* out, int32_t flags = 0, const void* expected = nullptr) {
  return OpenTables().With(handle, [&](TableEntry* entry) {
    return RunRequest(entry, Request::Of(kind, nullptr, 0, delta, out), 0, flags, &part, expected);
  });
}

}  // namespace

Result<RequestKind> KindOf(const char* operation) {
  const std::string_view wanted = operation == nullptr ? "null" : operation;
  for (const RequestTraits& traits : kRequestTraits) {
    if (traits.operation != nullptr && wanted == traits.operation) return traits.kind;
  }
  std::string names;
  for (const RequestTraits& traits : kRequestTraits) {
    if (traits.operation != nullptr) names += StrCat(traits.operation, ", ");
  }
  return Status(Code::kValue, StrCat("operation: expected one of ", names, "received ", wanted));
}

Status KeepMemory(std::shared_ptr<Segment> memory, MV_Memory* handle) {
  return Memories().Open(std::make_unique<MemoryEntry>(MemoryEntry{std::move(memory)}), handle);
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableDescribe(MV_Table handle, MV_TableDescription* description) {
  return OpenTables().With(handle, [&](TableEntry* entry) -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(description, "MV_TableDescription"));
    const TableSpec& spec = entry->table->spec();
    description->kind = spec.kind;
    description->dtype = spec.dtype;
    description->num_row = spec.num_row;
    description->num_col = spec.num_col;
    description->updater = spec.updater;
    description->is_reopened = entry->table->here()->is_reopened() ? 1 : 0;
    for (int i = 0; i < kHyperCount; ++i) description->hyper[i] = entry->table->GetHyper(i);
    description->id = entry->table->id();
    description->bytes = spec.bytes();
    description->max_changes = entry->table->MaxChanges();
    return Status::Ok();
  });
}

int32_t MV_TableKeyCounts(MV_Table handle, int64_t* counts) {
  return OpenTables().With(handle, NotNull(__func__, counts), [&](TableEntry* entry) -> Status {
    constexpr RequestKind kKind = RequestKind::kCountsOfRows;
    Table* const table = entry->table;
    MV_RETURN_IF_NOT_OK(table->Check(Request::Of(kKind, nullptr, 0, nullptr, counts), 0));
    return RunTableCall(entry, kKind, MV_KEY_COUNTS, [&](const WaitLimit& limit) -> Status {
      const Result<KeyCounts> summed = table->CountKeys(limit);
      if (summed.ok()) std::memcpy(counts, &summed.value(), sizeof(KeyCounts));
      return summed.status();
    });
  });
}

int32_t MV_TableFree(MV_Table handle) {
  return GuardRelease([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    return CloseHandle(handle);
  });
}

int32_t MV_TableRun(MV_Table handle, const char* operation, const int64_t* row_ids, int64_t num_ids,
                    const void* delta, void* out, int64_t count, int32_t flags) {
  return OpenTables().With(handle, [&](TableEntry* entry) -> Status {
    MV_ASSIGN_OR_RETURN(const RequestKind kind, KindOf(operation));
    return RunRequest(entry, Request::Of(kind, row_ids, num_ids, delta, out), count, flags);
  });
}

int32_t MV_TableGet(MV_Table handle, void* out, int64_t count, int32_t flags) {
  return RunRequest(handle, Request::Get(out), count, flags);
}

int32_t MV_TableAdd(MV_Table handle, const void* delta, int64_t count) {
  return RunRequest(handle, Request::Add(delta), count);
}

int32_t MV_TableAddGet(MV_Table handle, const void* delta, void* out, int64_t count) {
  return RunRequest(handle, Request::AddGet(delta, out), count);
}

int32_t MV_TableDeltaBuffer(MV_Table handle, void** buffer) {
  // This call counts as no add in statistics, because the add of the buffer will count.
  return RunWithoutData(handle, RequestKind::kTouch, buffer,
                        [&](Table* table, const WaitLimit& limit) {
                          return table->consistency()->DeltaBuffer(buffer, limit);
                        });
}

int32_t MV_TableView(MV_Table handle, const void** values) {
  return RunWithoutData(handle, RequestKind::kGet, values,
                        [&](Table* table, const WaitLimit& limit) {
                          return table->consistency()->View(values, limit);
                        });
}

int32_t MV_TableMemory(MV_Table table, const void** memory) {
  return OpenTables().With(table, NotNull(__func__, memory), [&](TableEntry* entry) {
    return entry->table->Memory().StoreIn(memory);
  });
}

int32_t MV_TableKeepMemory(MV_Table table, MV_Memory* memory) {
  return OpenTables().With(table, NotNull(__func__, memory), [&](TableEntry* entry) {
    return KeepMemory(entry->table->here()->segment(), memory);
  });
}

int32_t MV_MemoryRelease(MV_Memory memory) { return Memories().Release(memory); }

int32_t MV_TableGetRows(MV_Table handle, const int64_t* row_ids, int64_t num_ids, void* out,
                        int64_t count, int32_t flags) {
  return RunRequest(handle, Request::GetRows(row_ids, num_ids, out), count, flags);
}

int32_t MV_TableAddRows(MV_Table handle, const int64_t* row_ids, int64_t num_ids, const void* delta,
                        int64_t count) {
  return RunRequest(handle, Request::AddRows(row_ids, num_ids, delta), count);
}

int32_t MV_TableGetPart(MV_Table handle, int64_t first_row, int64_t num_row, int64_t first_col,
                        int64_t num_col, void* out, int32_t flags) {
  return RunPart(handle, RequestKind::kGet, TablePart{first_row, num_row, first_col, num_col},
                 nullptr, out, flags);
}

int32_t MV_TableAddPart(MV_Table handle, int64_t first_row, int64_t num_row, int64_t first_col,
                        int64_t num_col, const void* delta) {
  return RunPart(handle, RequestKind::kAdd, TablePart{first_row, num_row, first_col, num_col},
                 delta, nullptr);
}

int32_t MV_TableFetchAdd(MV_Table handle, int64_t row, int64_t col, const void* delta,
                         void* before) {
  return RunPart(handle, RequestKind::kFetchAdd, TablePart{row, 1, col, 1}, delta, before);
}

int32_t MV_TableCompareSwap(MV_Table handle, int64_t row, int64_t col, const void* expected,
                            const void* desired, void* before) {
  if (expected == nullptr) return Report(Code::kValue, "expected: received null");
  return RunPart(handle, RequestKind::kCompareSwap, TablePart{row, 1, col, 1}, desired, before,
                 /*flags=*/0, expected);
}

int32_t MV_TableListChanges(MV_Table handle, int64_t since, int64_t* ranges, int64_t* num_ranges,
                            int64_t* version) {
  const NotNull needed(__func__, ranges, num_ranges, version);
  return OpenTables().With(handle, needed, [&](TableEntry* entry) -> Status {
    Table* const table = entry->table;
    if (table->spec().is_hash()) {
      return Status(Code::kValue,
                    StrCat(table->Where("get_changed"), ": ", table->spec().Describe(),
                           " does not have this operation"));
    }
    constexpr RequestKind kKind = RequestKind::kVersionsOfRows;
    MV_RETURN_IF_NOT_OK(table->Check(Request::Of(kKind, nullptr, 0, nullptr, ranges), 0));
    return RunTableCall(entry, kKind, 0, [&](const WaitLimit& limit) -> Status {
      std::vector<RowRange> rows;
      MV_ASSIGN_OR_RETURN(const int64_t listed, table->ListChanges(since, &rows, limit));
      for (size_t i = 0; i < rows.size(); ++i) {
        ranges[2 * i] = rows[i].first;
        ranges[2 * i + 1] = rows[i].end;
      }
      *num_ranges = static_cast<int64_t>(rows.size());
      *version = listed;
      return Status::Ok();
    });
  });
}

int32_t MV_TableCheckHyper(MV_Table handle, int32_t hyper, double value) {
  return OpenTables().With(handle, [&](TableEntry* entry) {
    return entry->table->Check(Request::SetHyper(hyper, value), 0);
  });
}

int32_t MV_TableSetHyper(MV_Table handle, int32_t hyper, double value) {
  return RunRequest(handle, Request::SetHyper(hyper, value), 0);
}
