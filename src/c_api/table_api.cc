// The part of the C API that creates, describes and frees tables, and runs operations on them.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "multiverso/c_api.h"
#include "shard/make_updater.h"

namespace multiverso::c_api {
namespace {

Status CheckFlags(RequestKind kind, int32_t flags) {
  const bool is_flag =
      flags == MV_COLLECTIVE || (flags == MV_PEEK && kind != RequestKind::kFetchKeys);
  if (is_flag && IsGet(kind)) return Status::Ok();
  return Status(Code::kValue,
                StrCat("flags: expected 0", IsGet(kind) ? ", MV_COLLECTIVE or MV_PEEK" : "",
                       ", received ", flags, " for ", NameOf(kind)));
}

// Runs `body`, a Status(Table*, Progress*, const WaitLimit&), as a call of that kind which passes
// no data. `result` is the caller's pointer to a pointer.
template <class Result, class Body>
int32_t RunWithoutData(MV_Table handle, RequestKind kind, Result* result, const Body& body) {
  return OpenTables().With(handle, [&](TableEntry* entry) -> Status {
    Table* const table = entry->table;
    const int64_t count = table->spec().count();
    // A get into `result` passes the checks that these calls need: a worker, and a pointer.
    MV_RETURN_IF_NOT_OK(table->Check(Request::Get(result), count));
    return RunTableCall(entry, kind, count, [&](Progress* progress, const WaitLimit& limit) {
      return body(table, progress, limit);
    });
  });
}

struct MemoryEntry {
  std::shared_ptr<Segment> memory;
};

using MemoryHandles = HandleKind<MV_Memory, MemoryEntry>;

MemoryHandles& Memories() {
  static auto* const memories = new MemoryHandles("memory");
  return *memories;
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
    if (flags == MV_PEEK) {
      request.worker = Request::kNoWorker;
    } else if (!table->EveryGetIsCollective()) {
      return RunCollectiveGet(entry, request, count);
    }
  }
  Result<std::shared_ptr<const ArrangedAdd>> rows(nullptr);  // to which the request refers
  if (table->MustArrange(request)) rows = table->Arrange(&request);
  MV_RETURN_IF_NOT_OK(rows.status());
  return RunTableCall(
      entry, request.kind, count,
      [&](Progress* progress, const WaitLimit& limit) {
        return table->Run(request, progress, limit);
      },
      flags == MV_PEEK);
}

int32_t RunRequest(MV_Table table, const Request& request, int64_t count, int32_t flags = 0) {
  return OpenTables().With(
      table, [&](TableEntry* entry) { return RunRequest(entry, request, count, flags); });
}

// Runs a request for a part.
int32_t RunPart(MV_Table table, RequestKind kind, const TablePart& part, const void* delta,
                void* out, int32_t flags = 0, const void* expected = nullptr) {
  return OpenTables().With(table, [&](TableEntry* entry) {
    return RunRequest(entry, Request::Of(kind, nullptr, 0, delta, out), 0, flags, &part, expected);
  });
}

Result<TableSpec> SpecOf(const MV_TableOptions* options) {
  MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_TableOptions"));
  TableSpec spec;
  spec.kind = options->kind;
  spec.dtype = options->dtype;
  spec.updater = options->updater;
  spec.num_row = options->num_row;
  spec.num_col = options->num_col;
  std::memcpy(spec.hyper, options->hyper, sizeof(spec.hyper));
  ClearUnusedHypers(spec.updater_kind(), spec.hyper);
  if (options->seed < -1) {
    return Status(Code::kValue, StrCat("seed: expected -1 or more, received ", options->seed));
  }
  if (options->initializer != MV_INITIALIZER_NONE && options->init_value != nullptr) {
    return Status(Code::kValue, "init_value: expected an initializer or values, received both");
  }
  spec.initializer.kind = options->initializer;
  spec.initializer.seed =
      options->seed < 0 ? InitializerSpec::kSeedOfTable : static_cast<uint64_t>(options->seed);
  spec.initializer.first = options->initializer_values[0];
  spec.initializer.second = options->initializer_values[1];
  spec.numa = options->numa;
  spec.wire = options->wire;
  spec.max_bytes = options->max_bytes;
  spec.keys.capacity = options->capacity;
  spec.keys.evict = options->evict;
  spec.keys.admit = options->admit;
  spec.keys.ttl = options->ttl;
  if (options->name != nullptr) {
    const size_t length = std::strlen(options->name);
    if (length >= sizeof(spec.name)) {
      return Status(Code::kValue, StrCat("name: expected at most ", sizeof(spec.name) - 1,
                                         " bytes, received ", length, ": ", options->name));
    }
    CopyText(spec.name, options->name);
  }
  return spec;
}

}  // namespace

void ForgetMemories() {
  Memories().Forget([](MemoryEntry* entry) { entry->memory->ForgetInChild(); });
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableOptionsInit(MV_TableOptions* options) {
  return Guard([&] {
    if (options == nullptr) return Status(Code::kValue, "MV_TableOptionsInit: received null");
    *options = MV_TableOptions{};
    options->struct_size = sizeof(MV_TableOptions);
    options->num_col = 1;
    options->hyper[MV_HYPER_LEARNING_RATE] = 0.01;
    options->seed = -1;
    return Status::Ok();
  });
}

int32_t MV_TableOptionsSetUpdater(MV_TableOptions* options, int32_t updater) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_TableOptions"));
    const auto kind = static_cast<UpdaterKind>(updater);
    MV_RETURN_IF_NOT_OK(MakeUpdater(kind, DType::kFloat32).status());
    options->updater = updater;
    SetDefaultHypers(kind, options->hyper);
    return Status::Ok();
  });
}

int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options, MV_Table* table) {
  return Guard([&]() -> Status {
    if (table == nullptr) return Status(Code::kValue, "MV_TableCreate: received null");
    MV_ASSIGN_OR_RETURN(const TableSpec spec, SpecOf(options));
    return RunCollective(session, CallKind::kCreateTable, 0,
                         [&](SessionEntry* entry, Interrupt* interrupt) -> Status {
                           MV_ASSIGN_OR_RETURN(
                               auto made,
                               entry->session->CreateTable(spec, options->init_value, interrupt));
                           return OpenHandle(entry, std::move(made), table);
                         });
  });
}

int32_t MV_TableDescribe(MV_Table table, MV_TableDescription* description) {
  return OpenTables().With(table, [&](TableEntry* entry) -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(description, "MV_TableDescription"));
    const TableSpec& spec = entry->table->spec();
    description->kind = spec.kind;
    description->dtype = spec.dtype;
    description->num_row = spec.num_row;
    description->num_col = spec.num_col;
    description->updater = spec.updater;
    description->reserved = 0;
    for (int i = 0; i < kHyperCount; ++i) description->hyper[i] = entry->table->GetHyper(i);
    description->id = entry->table->id();
    description->bytes = spec.bytes();
    description->max_changes = entry->table->MaxChanges();
    return Status::Ok();
  });
}

int32_t MV_TableKeyCounts(MV_Table table, int64_t* counts) {
  return OpenTables().With(table, [&](TableEntry* entry) -> Status {
    if (counts == nullptr) return Status(Code::kValue, "MV_TableKeyCounts: received null");
    constexpr RequestKind kKind = RequestKind::kCountsOfRows;
    Table* const used = entry->table;
    MV_RETURN_IF_NOT_OK(used->Check(Request::Of(kKind, nullptr, 0, nullptr, counts), 0));
    return RunTableCall(entry, kKind, MV_KEY_COUNTS,
                        [&](Progress*, const WaitLimit& limit) -> Status {
                          const Result<KeyCounts> summed = used->CountKeys(limit);
                          if (summed.ok()) std::memcpy(counts, &summed.value(), sizeof(KeyCounts));
                          return summed.status();
                        });
  });
}

int32_t MV_TableFree(MV_Table table) {
  return GuardRelease([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotAsking());
    return CloseHandle(table);
  });
}

int32_t MV_TableRun(MV_Table table, const char* operation, const int64_t* row_ids, int64_t num_ids,
                    const void* delta, void* out, int64_t count, int32_t flags) {
  return OpenTables().With(table, [&](TableEntry* entry) -> Status {
    MV_ASSIGN_OR_RETURN(const RequestKind kind, KindOf(operation));
    return RunRequest(entry, Request::Of(kind, row_ids, num_ids, delta, out), count, flags);
  });
}

int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags) {
  return RunRequest(table, Request::Get(out), count, flags);
}

int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count) {
  return RunRequest(table, Request::Add(delta), count);
}

int32_t MV_TableAddGet(MV_Table table, const void* delta, void* out, int64_t count) {
  return RunRequest(table, Request::AddGet(delta, out), count);
}

int32_t MV_TableDeltaBuffer(MV_Table table, void** buffer) {
  return RunWithoutData(table, RequestKind::kAdd, buffer,
                        [&](Table* used, Progress*, const WaitLimit& limit) {
                          return used->consistency()->DeltaBuffer(buffer, limit);
                        });
}

int32_t MV_TableView(MV_Table table, const void** values) {
  return RunWithoutData(table, RequestKind::kGet, values,
                        [&](Table* used, Progress* progress, const WaitLimit& limit) {
                          return used->consistency()->View(values, progress, limit);
                        });
}

int32_t MV_TableMemory(MV_Table table, const void** memory) {
  return OpenTables().With(table, [&](TableEntry* entry) -> Status {
    if (memory == nullptr) return Status(Code::kValue, "MV_TableMemory: received null");
    return entry->table->Memory().StoreIn(memory);
  });
}

int32_t MV_TableKeepMemory(MV_Table table, MV_Memory* memory) {
  return OpenTables().With(table, [&](TableEntry* kept) -> Status {
    if (memory == nullptr) return Status(Code::kValue, "MV_TableKeepMemory: received null");
    auto entry = std::make_unique<MemoryEntry>(MemoryEntry{kept->table->here()->segment()});
    return Memories().Open(std::move(entry), memory);
  });
}

int32_t MV_MemoryRelease(MV_Memory memory) { return Memories().Release(memory); }

int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, void* out,
                        int64_t count, int32_t flags) {
  return RunRequest(table, Request::GetRows(row_ids, num_ids, out), count, flags);
}

int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, const void* delta,
                        int64_t count) {
  return RunRequest(table, Request::AddRows(row_ids, num_ids, delta), count);
}

int32_t MV_TableGetPart(MV_Table table, int64_t first_row, int64_t num_row, int64_t first_col,
                        int64_t num_col, void* out, int32_t flags) {
  return RunPart(table, RequestKind::kGet, TablePart{first_row, num_row, first_col, num_col},
                 nullptr, out, flags);
}

int32_t MV_TableAddPart(MV_Table table, int64_t first_row, int64_t num_row, int64_t first_col,
                        int64_t num_col, const void* delta) {
  return RunPart(table, RequestKind::kAdd, TablePart{first_row, num_row, first_col, num_col}, delta,
                 nullptr);
}

int32_t MV_TableFetchAdd(MV_Table table, int64_t row, int64_t col, const void* delta,
                         void* before) {
  return RunPart(table, RequestKind::kFetchAdd, TablePart{row, 1, col, 1}, delta, before);
}

int32_t MV_TableCompareSwap(MV_Table table, int64_t row, int64_t col, const void* expected,
                            const void* desired, void* before) {
  if (expected == nullptr) return Report(Code::kValue, "expected: received null");
  return RunPart(table, RequestKind::kCompareSwap, TablePart{row, 1, col, 1}, desired, before,
                 /*flags=*/0, expected);
}

int32_t MV_TableListChanges(MV_Table table, int64_t since, int64_t* ranges, int64_t* num_ranges,
                            int64_t* version) {
  return OpenTables().With(table, [&](TableEntry* entry) -> Status {
    Table* const used = entry->table;
    if (ranges == nullptr || num_ranges == nullptr || version == nullptr) {
      return Status(Code::kValue, "MV_TableListChanges: received null");
    }
    if (since < 0) {
      return Status(Code::kValue, StrCat("since: expected 0 or more, received ", since));
    }
    if (used->spec().is_hash()) {
      return Status(Code::kValue, StrCat(used->Where("get_changed"), ": ", used->spec().Describe(),
                                         " does not have this operation"));
    }
    constexpr RequestKind kKind = RequestKind::kVersionsOfRows;
    int64_t dummy = 0;
    MV_RETURN_IF_NOT_OK(used->Check(Request::Of(kKind, nullptr, 0, nullptr, &dummy), 0));
    return RunTableCall(entry, kKind, 0, [&](Progress*, const WaitLimit& limit) -> Status {
      std::vector<RowRange> rows;
      MV_ASSIGN_OR_RETURN(const int64_t listed, used->ListChanges(since, &rows, limit));
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

int32_t MV_TableCheckHyper(MV_Table table, int32_t hyper, double value) {
  return OpenTables().With(table, [&](TableEntry* entry) {
    return entry->table->Check(Request::SetHyper(hyper, value), 0);
  });
}

int32_t MV_TableSetHyper(MV_Table table, int32_t hyper, double value) {
  return RunRequest(table, Request::SetHyper(hyper, value), 0);
}
