// The part of the C API that synchronizes the tensors of a model with a table.
#include <atomic>
#include <memory>

#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "multiverso/c_api.h"
#include "table/param_sync.h"

namespace multiverso::c_api {
namespace {

struct ParamSyncEntry {
  MV_Table table;  // a handle, since the table may be released first
  std::unique_ptr<ParamSync> sync;
  std::atomic<bool> is_running{false};
};

using ParamSyncHandles = HandleTable<MV_ParamSync, ParamSyncEntry>;

ParamSyncHandles& ParamSyncs() {
  static auto* const syncs = new ParamSyncHandles("synchronization");
  return *syncs;
}

Status CheckAlone(const CallGuard& guard) {
  if (guard.Check("sync").ok()) return Status::Ok();
  return Status(Code::kState, "another thread is at a sync of the same parameters");
}

// A sync and its table in use by one call. The guard is destroyed before `entry`, which has its
// flag.
struct RunningSync {
  explicit RunningSync(MV_ParamSync sync)
      : handle(sync),
        entry(ParamSyncs().Using(sync)),
        table(OpenTables().Using(entry ? entry->table : nullptr)),
        guard(entry ? &entry->is_running : nullptr) {}

  // Checks and prepares a sync.
  Status Begin(void* const* data, int64_t num_tensors) const {
    if (!entry) return ParamSyncs().Stale(handle);
    if (!table) return OpenTables().Stale(entry->table);
    MV_RETURN_IF_NOT_OK(CheckAlone(guard));
    return entry->sync->Begin(*table->table, data, num_tensors);
  }

  MV_ParamSync handle;
  ParamSyncHandles::Use entry;
  TableUse table;
  CallGuard guard;
};

}  // namespace

void ForgetParamSyncs() {
  ParamSyncs().Forget([](ParamSyncEntry*) {});
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                           const void* values, MV_ParamSync* sync) {
  return OpenTables().With(table, [&](TableEntry* used) -> Status {
    if (sync == nullptr) return Status(Code::kValue, "MV_ParamSyncCreate: received null");
    auto entry = std::make_unique<ParamSyncEntry>();
    entry->table = table;
    const Status made =
        ParamSync::Make(*used->table, counts, num_tensors, values).StoreIn(&entry->sync);
    return made.ok() ? ParamSyncs().Open(std::move(entry), sync) : made.In("MV_ParamSyncCreate");
  });
}

int32_t MV_ParamSyncSetScale(MV_ParamSync sync, double scale) {
  return ParamSyncs().With(sync, [&](ParamSyncEntry* entry) -> Status {
    const TableUse use = OpenTables().Using(entry->table);
    if (!use) return OpenTables().Stale(entry->table);
    const CallGuard guard(&entry->is_running);
    MV_RETURN_IF_NOT_OK(CheckAlone(guard));
    return entry->sync->SetScale(*use->table, scale);
  });
}

int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors) {
  return Guard([&]() -> Status {
    RunningSync running(sync);
    MV_RETURN_IF_NOT_OK(running.Begin(tensors, num_tensors));
    Table* const table = running.table->table;
    return RunTableCall(running.table.get(), RequestKind::kExchange, table->spec().count(),
                        [&](Progress* progress, const WaitLimit& limit) {
                          return running.entry->sync->Run(table, progress, limit);
                        });
  });
}

int32_t MV_ParamSyncStart(MV_ParamSync sync, void* const* tensors, int64_t num_tensors,
                          MV_Future* future) {
  return Guard([&]() -> Status {
    if (future == nullptr) return Status(Code::kValue, "MV_ParamSyncStart: received null");
    const auto running = std::make_shared<RunningSync>(sync);
    MV_RETURN_IF_NOT_OK(running->Begin(tensors, num_tensors));
    Table* const table = running->table->table;
    const auto take_arguments = [&]() -> BackgroundBody {
      return [running, table](const WaitLimit& limit) {
        Progress progress;
        return running->entry->sync->Run(table, &progress, limit);
      };
    };
    // The use of the sync serves the call, too: MV_TableFree may be waiting for it, and would
    // refuse another one.
    const std::shared_ptr<TableUse> use(running, &running->table);
    return StartCall(use, RequestKind::kExchange, table->spec().count(), /*bytes=*/0,
                     take_arguments, future);
  });
}

int32_t MV_ParamSyncFree(MV_ParamSync sync) {
  return GuardRelease([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    return ParamSyncs().Close(sync, Clock::now() + ParamSyncHandles::kCloseTimeout).status();
  });
}
