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
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

// A request with its own copies of the row ids and of the delta.
struct OwnedRequest {
  Request request;
  std::unique_ptr<int64_t[]> ids;
  std::unique_ptr<char[]> delta;

  OwnedRequest(const Request& wanted, int64_t delta_bytes) : request(wanted) {
    if (request.num_ids > 0) {
      ids.reset(new int64_t[static_cast<size_t>(request.num_ids)]);
      std::memcpy(ids.get(), request.row_ids,
                  static_cast<size_t>(request.num_ids) * sizeof(int64_t));
      request.row_ids = ids.get();
    }
    if (request.delta != nullptr) {
      delta.reset(new char[static_cast<size_t>(delta_bytes)]);
      std::memcpy(delta.get(), request.delta, static_cast<size_t>(delta_bytes));
      request.delta = delta.get();
    }
  }

  Status Run(Table* table, const WaitLimit& limit) { return table->Run(request, limit); }
};

struct FutureEntry {
  std::shared_ptr<BackgroundQueue> queue;
  std::shared_ptr<BackgroundQueue::Call> call;
};

using FutureHandles = HandleTable<MV_Future, FutureEntry>;

FutureHandles& Futures() {
  return HandlesOf<FutureHandles>("future", [](FutureEntry* /*entry*/) {});
}

// Runs in the background thread of the table.
Status RunInBackground(const TableEntry& entry, RequestKind kind, int64_t count,
                       const BackgroundBody& body) {
  const Table& table = *entry.table;
  SessionEntry* const session = entry.owner;
  const std::optional<std::string> left = LeaveReason(session);
  if (left.has_value()) return Status(Code::kAborted, *left).In(table.Where(NameOf(kind)));
  FlightRecorder::Entry* const record = RecordCall(table, kind, count);
  InterruptOf interrupt([session] { return LeaveReason(session); });
  const Status status = body(WaitLimit::Until(session->session->NextDeadline(), &interrupt));
  record->End(status.code());
  return status.ok() ? status : status.In(table.Where(NameOf(kind)));
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

Status StartCall(std::shared_ptr<TableUse> use, RequestKind kind, int64_t count, int64_t bytes,
                 const std::function<BackgroundBody()>& take_arguments, MV_Future* future) {
  return RunCall([&](Interrupt* interrupt) -> Status {
    const Table& table = *(*use)->table;
    const std::shared_ptr<BackgroundQueue> queue = (*use)->background;
    const Status waited = queue->WaitForRoom(bytes, WaitLimit::Until(Instant::max(), interrupt));
    if (!waited.ok()) return waited.In(table.Where(NameOf(kind)));
    // A call of another thread must not run between two background calls of a round.
    const CallGuard guard(table.NeedsOrder(kind) ? &(*use)->in_round_call : nullptr);
    MV_RETURN_IF_NOT_OK(guard.Check("table"));
    const BackgroundBody body = take_arguments();
    const auto run = [use, kind, count, body] {
      return RunInBackground(*use->get(), kind, count, body);
    };
    auto entry = std::make_unique<FutureEntry>();
    entry->queue = queue;
    FutureEntry* const published = entry.get();
    MV_Future opened = nullptr;
    MV_RETURN_IF_NOT_OK(Futures().Open(std::move(entry), &opened));
    SessionEntry* const owner = (*use)->owner;
    // A flush of another thread removes a table without calls, and must not do so before the start.
    std::unique_lock<std::mutex> owner_guard(owner->tables_mutex);
    owner->unflushed.insert((*use)->handle);
    const Status started = queue->Start(bytes, run).StoreIn(&published->call);
    owner_guard.unlock();
    if (started.ok()) {
      *future = opened;
    } else {
      (void)Futures().Release(opened);
    }
    return started;
  });
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableStart(MV_Table table, const char* operation, const int64_t* row_ids,
                      int64_t num_ids, const void* delta, void* out, int64_t count,
                      MV_Future* future) {
  return Guard(NotNull(__func__, future), [&]() -> Status {
    MV_ASSIGN_OR_RETURN(const RequestKind kind, KindOf(operation));
    const auto use = std::make_shared<TableUse>(OpenTables().Using(table));
    if (!*use) return OpenTables().Stale(table);
    Table* const used = (*use)->table;
    const Request request = Request::Of(kind, row_ids, num_ids, delta, out);
    MV_RETURN_IF_NOT_OK(used->Check(request, count));
    const int64_t delta_bytes =
        request.delta == nullptr ? 0 : count * SizeOf(used->spec().value_type());
    const int64_t id_bytes = request.num_ids * static_cast<int64_t>(sizeof(int64_t));
    const auto take_arguments = [&]() -> BackgroundBody {
      const auto owned = std::make_shared<OwnedRequest>(request, delta_bytes);
      return [owned, used](const WaitLimit& limit) { return owned->Run(used, limit); };
    };
    return StartCall(use, request.kind, count, delta_bytes + id_bytes, take_arguments, future);
  });
}

int32_t MV_FutureWait(MV_Future future, double seconds, int32_t* done) {
  const auto wait = [&](FutureEntry* entry, Interrupt* interrupt) {
    const Status status =
        entry->queue->WaitFor(entry->call, WaitLimit::Until(DeadlineOf(seconds), interrupt), done);
    return *done == 0 && status.code() == Code::kTimeout && seconds >= 0 ? Status::Ok() : status;
  };
  return Futures().With(future, NotNull(__func__, done), wait);
}

int32_t MV_FutureDone(MV_Future future, int32_t* done) {
  return Futures().With(future, NotNull(__func__, done), [&](FutureEntry* entry) {
    *done = entry->queue->HasEnded(*entry->call) ? 1 : 0;
    return Status::Ok();
  });
}

int32_t MV_FutureRelease(MV_Future future) { return Futures().Release(future); }

int32_t MV_TableFlush(MV_Table table, double seconds) {
  return OpenTables().With(table, [&](TableEntry* entry, Interrupt* interrupt) {
    return FlushTable(entry, WaitLimit::Until(DeadlineOf(seconds), interrupt));
  });
}

int32_t MV_SessionFlush(MV_Session session, double seconds) {
  return OpenSessions().With(session, [&](SessionEntry* entry, Interrupt* interrupt) {
    return FlushTables(entry, WaitLimit::Until(DeadlineOf(seconds), interrupt));
  });
}
