// The part of the C API that synchronizes the tensors of a model with a table.
#include <atomic>
#include <memory>
#include <type_traits>

#include "base/dtype.h"
#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "calls/param_sync.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

struct ParamSyncEntry {
  MV_Table table;  // a handle, since the table may be released first
  std::unique_ptr<ParamSync> sync;
  std::atomic<bool> is_running{false};
};

using ParamSyncHandles = HandleTable<MV_ParamSync, ParamSyncEntry>;

ParamSyncHandles& ParamSyncs() {
  return HandlesOf<ParamSyncHandles>("synchronization", [](ParamSyncEntry* /*entry*/) {});
}

template <class T>
void AddChange(int64_t count, T scale, const T* base, const T* current, T* before, T* out,
               bool notes) {
  for (int64_t i = 0; i < count; ++i) {
    const T now = current[i];
    const T then = before[i];
    T change;
    if constexpr (std::is_floating_point_v<T>) {
      const bool is_equal = now == then || (now != now && then != then);
      change = is_equal ? T{0} : scale * (now - then);
      out[i] = base[i] + change;
    } else {  // Wraps around, as in NumPy.
      using U = std::make_unsigned_t<T>;
      change = static_cast<T>(static_cast<U>(scale) * (static_cast<U>(now) - static_cast<U>(then)));
      out[i] = static_cast<T>(static_cast<U>(base[i]) + static_cast<U>(change));
    }
    if (notes) before[i] = now;
  }
}

// A sync and its table in use by one call. The guard is destroyed before `entry`, which has its
// flag.
struct RunningSync {
  explicit RunningSync(MV_ParamSync sync)
      : handle(sync),
        entry(ParamSyncs().Using(sync)),
        table(OpenTables().Using(entry ? entry->table : nullptr)),
        guard(entry ? &entry->is_running : nullptr) {}

  Status Check() const {
    if (!entry) return ParamSyncs().Stale(handle);
    if (!table) return OpenTables().Stale(entry->table);
    if (guard.Check("sync").ok()) return Status::Ok();
    return Status(Code::kState, "another thread is at a sync of the same parameters");
  }
  // Checks and prepares a sync.
  Status Begin(void* const* data, int64_t num_tensors) const {
    MV_RETURN_IF_NOT_OK(Check());
    return entry->sync->Begin(*table->table, data, num_tensors);
  }

  MV_ParamSync handle;
  ParamSyncHandles::Use entry;
  TableUse table;
  CallGuard guard;
};

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                           const void* values, MV_ParamSync* sync) {
  return OpenTables().With(table, NotNull(__func__, sync), [&](TableEntry* used) {
    auto entry = std::make_unique<ParamSyncEntry>();
    entry->table = table;
    const Status made =
        ParamSync::Make(*used->table, counts, num_tensors, values).StoreIn(&entry->sync);
    return made.ok() ? ParamSyncs().Open(std::move(entry), sync) : made.In("MV_ParamSyncCreate");
  });
}

int32_t MV_ParamSyncSetScale(MV_ParamSync sync, double scale) {
  return Guard([&]() -> Status {
    const RunningSync running(sync);
    MV_RETURN_IF_NOT_OK(running.Check());
    return running.entry->sync->SetScale(*running.table->table, scale);
  });
}

int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors) {
  return Guard([&]() -> Status {
    RunningSync running(sync);
    MV_RETURN_IF_NOT_OK(running.Begin(tensors, num_tensors));
    Table* const table = running.table->table;
    return RunTableCall(
        running.table.get(), RequestKind::kExchange, table->spec().count(),
        [&](const WaitLimit& limit) { return running.entry->sync->Run(table, limit); });
  });
}

int32_t MV_ParamSyncStart(MV_ParamSync sync, void* const* tensors, int64_t num_tensors,
                          MV_Future* future) {
  return Guard(NotNull(__func__, future), [&]() -> Status {
    const auto running = std::make_shared<RunningSync>(sync);
    MV_RETURN_IF_NOT_OK(running->Begin(tensors, num_tensors));
    Table* const table = running->table->table;
    const auto take_arguments = [&]() -> BackgroundBody {
      return [running, table](const WaitLimit& limit) {
        return running->entry->sync->Run(table, limit);
      };
    };
    // The use of the sync serves the call, too: MV_TableFree may be waiting for it, and would
    // refuse another one.
    const std::shared_ptr<TableUse> use(running, &running->table);
    return StartCall(use, RequestKind::kExchange, table->spec().count(), /*bytes=*/0,
                     take_arguments, future);
  });
}

int32_t MV_AddChange(int32_t dtype, int64_t count, double scale, const void* base,
                     const void* current, void* before, void* out, int32_t* pending) {
  return Guard([&]() -> Status {
    if (dtype != MV_FLOAT32 && dtype != MV_FLOAT64 && dtype != MV_INT32 && dtype != MV_INT64) {
      return Status(Code::kType, StrCat("MV_AddChange: expected the values of a table, received ",
                                        "dtype ", dtype));
    }
    if (count < 0 || (count > 0 && (base == nullptr || current == nullptr || before == nullptr ||
                                    out == nullptr))) {
      return Status(Code::kValue, StrCat("MV_AddChange: expected four arrays of ", count,
                                         " elements, received a null pointer"));
    }
    WithType(static_cast<DType>(dtype), [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      AddChange(count, static_cast<T>(scale), static_cast<const T*>(base),
                static_cast<const T*>(current), static_cast<T*>(before), static_cast<T*>(out),
                /*notes=*/pending == nullptr);
    });
    if (pending != nullptr) *pending = 0;
    return Status::Ok();
  });
}

int32_t MV_ParamSyncFree(MV_ParamSync sync) {
  return GuardRelease([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
    return ParamSyncs().Close(sync, Clock::now() + ParamSyncHandles::kCloseTimeout).status();
  });
}
