#include "c_api/registry.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "c_api/waiting.h"
#include "transport/mpi_communicator.h"
#include "transport/mpi_files.h"
#include "transport/rank_claim.h"

namespace multiverso::c_api {
namespace {

std::atomic<int32_t> num_open_sessions{0};
std::atomic<bool> was_forked{false};
std::atomic<bool> has_lost_ranks{false};

void AfterForkInChild() {
  ReleaseHeldRank();
  ForgetAskingThread();
  if (num_open_sessions.load() != 0) was_forked.store(true);
  Tables().Forget([](TableEntry* entry) { entry->table->here()->segment()->ForgetInChild(); });
  // This also closes the descriptor of the control segment, because the marks of the parent's ranks
  // must end with the parent (MarkPresent).
  Sessions().Forget(
      [](SessionEntry* entry) { entry->session->context()->memory()->ForgetInChild(); });
  ForgetParamSyncs();
  ForgetMemories();  // Arrays may have outlived their session.
  ForgetReaders();
}

std::vector<uintptr_t> TablesOf(const SessionEntry* owner) {
  const std::lock_guard<std::mutex> guard(owner->tables_mutex);
  return owner->table_handles;
}

// Withdraws a table of `owner`, which the caller keeps in use.
Status WithdrawFrom(SessionEntry* owner, MV_Table table, Instant deadline) {
  const std::unique_ptr<TableEntry> entry(Tables().Close(HandleNumber(table), deadline));
  if (entry == nullptr) {
    return Using(table) ? Status(Code::kTimeout, "another thread is still using the table")
                        : StaleHandleError("table");
  }
  {
    // No call is in flight, because a call in flight uses the table.
    const Status failure = entry->background->Flush(WaitLimit::Until(deadline));
    const std::lock_guard<std::mutex> guard(owner->tables_mutex);
    if (owner->background_failure.ok()) owner->background_failure = failure;
    auto& handles = owner->table_handles;
    handles.erase(std::remove(handles.begin(), handles.end(), HandleNumber(table)), handles.end());
  }
  owner->session->ReleaseTable(entry->table);
  return Status::Ok();
}

// Leaves all sessions without destroying them, since other threads may be in a call.
void LeaveSessions() {
  for (const uintptr_t handle : Sessions().OpenHandles()) {
    const SessionUse use(&Sessions(), handle);
    if (!use) continue;
    LeaveSession(use.get(), "its program ended without closing the session");
    RecordLosses(*use->session);
  }
}

}  // namespace

void SleepBetweenPolls() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

HandleTable<SessionEntry>& Sessions() {
  static auto* const handles = new HandleTable<SessionEntry>;
  return *handles;
}

HandleTable<TableEntry>& Tables() {
  static auto* const handles = new HandleTable<TableEntry>;
  return *handles;
}

SessionUse Using(MV_Session session) { return SessionUse(&Sessions(), HandleNumber(session)); }
TableUse Using(MV_Table table) { return TableUse(&Tables(), HandleNumber(table)); }

Status WatchForks() {
  static const bool is_registered = CallInForkedChildren(AfterForkInChild);
  if (is_registered) return Status::Ok();
  return Status(Code::kMemory, "cannot register a function to be called after a fork");
}

void LeaveSessionsAtExit() {
  // If the registration fails, the other ranks report a timeout.
  [[maybe_unused]] static const int failure = std::atexit(LeaveSessions);
}

Status FlushTable(TableEntry* table, const WaitLimit& limit) {
  const Status status = table->background->Flush(limit);
  return status.code() == Code::kTimeout ? status.In(table->table->Where("flush")) : status;
}

Status FlushTables(SessionEntry* session, const WaitLimit& limit) {
  Status failure;
  for (const uintptr_t handle : TablesOf(session)) {
    const TableUse use = Using(reinterpret_cast<MV_Table>(handle));
    if (!use) continue;
    const Status status = FlushTable(use.get(), limit);
    if (failure.ok()) failure = status;
  }
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  return failure.ok() ? std::exchange(session->background_failure, Status::Ok()) : failure;
}

void LeaveSession(SessionEntry* session, const std::string& reason) {
  {
    const std::lock_guard<std::mutex> guard(session->tables_mutex);
    session->leave_reason = reason;
  }
  session->session->Leave(reason);
}

std::optional<std::string> LeaveReason(SessionEntry* session) {
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  return session->leave_reason;
}

bool HasBackgroundCalls(const SessionEntry& session) {
  const std::vector<uintptr_t> handles = TablesOf(&session);
  return std::any_of(handles.begin(), handles.end(), [](uintptr_t handle) {
    const TableUse use = Using(reinterpret_cast<MV_Table>(handle));
    return use && !use->background->IsIdle();
  });
}

SessionOpening::SessionOpening() { num_open_sessions.fetch_add(1); }
SessionOpening::~SessionOpening() { num_open_sessions.fetch_sub(1); }

Status CheckNotForked() {
  if (!was_forked.load(std::memory_order_relaxed)) return Status::Ok();
  return Status(Code::kForked,
                "this process was forked from one with an open session, which only the parent can "
                "use: open sessions after the fork, or start children with 'spawn'");
}

Status StaleHandleError(const char* what) {
  MV_RETURN_IF_NOT_OK(CheckNotForked());
  const bool is_session = std::string_view(what) == "session";
  return Status(Code::kHandle, StrCat("this ", what, " is not open",
                                      is_session ? "" : ": it was closed, or its session ended"));
}

void RecordLosses(const Session& session) {
  const PeerStatus& peers = *session.context()->peers();
  if (peers.LostRanks().empty() && !peers.AnyDied()) return;
  has_lost_ranks.store(true);
  MpiCommunicator::SkipFinalizeAtExit(true);
  RemoveFilesOfMpi();
}

bool HasLostRanks() { return has_lost_ranks.load(); }

Result<MV_Session> Publish(std::unique_ptr<SessionEntry> entry) {
  const uintptr_t number = Sessions().Open(entry.get());
  if (number == 0) return Status(Code::kMemory, "too many sessions");
  entry->handle = reinterpret_cast<MV_Session>(number);
  num_open_sessions.fetch_add(1);
  return entry.release()->handle;  // NOLINT: Withdraw deletes the entry
}

Result<MV_Table> Publish(SessionEntry* owner, std::shared_ptr<Table> table) {
  auto entry = std::make_unique<TableEntry>();
  entry->owner = owner;
  entry->background = std::make_shared<BackgroundQueue>(owner->session->timeout());
  entry->table = owner->session->KeepTable(std::move(table));
  const uintptr_t handle = Tables().Open(entry.get());
  if (handle == 0) {
    owner->session->ReleaseTable(entry->table);
    return Status(Code::kMemory, "too many tables");
  }
  (void)entry.release();  // NOLINT: Withdraw deletes it
  const std::lock_guard<std::mutex> guard(owner->tables_mutex);
  owner->table_handles.push_back(handle);
  return reinterpret_cast<MV_Table>(handle);
}

Status Withdraw(MV_Table table) {
  MV_Session owner_handle = nullptr;
  {
    const TableUse use = Using(table);
    if (!use) return StaleHandleError("table");
    owner_handle = use->owner->handle;
  }
  // The session stays in use until this function returns, since another thread may be closing it.
  const SessionUse owner = Using(owner_handle);
  if (!owner) return StaleHandleError("table");
  return WithdrawFrom(owner.get(), table, owner->session->NextDeadline());
}

Status Withdraw(MV_Session session) {
  std::vector<uintptr_t> tables;
  Instant deadline;
  {
    const SessionUse use = Using(session);
    if (!use) return StaleHandleError("session");
    deadline = use->session->NextDeadline();
    tables = TablesOf(use.get());
  }
  for (const uintptr_t table : tables) {
    // Any other failure means that another thread has closed the table.
    const Status status = Withdraw(reinterpret_cast<MV_Table>(table));
    if (status.code() == Code::kTimeout) return status;
  }
  std::unique_ptr<SessionEntry> entry(Sessions().Close(HandleNumber(session), deadline));
  if (entry == nullptr) {
    return Using(session) ? Status(Code::kTimeout, "another thread is still using the session")
                          : StaleHandleError("session");
  }
  num_open_sessions.fetch_sub(1);
  // Another thread may have created a table before the handle was closed.
  for (const uintptr_t table : TablesOf(entry.get())) {
    const Status status = WithdrawFrom(entry.get(), reinterpret_cast<MV_Table>(table), deadline);
    if (status.code() == Code::kTimeout) {
      (void)entry.release();  // NOLINT: leaked, since another thread still uses the table
      return status;
    }
  }
  return Status::Ok();
}

}  // namespace multiverso::c_api
