// Registry: the handles of the open sessions and tables, and what a fork or the end of the process
// does to them.
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
  std::chrono::milliseconds slice{0};  // 0 makes calls block
  std::atomic<bool> in_collective_call{false};
  // The handles of the session's tables.
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

// The tables of handles are never destroyed, since a handle may be used while the process exits.
HandleTable<SessionEntry>& Sessions();
HandleTable<TableEntry>& Tables();

SessionUse Using(MV_Session session);
TableUse Using(MV_Table table);

// A session in use for a collective call, which one thread at a time makes. The guard is destroyed
// before the use, since the session owns the guard's flag.
struct CollectiveUse {
  SessionUse use;
  CallGuard guard;
};
Result<std::shared_ptr<CollectiveUse>> UseForCollectiveCall(MV_Session session);

// Returns the error for an invalid handle: closed, never valid, or from before a fork.
Status WhyStale(const char* what);

// Creates a handle for a new session or table.
Result<MV_Session> Publish(std::unique_ptr<SessionEntry> entry);
Result<MV_Table> Publish(SessionEntry* session, std::shared_ptr<Table> table);

// Closes a table's handle and releases the table.
Status Withdraw(MV_Table table);
// Closes the handles of a session and of its tables, and destroys the session. Waits until the
// session's timeout for other threads' calls on the handles.
Status Withdraw(MV_Session session);

// Makes open sessions leave at process exit, before MPI is finalized: MPI_Finalize would otherwise
// wait for ranks that wait for this rank. Called after MPI has been initialized, since exit
// handlers run in reverse order of their registration.
void LeaveSessionsAtExit();

// Records, before the session ends, whether it continued without a lost rank. HasLostRanks returns
// whether any session did.
void NoteLosses(const Session& session);
bool HasLostRanks();

// Returns ForkedError in a child that was forked while a session was open, or by a thread that had
// a pending call to open one.
Status CheckNotForked();
// Returns the result of CheckNotForked, and lets it notice forks from now on. Called before a
// session is opened.
Status WatchForks();

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_REGISTRY_H_
