#include "c_api/registry.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "c_api/pending.h"
#include "transport/mpi_communicator.h"

namespace multiverso::c_api {
namespace {

std::atomic<int32_t> sessions_open{0};
std::atomic<bool> forked{false};
std::atomic<bool> lost_any{false};

void AfterForkInChild() {
  // sessions_open does not count a session that is being opened, but its call is pending.
  const bool was_pending = ForgetPending();
  if (sessions_open.load() == 0 && !was_pending) return;
  forked.store(true);
  Tables().Forget();
  // The child closes its connections, which would hide the parent's death from the other ranks.
  Sessions().Forget([](SessionEntry* entry) { entry->session->CloseInForkedChild(); });
}

uintptr_t Number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

std::vector<uintptr_t> TablesOf(SessionEntry* session) {
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  return session->tables;
}

// Closes a table's handle and releases the table. The caller keeps the session in use.
Status WithdrawFrom(SessionEntry* session, MV_Table table, Instant deadline) {
  const std::unique_ptr<TableEntry> entry(Tables().Close(Number(table), deadline));
  if (entry == nullptr) {
    return Using(table) ? Status(Code::kTimeout, "another thread is still using the table")
                        : WhyStale("table");
  }
  {
    const std::lock_guard<std::mutex> guard(session->tables_mutex);
    auto& handles = session->tables;
    handles.erase(std::remove(handles.begin(), handles.end(), Number(table)), handles.end());
  }
  session->session->ReleaseTable(entry->table);
  return Status::Ok();
}

// Leaves all sessions without destroying them, since other threads may be in a call.
void LeaveSessions() {
  for (const uintptr_t handle : Sessions().All()) {
    const SessionUse use(&Sessions(), handle);
    if (!use) continue;
    use->session->Leave("its program ended without closing the session");
    NoteLosses(*use->session);
  }
}

}  // namespace

void SleepBetweenLooks() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

HandleTable<SessionEntry>& Sessions() {
  static auto* const table = new HandleTable<SessionEntry>;
  return *table;
}

HandleTable<TableEntry>& Tables() {
  static auto* const table = new HandleTable<TableEntry>;
  return *table;
}

SessionUse Using(MV_Session session) { return SessionUse(&Sessions(), Number(session)); }
TableUse Using(MV_Table table) { return TableUse(&Tables(), Number(table)); }

Status WatchForks() {
  static const bool registered = CallInForkedChildren(AfterForkInChild);
  if (!registered) return Status(Code::kMemory, "forks of this process cannot be watched for");
  return CheckNotForked();
}

void LeaveSessionsAtExit() {
  // If the registration fails, the other ranks report a timeout.
  [[maybe_unused]] static const int registered = std::atexit(LeaveSessions);
}

Result<std::shared_ptr<CollectiveUse>> UsingTogether(MV_Session session) {
  SessionUse use = Using(session);
  if (!use) return WhyStale("session");
  SessionEntry* const entry = use.get();
  auto together = std::make_shared<CollectiveUse>(
      CollectiveUse{std::move(use), CallGuard(&entry->in_collective_call)});
  MV_RETURN_IF_NOT_OK(together->guard.Check("session"));
  return together;
}

Status CheckNotForked() {
  if (!forked.load(std::memory_order_relaxed)) return Status::Ok();
  return Status(Code::kForked,
                "this process was forked from one with an open session, which only the parent can "
                "use: open sessions after the fork, or start children with 'spawn'");
}

Status WhyStale(const char* what) {
  MV_RETURN_IF_NOT_OK(CheckNotForked());
  return Status(Code::kHandle, StrCat("this ", what, " has been closed or never was one"));
}

void NoteLosses(const Session& session) {
  if (session.context()->peers()->LostRanks().empty()) return;
  lost_any.store(true);
  MpiCommunicator::SkipFinalizeAtExit();
}

bool HasLostAny() { return lost_any.load(); }

Result<MV_Session> Publish(std::unique_ptr<SessionEntry> entry) {
  const uintptr_t number = Sessions().Open(entry.get());
  if (number == 0) return Status(Code::kMemory, "too many sessions");
  const auto handle = reinterpret_cast<MV_Session>(number);
  entry->handle = handle;
  (void)entry.release();  // NOLINT: Withdraw deletes it
  sessions_open.fetch_add(1);
  return handle;
}

Result<MV_Table> Publish(SessionEntry* session, std::shared_ptr<Table> table) {
  auto entry = std::make_unique<TableEntry>();
  entry->session = session;
  entry->table = session->session->KeepTable(std::move(table));
  const uintptr_t handle = Tables().Open(entry.get());
  if (handle == 0) {
    session->session->ReleaseTable(entry->table);
    return Status(Code::kMemory, "too many tables");
  }
  (void)entry.release();  // NOLINT: Withdraw deletes it
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  session->tables.push_back(handle);
  return reinterpret_cast<MV_Table>(handle);
}

Status Withdraw(MV_Table table) {
  MV_Session owner = nullptr;
  {
    const TableUse use = Using(table);
    if (!use) return WhyStale("table");
    owner = use->session->handle;
  }
  // The session stays in use to the end of this function: another thread may be closing it.
  const SessionUse session = Using(owner);
  if (!session) return WhyStale("table");
  return WithdrawFrom(session.get(), table, session->session->NextDeadline());
}

Status Withdraw(MV_Session session) {
  std::vector<uintptr_t> tables;
  Instant deadline;
  {
    const SessionUse use = Using(session);
    if (!use) return WhyStale("session");
    deadline = use->session->NextDeadline();
    tables = TablesOf(use.get());
  }
  for (const uintptr_t table : tables) {
    const Status status = Withdraw(reinterpret_cast<MV_Table>(table));
    if (status.code() == Code::kTimeout) return status;
  }
  std::unique_ptr<SessionEntry> entry(Sessions().Close(Number(session), deadline));
  if (entry == nullptr) {
    return Using(session) ? Status(Code::kTimeout, "another thread is still using the session")
                          : WhyStale("session");
  }
  sessions_open.fetch_sub(1);
  // Another thread may have created a table before the handle was closed.
  for (const uintptr_t table : TablesOf(entry.get())) {
    const Status status = WithdrawFrom(entry.get(), reinterpret_cast<MV_Table>(table), deadline);
    if (status.code() == Code::kTimeout) {
      (void)entry.release();  // NOLINT: leaked, since another thread still uses it
      return status;
    }
  }
  return Status::Ok();
}

}  // namespace multiverso::c_api
