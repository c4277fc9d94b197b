#include "c_api/registry.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
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
std::atomic<AnyHandles*> kinds{nullptr};

void AfterForkInChild() {
  ReleaseHeldRank();
  ForgetAskingThread();
  if (num_open_sessions.load() != 0) was_forked.store(true);
  AnyHandles::ForgetAllInChild();
}

std::vector<MV_Table> TablesOf(const SessionEntry* owner) {
  const std::lock_guard<std::mutex> guard(owner->tables_mutex);
  return owner->table_handles;
}

// Closes the handle of a table of `owner`, which the caller keeps in use, and releases the table.
Status CloseTable(SessionEntry* owner, MV_Table table, Instant deadline) {
  MV_ASSIGN_OR_RETURN(const auto closed, OpenTables().Close(table, deadline));
  const TableEntry& entry = *closed;
  {
    // No call is in flight, because a call in flight uses the table.
    const Status failure = entry.background->Flush(WaitLimit::Until(deadline));
    const std::lock_guard<std::mutex> guard(owner->tables_mutex);
    if (owner->background_failure.ok()) owner->background_failure = failure;
    auto& handles = owner->table_handles;
    handles.erase(std::remove(handles.begin(), handles.end(), table), handles.end());
  }
  owner->session->ReleaseTable(entry.table);
  return Status::Ok();
}

// Leaves all sessions without destroying them, since other threads may be in a call.
void LeaveSessions() {
  for (const MV_Session handle : OpenSessions().OpenHandles()) {
    const SessionUse use = OpenSessions().Using(handle);
    if (!use) continue;
    LeaveSession(use.get(), "its program ended without closing the session");
    RecordLosses(*use.get());
  }
}

}  // namespace

void AnyHandles::Register() {
  next_ = kinds.load();
  while (!kinds.compare_exchange_weak(next_, this)) {
  }
}

void AnyHandles::ForgetAllInChild() {
  for (AnyHandles* kind = kinds.load(); kind != nullptr; kind = kind->next_) kind->ForgetInChild();
}

SessionHandles& OpenSessions() {
  // This also closes the descriptor of the control segment, because the marks of the parent's ranks
  // must end with the parent (MarkPresent).
  return HandlesOf<SessionHandles>(
      "session", [](SessionEntry* entry) { entry->session->context()->memory()->ForgetInChild(); });
}

TableHandles& OpenTables() {
  return HandlesOf<TableHandles>("table",
                                 [](TableEntry* entry) { entry->table->here()->ForgetInChild(); });
}

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
  std::set<MV_Table> unflushed;
  {
    const std::lock_guard<std::mutex> guard(session->tables_mutex);
    unflushed = session->unflushed;
  }
  Status failure;
  for (const MV_Table table : unflushed) {
    const TableUse use = OpenTables().Using(table);
    const Status status = use ? FlushTable(use.get(), limit) : Status::Ok();
    if (failure.ok()) failure = status;
    const std::lock_guard<std::mutex> guard(session->tables_mutex);
    // Another thread may have started a call since.
    if (!use || use->background->IsIdle()) session->unflushed.erase(table);
  }
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  return failure.ok() ? std::exchange(session->background_failure, Status::Ok()) : failure;
}

void LeaveSession(SessionEntry* session, const std::string& reason) {
  // A call in the background that ends for this reason finds that the rank has left.
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  session->leave_reason = reason;
  session->session->Leave(reason);
}

std::optional<std::string> LeaveReason(SessionEntry* session) {
  const std::lock_guard<std::mutex> guard(session->tables_mutex);
  return session->leave_reason;
}

bool HasBackgroundCalls(const SessionEntry& session) {
  const std::vector<MV_Table> tables = TablesOf(&session);
  return std::any_of(tables.begin(), tables.end(), [](MV_Table table) {
    const TableUse use = OpenTables().Using(table);
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

Status StaleHandleError(const char* name, bool is_from_before_fork) {
  MV_RETURN_IF_NOT_OK(CheckNotForked());
  if (is_from_before_fork) {
    return Status(Code::kForked, StrCat("this process was forked from the one that had opened the ",
                                        name, ", which alone can use it: open one after the fork"));
  }
  const bool is_session = std::string_view(name) == "session";
  return Status(Code::kHandle, StrCat("this ", name, " is not open",
                                      is_session ? "" : ": it was closed, or its session ended"));
}

void RecordLosses(const SessionEntry& entry) {
  const PeerStatus& peers = *entry.session->context()->peers();
  // A suspended rank may never come to MPI_Finalize. It and the others know of each other that they
  // end without.
  const bool has_losses = peers.AnyExcludedForSilence() || !peers.LostRanks().empty();
  if (!peers.AnyDied() && (!has_losses || !entry.uses_mpi)) return;
  has_lost_ranks.store(true);
  MpiCommunicator::SkipFinalizeAtExit(true);
  RemoveFilesOfMpi();
}

bool HasLostRanks() { return has_lost_ranks.load(); }

Status OpenHandle(std::unique_ptr<Session> session, MV_Session* handle, bool uses_mpi) {
  auto entry = std::make_unique<SessionEntry>();
  SessionEntry* const published = entry.get();
  published->session = std::move(session);
  published->uses_mpi = uses_mpi;
  MV_RETURN_IF_NOT_OK(OpenSessions().Open(std::move(entry), handle));
  published->handle = *handle;
  num_open_sessions.fetch_add(1);
  return Status::Ok();
}

Status OpenHandle(SessionEntry* owner, std::shared_ptr<Table> table, MV_Table* handle) {
  auto entry = std::make_unique<TableEntry>();
  Table* const kept = owner->session->KeepTable(std::move(table));
  entry->owner = owner;
  entry->background = std::make_shared<BackgroundQueue>(owner->session->timeout());
  entry->table = kept;
  TableEntry* const opened = entry.get();
  const Status status = OpenTables().Open(std::move(entry), handle);
  if (!status.ok()) {
    owner->session->ReleaseTable(kept);
    return status;
  }
  opened->handle = *handle;
  const std::lock_guard<std::mutex> guard(owner->tables_mutex);
  owner->table_handles.push_back(*handle);
  return Status::Ok();
}

Status CloseHandle(MV_Table table) {
  MV_Session owner_handle = nullptr;
  {
    MV_ASSIGN_OR_RETURN(const TableUse use, OpenTables().UsingOpen(table));
    owner_handle = use->owner->handle;
  }
  // The session stays in use until this function returns, since another thread may be closing it.
  const SessionUse owner = OpenSessions().Using(owner_handle);
  if (!owner) return OpenTables().Stale(table);
  return CloseTable(owner.get(), table, owner->session->NextDeadline());
}

Status CloseHandle(MV_Session session) {
  std::vector<MV_Table> tables;
  Instant deadline;
  {
    MV_ASSIGN_OR_RETURN(const SessionUse use, OpenSessions().UsingOpen(session));
    deadline = use->session->NextDeadline();
    tables = TablesOf(use.get());
  }
  for (const MV_Table table : tables) {
    // Any other failure means that another thread has closed the table.
    const Status status = CloseHandle(table);
    if (status.code() == Code::kTimeout) return status;
  }
  MV_ASSIGN_OR_RETURN(auto closed, OpenSessions().Close(session, deadline));
  num_open_sessions.fetch_sub(1);
  // Another thread may have created a table before the handle was closed.
  for (const MV_Table table : TablesOf(closed.get())) {
    const Status status = CloseTable(closed.get(), table, deadline);
    if (status.code() == Code::kTimeout) {
      (void)closed.release();  // NOLINT: leaked, since another thread still uses the table
      return status;
    }
  }
  return Status::Ok();
}

}  // namespace multiverso::c_api
