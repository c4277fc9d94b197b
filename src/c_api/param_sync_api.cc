// The part of the C API that synchronizes the tensors of a model with a table.
#include <atomic>
#include <memory>
#include <utility>

#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/pending.h"
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

HandleTable<ParamSyncEntry>& ParamSyncs() {
  // The table is never destroyed, since a handle may be used while the process exits.
  static auto* const syncs = new HandleTable<ParamSyncEntry>;
  return *syncs;
}

// A sync that one thread uses. The guard is destroyed before `entry`, which has the guard's flag.
struct ExclusiveSync {
  HandleTable<ParamSyncEntry>::Use entry;
  CallGuard guard;
};

Status Run(MV_ParamSync handle, void* const* tensors, int64_t num_tensors) {
  MV_RETURN_IF_NOT_OK(CheckNothingPending());
  HandleTable<ParamSyncEntry>::Use entry(&ParamSyncs(), HandleNumber(handle));
  if (!entry) return StaleHandleError("synchronization");
  TableUse use = Using(entry->table);
  if (!use) return StaleHandleError("table");
  CallGuard guard(&entry->is_running);
  if (!guard.Check("sync").ok()) {
    return Status(Code::kState, "another thread is at a sync of the same parameters");
  }
  ParamSync* const sync = entry->sync.get();
  Table* const table = use->table;
  MV_RETURN_IF_NOT_OK(sync->Begin(*table, tensors, num_tensors));
  const auto held =
      std::make_shared<ExclusiveSync>(ExclusiveSync{std::move(entry), std::move(guard)});
  return RunTableCall(&use, RequestKind::kExchange, table->spec().count(),
                      [held, sync, table](Progress* progress, const WaitLimit& limit) {
                        return sync->Run(table, progress, limit);
                      });
}

}  // namespace

void ForgetParamSyncs() {
  ParamSyncs().Forget([](ParamSyncEntry*) {});
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                           const void* values, MV_ParamSync* sync) {
  return Guard([&]() -> Status {
    if (sync == nullptr) return Status(Code::kValue, "MV_ParamSyncCreate: received null");
    const TableUse use = Using(table);
    if (!use) return StaleHandleError("table");
    auto created = ParamSync::Make(*use->table, counts, num_tensors, values);
    if (!created.ok()) return created.status().In("MV_ParamSyncCreate");
    auto entry = std::make_unique<ParamSyncEntry>();
    entry->table = table;
    entry->sync = std::move(created.value());
    const uintptr_t handle = ParamSyncs().Open(entry.get());
    if (handle == 0) return Status(Code::kMemory, "too many synchronizations");
    (void)entry.release();  // NOLINT: MV_ParamSyncFree deletes it
    *sync = reinterpret_cast<MV_ParamSync>(handle);
    return Status::Ok();
  });
}

int32_t MV_ParamSyncSetScale(MV_ParamSync sync, double scale) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    const HandleTable<ParamSyncEntry>::Use entry(&ParamSyncs(), HandleNumber(sync));
    if (!entry) return StaleHandleError("synchronization");
    const TableUse use = Using(entry->table);
    if (!use) return StaleHandleError("table");
    CallGuard guard(&entry->is_running);
    MV_RETURN_IF_NOT_OK(guard.Check("sync"));
    return entry->sync->SetScale(*use->table, scale);
  });
}

int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors) {
  return Guard([&] { return Run(sync, tensors, num_tensors); });
}

int32_t MV_ParamSyncFree(MV_ParamSync sync) {
  return GuardRelease([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    const std::unique_ptr<ParamSyncEntry> entry(
        ParamSyncs().Close(HandleNumber(sync), Clock::now() + kCloseTimeout));
    if (entry != nullptr) return Status::Ok();
    if (!HandleTable<ParamSyncEntry>::Use(&ParamSyncs(), HandleNumber(sync))) {
      return StaleHandleError("synchronization");
    }
    return Status(Code::kTimeout, "another thread is still at a sync of these parameters");
  });
}
