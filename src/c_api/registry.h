// Registry: the sessions and tables that callers of the C API have open.
#ifndef MULTIVERSO_C_API_REGISTRY_H_
#define MULTIVERSO_C_API_REGISTRY_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/handles.h"
#include "multiverso/c_api.h"
#include "session/session.h"

namespace multiverso::c_api {

struct TableEntry;

struct SessionEntry {
  std::unique_ptr<Session> session;
  MV_Session handle = nullptr;
  std::chrono::milliseconds slice{0};  // 0: calls block
  std::atomic<bool> in_collective_call{false};
  // The handles to make stale when the session ends.
  std::mutex tables_mutex;
  std::vector<uintptr_t> tables;
};

struct TableEntry {
  SessionEntry* session;
  Table* table;
  std::atomic<bool> in_round_call{false};
};

using SessionUse = HandleTable<SessionEntry>::Use;
using TableUse = HandleTable<TableEntry>::Use;

// Handles in use; both live as long as the process.
HandleTable<SessionEntry>& Sessions();
HandleTable<TableEntry>& Tables();

SessionUse Using(MV_Session session);
TableUse Using(MV_Table table);

// A session in use for a collective call, which one thread makes at a time. The turn ends before
// the use does.
struct CollectiveUse {
  SessionUse use;
  CallGuard guard;
};
Result<std::shared_ptr<CollectiveUse>> UsingTogether(MV_Session session);

// Why a handle is not valid: closed, never valid, or of the parent of a forked process.
Status WhyStale(const char* what);

// Makes a handle for a new session or table.
Result<MV_Session> Publish(std::unique_ptr<SessionEntry> entry);
Result<MV_Table> Publish(SessionEntry* session, std::shared_ptr<Table> table);

// Takes a table's handle back and releases the table.
Status Withdraw(MV_Table table);
// Takes the handles of a session and of its tables back, and destroys it. Waits for calls that
// other threads are making on them, until the session's timeout.
Status Withdraw(MV_Session session);

// From now on the sessions that are open when the process exits leave before MPI is finalised,
// which would else wait for ranks that wait for this one. For after a session has been opened over
// MPI, since what is registered last to be called at exit is called first.
void LeaveSessionsAtExit();

// Notes whether that session has gone on without a rank, before it ends; and whether any has.
void NoteLosses(const Session& session);
bool HasLostAny();

// Fails in a child forked from a process that had a session open, or was opening one.
Status CheckNotForked();
// The same, and from now on forks of this process are noticed: before a session is opened.
Status WatchForks();

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_REGISTRY_H_
