// The part of the C API that is about the parameters of models.
#include <atomic>
#include <memory>
#include <utility>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/pending.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "table/param_sync.h"

namespace multiverso::c_api {
namespace {

// How long to wait for another thread's call before giving up on freeing what it uses.
constexpr auto kLongestCall = std::chrono::minutes(2);

struct ParamSyncEntry {
  MV_Table table;  // a handle, since the table may go first
  std::unique_ptr<ParamSync> sync;
  std::atomic<bool> is_running{false};
};

HandleTable<ParamSyncEntry>& ParamSyncs() {
  // Never destroyed: a handle may be used while the process exits.
  static auto* const syncs = new HandleTable<ParamSyncEntry>;
  return *syncs;
}

uintptr_t Number(MV_ParamSync handle) { return reinterpret_cast<uintptr_t>(handle); }

// What a sync uses, for as long as it lasts, by itself. The turns end before the uses do.
struct Held {
  Held(HandleTable<ParamSyncEntry>::Use with, TableUse on)
      : entry(std::move(with)),
        table_use(std::move(on)),
        guard(&entry->is_running),
        round_turn(table_use->table->HasRounds() ? &table_use->in_round_call : nullptr) {}

  Status Check() const {
    if (!guard.Check("").ok()) {
      return Status(Code::kState, "another thread is at a sync of the same parameters");
    }
    return round_turn.Check("table");
  }
  ParamSync* sync() const { return entry->sync.get(); }
  Table* table() const { return table_use->table; }
  SessionEntry* session() const { return table_use->session; }

  HandleTable<ParamSyncEntry>::Use entry;
  TableUse table_use;
  CallGuard guard;
  CallGuard round_turn;
};

// A sync that has to wait: for a lock that is held for long, or for other ranks.
class ParamSyncCall final : public Operation {
 public:
  ParamSyncCall(std::shared_ptr<Held> held, Progress progress)
      : Operation(held->session()->session->NextDeadline()),
        held_(std::move(held)),
        progress_(progress) {
    if (held_->table()->spans_nodes()) {
      spanning_ = held_->sync()->Start(held_->table(), deadline());
    }
  }

  Status Step(const WaitLimit& limit) override {
    if (spanning_ == nullptr) return held_->sync()->Run(held_->table(), &progress_, limit);
    MV_RETURN_IF_NOT_OK(spanning_->Step(limit));
    held_->sync()->Finish(*held_->table());
    return Status::Ok();
  }
  void Cancel(const std::string& reason) override {
    if (spanning_ != nullptr) spanning_->Cancel(reason);
    // The round that this call is part of cannot be completed without it.
    const Table& table = *held_->table();
    if (table.HasRounds()) table.group()->state()->Abort(Status(Code::kAborted, reason));
  }

 private:
  std::shared_ptr<Held> held_;
  Progress progress_;
  std::unique_ptr<Operation> spanning_;  // if the table spans nodes
};

Status Run(MV_ParamSync sync, void* const* tensors, int64_t num_tensors) {
  MV_RETURN_IF_NOT_OK(CheckNothingPending());
  HandleTable<ParamSyncEntry>::Use entry(&ParamSyncs(), Number(sync));
  if (!entry) return WhyStale("synchronisation");
  TableUse table = Using(entry->table);
  if (!table) return WhyStale("table");
  auto held = std::make_shared<Held>(std::move(entry), std::move(table));
  MV_RETURN_IF_NOT_OK(held->Check());
  MV_RETURN_IF_NOT_OK(held->sync()->Begin(*held->table(), tensors, num_tensors));
  const auto where = [held](const Status& result) {
    return result.ok() ? result : result.In(held->table()->Where("sync"));
  };
  FlightRecorder::Entry* const record =
      RecordCall(*held->table(), CallKind::kExchange, held->table()->spec().count(), true, true);
  Progress progress;
  if (!held->table()->spans_nodes()) {
    // At once, if nothing is to be waited for.
    const WaitLimit no_wait{Instant::max(), Instant::min()};
    const Status status = held->sync()->Run(held->table(), &progress, no_wait);
    if (!status.pending()) return where(Ended(record, status));
  }
  auto call = std::make_unique<ParamSyncCall>(held, progress);
  return Drive(Call{std::move(call), held->session()->slice, where, record});
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                           const void* values, MV_ParamSync* sync) {
  return Guard([&]() -> Status {
    if (sync == nullptr) return Status(Code::kValue, "MV_ParamSyncCreate: received null");
    const TableUse use = Using(table);
    if (!use) return WhyStale("table");
    auto made = ParamSync::Make(*use->table, counts, num_tensors, values);
    if (!made.ok()) return made.status().In("MV_ParamSyncCreate");
    auto entry = std::make_unique<ParamSyncEntry>();
    entry->table = table;
    entry->sync = std::move(made.value());
    const uintptr_t handle = ParamSyncs().Open(entry.get());
    if (handle == 0) return Status(Code::kMemory, "too many synchronisations");
    (void)entry.release();  // NOLINT: MV_ParamSyncFree deletes it
    *sync = reinterpret_cast<MV_ParamSync>(handle);
    return Status::Ok();
  });
}

int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors) {
  return Guard([&] { return Run(sync, tensors, num_tensors); });
}

int32_t MV_ParamSyncFree(MV_ParamSync sync) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    const std::unique_ptr<ParamSyncEntry> entry(
        ParamSyncs().Close(Number(sync), Clock::now() + kLongestCall));
    if (entry != nullptr) return Status::Ok();
    if (!HandleTable<ParamSyncEntry>::Use(&ParamSyncs(), Number(sync))) {
      return WhyStale("synchronisation");
    }
    return Status(Code::kTimeout, "another thread is still at a sync of these parameters");
  });
}
