// Registry: the handles of the open sessions and tables, and what a fork or the end of the process
// does to them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "c_api/background.h"
#include "c_api/handles.h"
#include "memory/segment.h"
#include "multiverso/c_api.h"
#include "session/session.h"

namespace multiverso::c_api {

struct SessionEntry {
  std::unique_ptr<Session> session;
  MV_Session handle = nullptr;
  std::atomic<bool> in_collective_call{false};
  std::atomic<bool> is_closed{false};  // by MV_SessionClose, which then closes the handle
  mutable std::mutex tables_mutex;     // protects the following members
  std::vector<MV_Table> table_handles;
  std::set<MV_Table> unflushed;  // tables with background calls since the last FlushTables
  std::optional<std::string>
      leave_reason;           // set when this rank leaves, which ends background calls
  Status background_failure;  // of a background call on a table that has been freed, not reported
  bool uses_mpi = false;
};

struct TableEntry {
  SessionEntry* owner;
  Table* table;
  MV_Table handle = nullptr;
  std::atomic<bool> in_round_call{false};
  std::shared_ptr<BackgroundQueue> background;
};

using SessionHandles = HandleTable<MV_Session, SessionEntry>;
using TableHandles = HandleTable<MV_Table, TableEntry>;
using SessionUse = SessionHandles::Use;
using TableUse = TableHandles::Use;
SessionHandles& OpenSessions();
TableHandles& OpenTables();

// Keeps memory mapped until MV_MemoryRelease.
Status KeepMemory(std::shared_ptr<Segment> memory, MV_Memory* handle);

// Wait for the background calls of a table, or of all tables of the session, and return their first
// failure that has not been reported.
Status FlushTable(TableEntry* table, const WaitLimit& limit);
Status FlushTables(SessionEntry* session, const WaitLimit& limit);
// Leaves the session without waiting for other ranks, and ends the background calls that wait for
// them.
void LeaveSession(SessionEntry* session, const std::string& reason);
// Returns the reason for which this rank has left the session, if it has.
std::optional<std::string> LeaveReason(SessionEntry* session);
// Returns whether a table of the session has background calls in flight.
bool HasBackgroundCalls(const SessionEntry& session);

// Open a handle for a new session or table.
Status OpenHandle(std::unique_ptr<Session> session, MV_Session* handle, bool uses_mpi = false);
Status OpenHandle(SessionEntry* session, std::shared_ptr<Table> table, MV_Table* handle);

// Closes a table's handle and releases the table. Waits until the session's timeout for other
// threads' calls on the handle. After a timeout returns OperationTimeout, and the table stays open.
Status CloseHandle(MV_Table table);
// Closes the handles of a session's tables, then the session's, and destroys the session. Waits for
// each handle as above. After a timeout returns OperationTimeout, and the handles that were not
// closed stay open. If a table was created meanwhile and is in use, its session is leaked.
Status CloseHandle(MV_Session session);

// Makes open sessions leave at process exit, before MPI is finalized: MPI_Finalize would otherwise
// wait for ranks that wait for this rank. Called after MPI has been initialized, since exit
// handlers run in reverse order of their registration.
void LeaveSessionsAtExit();

// Called before a session ends. If it continued without lost ranks, records that for HasLostRanks,
// and makes the process exit without MPI_Finalize if Multiverso initialized MPI. Ranks that have
// left a session without MPI may still call MPI_Finalize.
void RecordLosses(const SessionEntry& entry);
bool HasLostRanks();

// Counts a session as open while it is being opened, for CheckNotForked.
class SessionOpening {
 public:
  SessionOpening();
  ~SessionOpening();
  SessionOpening(const SessionOpening&) = delete;
  SessionOpening& operator=(const SessionOpening&) = delete;
};

// Returns ForkedError in a child that was forked while a session was open or being opened.
Status CheckNotForked();
// Lets CheckNotForked, and the handles, notice forks from now on. Called before anything is opened
// that a forked child cannot use.
Status WatchForks();

}  // namespace multiverso::c_api
