// The part of the C API that starts background calls on tables, and waits for them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "c_api/background.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/pending.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

// A request with its own copies of the row ids and of the delta.
struct OwnedRequest {
  std::unique_ptr<TableUse> use;
  Request request;
  int64_t count = 0;
  std::unique_ptr<int64_t[]> ids;
  std::unique_ptr<char[]> delta;

  void CopyArguments() {
    const auto id_bytes = static_cast<size_t>(request.num_ids) * sizeof(int64_t);
    if (id_bytes > 0) {
      ids.reset(new int64_t[static_cast<size_t>(request.num_ids)]);
      std::memcpy(ids.get(), request.row_ids, id_bytes);
      request.row_ids = ids.get();
    }
    if (request.delta != nullptr) {
      const auto bytes = static_cast<size_t>(delta_bytes());
      delta.reset(new char[bytes]);
      std::memcpy(delta.get(), request.delta, bytes);
      request.delta = delta.get();
    }
  }
  int64_t delta_bytes() const {
    return request.delta == nullptr ? 0 : count * SizeOf((*use)->table->spec().value_type());
  }
  int64_t bytes() const {
    return delta_bytes() + request.num_ids * static_cast<int64_t>(sizeof(int64_t));
  }

  Status Run() {
    Table* const table = (*use)->table;
    const std::optional<std::string> left = LeaveReason((*use)->owner);
    if (left.has_value()) {
      return Status(Code::kAborted, *left).In(table->Where(NameOf(request.kind)));
    }
    FlightRecorder::Entry* const record = RecordCall(*table, request.kind, count);
    SessionEntry* const session = (*use)->owner;
    Interrupt interrupt([session] { return LeaveReason(session); });
    const WaitLimit limit = WaitLimit::Until(session->session->NextDeadline(), &interrupt);
    const auto rows = table->MustArrange(request)
                          ? table->Arrange(&request)
                          : Result<std::shared_ptr<const ArrangedRows>>(nullptr);
    Progress progress;
    const Status status = rows.ok() ? table->Run(request, &progress, limit) : rows.status();
    record->End(status.code());
    return status.ok() ? status : status.In(table->Where(NameOf(request.kind)));
  }
};

struct FutureEntry {
  std::shared_ptr<BackgroundQueue> queue;
  std::shared_ptr<BackgroundQueue::Call> call;
  std::chrono::milliseconds slice;  // of the session
};

using FutureUse = HandleTable<FutureEntry>::Use;

HandleTable<FutureEntry>& Futures() {
  // The table is never destroyed, since a handle may be used while the process exits.
  static auto* const futures = new HandleTable<FutureEntry>;
  return *futures;
}

Status Publish(std::unique_ptr<FutureEntry> entry, MV_Future* future) {
  const uintptr_t handle = Futures().Open(entry.get());
  if (handle == 0) return Status(Code::kMemory, "too many futures");
  (void)entry.release();  // NOLINT: MV_FutureRelease deletes it
  *future = reinterpret_cast<MV_Future>(handle);
  return Status::Ok();
}

Status Start(MV_Table handle, Request request, int64_t count, MV_Future* future) {
  MV_RETURN_IF_NOT_OK(CheckNothingPending());
  if (future == nullptr) return Status(Code::kValue, "MV_TableStart: received null");
  TableUse use = Using(handle);
  if (!use) return StaleHandleError("table");
  MV_RETURN_IF_NOT_OK(use->table->Check(request, count));
  const auto owned = std::make_shared<OwnedRequest>();
  owned->use = std::make_unique<TableUse>(std::move(use));
  owned->request = request;
  owned->count = count;
  TableEntry* const table = owned->use->get();
  const auto start = [owned, table, future](Interrupt* interrupt) -> Status {
    const std::shared_ptr<BackgroundQueue> queue = table->background;
    const Status waited =
        queue->WaitForRoom(owned->bytes(), WaitLimit::Until(Instant::max(), interrupt));
    if (!waited.ok()) return waited.In(table->table->Where(NameOf(owned->request.kind)));
    // A call of another thread must not run between two background calls of a round.
    const CallGuard guard(table->table->has_rounds() ? &table->in_round_call : nullptr);
    MV_RETURN_IF_NOT_OK(guard.Check("table"));
    owned->CopyArguments();
    auto entry = std::make_unique<FutureEntry>();
    entry->queue = queue;
    entry->slice = table->owner->wait_slice;
    FutureEntry* const published = entry.get();
    MV_RETURN_IF_NOT_OK(Publish(std::move(entry), future));
    published->call = queue->Start(owned->bytes(), [owned] { return owned->Run(); });
    return Status::Ok();
  };
  const bool may_wait = !table->background->HasRoom(owned->bytes());
  return RunCall(may_wait ? table->owner->wait_slice : std::chrono::milliseconds(0), start);
}

// Returns the deadline of a wait of that many seconds; BackgroundQueue limits the wait itself if
// they are negative.
Instant DeadlineOf(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds >= 0 && seconds < kLongest)) return Instant::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableStart(MV_Table table, const char* operation, const int64_t* row_ids,
                      int64_t num_ids, const void* delta, void* out, int64_t count,
                      MV_Future* future) {
  return Guard([&]() -> Status {
    const Result<RequestKind> kind = KindOf(operation);
    if (!kind.ok()) return kind.status();
    return Start(table, Request::Of(kind.value(), row_ids, num_ids, delta, out), count, future);
  });
}

int32_t MV_FutureWait(MV_Future future, double seconds, int32_t* done) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    MV_RETURN_IF_NOT_OK(CheckNotForked());
    if (done == nullptr) return Status(Code::kValue, "MV_FutureWait: received null");
    const auto use = std::make_shared<FutureUse>(&Futures(), HandleNumber(future));
    if (!*use) return StaleHandleError("future");
    const Instant deadline = DeadlineOf(seconds);
    const bool may_wait = seconds != 0 && !(*use)->queue->HasEnded(*(*use)->call);
    const auto wait = [use, deadline, seconds, done](Interrupt* interrupt) {
      FutureEntry* const entry = use->get();
      const Status status =
          entry->queue->WaitFor(entry->call, WaitLimit::Until(deadline, interrupt), done);
      return *done == 0 && status.code() == Code::kTimeout && seconds >= 0 ? Status::Ok() : status;
    };
    return RunCall(may_wait ? (*use)->slice : std::chrono::milliseconds(0), wait);
  });
}

int32_t MV_FutureDone(MV_Future future, int32_t* done) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNotForked());
    if (done == nullptr) return Status(Code::kValue, "MV_FutureDone: received null");
    const FutureUse use(&Futures(), HandleNumber(future));
    if (!use) return StaleHandleError("future");
    *done = use->queue->HasEnded(*use->call) ? 1 : 0;
    return Status::Ok();
  });
}

int32_t MV_FutureRelease(MV_Future future) {
  return GuardRelease([&]() -> Status {
    const std::unique_ptr<FutureEntry> entry(Futures().Close(HandleNumber(future), Clock::now()));
    return entry != nullptr ? Status::Ok() : StaleHandleError("future");
  });
}

int32_t MV_TableFlush(MV_Table table, double seconds) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    const auto use = std::make_shared<TableUse>(Using(table));
    if (!*use) return StaleHandleError("table");
    const SessionEntry& owner = *(*use)->owner;
    const Instant deadline = DeadlineOf(seconds);
    return RunCall((*use)->background->IsIdle() ? std::chrono::milliseconds(0) : owner.wait_slice,
                   [use, deadline](Interrupt* interrupt) {
                     return FlushTable(use->get(), WaitLimit::Until(deadline, interrupt));
                   });
  });
}

int32_t MV_SessionFlush(MV_Session session, double seconds) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    const auto use = std::make_shared<SessionUse>(Using(session));
    if (!*use) return StaleHandleError("session");
    const Instant deadline = DeadlineOf(seconds);
    const auto slice =
        HasBackgroundCalls(*use->get()) ? (*use)->wait_slice : std::chrono::milliseconds(0);
    return RunCall(slice, [use, deadline](Interrupt* interrupt) {
      return FlushTables(use->get(), WaitLimit::Until(deadline, interrupt));
    });
  });
}
