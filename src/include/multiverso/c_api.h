/* Multiverso: the parameter server's C API. Every binding (Python, Lua, your own) goes through it.
 *
 * Conventions
 * - A function that can fail returns an int32_t status: MV_OK, MV_OUTDATED or an MV_ERR_ code.
 *   Results come back through out pointers. What these point to is valid only on MV_OK.
 * - MV_LastError() explains the calling thread's last error in a text.
 * - Sizes, counts, row ids and milliseconds are int64_t; counts are elements, never bytes.
 * - Nothing exits, aborts, throws or installs a signal handler. A stale handle is a status.
 * - A call blocks until it is done or its deadline passes. While it waits, it calls the function
 *   of MV_SetInterrupt, if there is one, which can abort the call. So a program stays responsive to
 *   signals, which the library does not handle.
 * - Every function may be called from any thread. Collective calls of one session must be made in
 *   the same order on every rank, so one thread at a time makes them; with MV_MODE_SYNC and
 *   MV_MODE_STALE one thread at a time calls a table. A second thread gets MV_ERR_STATE.
 */
#ifndef MULTIVERSO_C_API_H_
#define MULTIVERSO_C_API_H_

#include <stdint.h>

#include "multiverso/constants.h"

#if defined(_WIN32)
#if defined(MULTIVERSO_BUILDING)
#define MV_EXPORT __declspec(dllexport)
#else
#define MV_EXPORT __declspec(dllimport)
#endif
#else
#define MV_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Handles: distinct types, so that the compiler tells them apart ------------------------- */
typedef struct MV_SessionHandle_* MV_Session;
typedef struct MV_TableHandle_* MV_Table;
typedef struct MV_MemoryHandle_* MV_Memory;
typedef struct MV_FutureHandle_* MV_Future;
typedef struct MV_ParamSyncHandle_* MV_ParamSync;
typedef struct MV_CheckpointHandle_* MV_Checkpoint;
typedef struct MV_ReaderHandle_* MV_Reader;

/* ---- The library itself --------------------------------------------------------------------- */
MV_EXPORT int32_t MV_AbiVersion(void);
MV_EXPORT const char* MV_VersionString(void);
/* A JSON object: version, abi, compiler, build type, vector kernels in use. Static storage. */
MV_EXPORT const char* MV_BuildInfo(void);
/* What goes with what, as a JSON object: "features", each with a "group", a "name" and a "meaning",
 * and "refusals", each with the "features" that do not go together, by name, the "code" of the
 * error and its "sentence". Static storage. */
MV_EXPORT const char* MV_Supported(void);
/* MV_ERR_MEMORY, with the numbers after `what`, if so many bytes of memory are not free on this
 * machine and in the control groups of this process. Needs no session. */
MV_EXPORT int32_t MV_CheckIsFree(int64_t bytes, const char* what);
/* "MV_ERR_VALUE" for MV_ERR_VALUE, and so on; "unknown" otherwise. Static storage. */
MV_EXPORT const char* MV_StatusName(int32_t status);
/* What went wrong in the calling thread's last failing call. Valid until its next call.
 * MV_TableFree, MV_ParamSyncFree and MV_CheckpointClose of an invalid handle do not replace it. */
MV_EXPORT const char* MV_LastError(void);

typedef struct MV_FileError {
  int64_t struct_size;  /* set by the caller to sizeof(MV_FileError) */
  int32_t error_number; /* errno, or 0 */
  int32_t reserved;
  int64_t position; /* bytes written before the error, or its position in the file */
  const char* path; /* NULL if the error is about no file. Valid until the thread's next call */
} MV_FileError;

/* Returns the file that the calling thread's last failing call was about. */
MV_EXPORT int32_t MV_LastErrorFile(MV_FileError* error);

typedef struct MV_PeerError {
  int64_t struct_size; /* set by the caller to sizeof(MV_PeerError) */
  int32_t rank;        /* the first if there are several; -1 if the error is about no rank */
  int32_t reserved;
  double silent_for; /* seconds since its last heartbeat; negative if unknown */
  /* NULL if unknown. Valid until the thread's next call: */
  const char* host;       /* where the rank runs */
  const char* last_call;  /* its last call, and when it was made */
  const char* table;      /* the table of the call that failed here */
  const char* checkpoint; /* path of the last completed checkpoint */
} MV_PeerError;

/* Returns the other rank that the calling thread's last failing call was about: the lost rank for
 * MV_ERR_PEER_LOST, the late rank for MV_ERR_TIMEOUT, the rank that aborted for MV_ERR_ABORTED. */
MV_EXPORT int32_t MV_LastErrorPeer(MV_PeerError* error);

/* ---- Waiting -------------------------------------------------------------------------------- */
/* Called every 20 ms, in long waits every 500 ms and after a signal, by a thread that waits in a
 * call. If it returns NULL, the call continues. Otherwise the result is the reason for which the
 * call is aborted: the call returns MV_ERR_ABORTED, and the text must stay valid until then. If
 * other ranks take part in the call, the session is aborted with this reason, since they can no
 * longer complete the call; with an empty reason, the call goes on instead, and returns
 * MV_ERR_ABORTED at its end. Inside the function MV_SetDefaultInterrupt and all calls on sessions
 * and tables fail with MV_ERR_STATE, except descriptions. */
typedef const char* (*MV_InterruptCheck)(void* argument);
/* Sets the function that later waits of the calling thread call. NULL, the default, means none. */
MV_EXPORT int32_t MV_SetInterrupt(MV_InterruptCheck check, void* argument);
/* Sets the function for all threads that have set none. One thread at a time calls it, and others
 * call it later. */
MV_EXPORT int32_t MV_SetDefaultInterrupt(MV_InterruptCheck check, void* argument);
/* An MV_InterruptCheck for LuaJIT, where Ctrl-C sets a hook that then raises an error. A function
 * in Lua could not be the check, because Lua errors cannot pass through this library. The argument
 * is an array of three pointers: lua_gethook, a lua_State of the program, and the hook at the start
 * of the call, which a change of the hook aborts. */
MV_EXPORT const char* MV_CheckLuaHook(void* argument);
/* Sets a deadline for a call of other libraries that cannot be interrupted, such as MPI_Init. After
 * 10 s, and then every 30 s, a warning says that this process waits in `call`. Unless
 * MV_ExitDeadlineEnd is called within timeout_ms (or MV_NO_LIMIT), the process prints an error and
 * ends with exit code 1. One deadline at a time; MV_SessionOpen sets one itself if it calls
 * MPI_Init. */
MV_EXPORT int32_t MV_ExitDeadlineBegin(const char* call, int64_t timeout_ms);
/* Removes the deadline, if there is one. */
MV_EXPORT int32_t MV_ExitDeadlineEnd(void);
/* Waits at most timeout_ms (or MV_NO_LIMIT), at the end of this process, until all ranks of its MPI
 * job have called this function, because MPI_Finalize would wait for them without end. Returns
 * MV_OK if they have, or if no session has used all ranks of the job. Otherwise MV_ERR_TIMEOUT or
 * MV_ERR_PEER_LOST names the missing ranks, and the process must end without MPI_Finalize; its exit
 * code, unless it is 0, then becomes that of the job (with glibc). If MV_SessionOpen initialized
 * MPI, it also makes this call and MPI_Finalize at exit. */
MV_EXPORT int32_t MV_ExitMeet(int64_t timeout_ms);

/* ---- Ranks ---------------------------------------------------------------------------------- */
/* Returns in *launchers the sum of the MV_LAUNCHER_ whose variables are about this process. A
 * program that reads these variables calls this at its start with opens = 0, and uses only the
 * variables of these launchers: the programs that a rank starts inherit them. The call marks them
 * as this process's own by another variable, MULTIVERSO_RANK_OWNER, so it must not run while
 * another thread uses the environment. The programs that this process then starts get 0, as long as
 * it lives. With opens = 1, which a rank passes before it opens its first session, MV_ERR_STATE
 * means that another process is the same rank; the message names both. */
MV_EXPORT int32_t MV_ClaimRank(int32_t opens, int32_t* launchers);

/* ---- Sessions ------------------------------------------------------------------------------- */
typedef struct MV_SessionOptions {
  int64_t struct_size; /* sizeof(MV_SessionOptions), set by MV_SessionOptionsInit */
  int32_t mode;        /* MV_MODE_ */
  int32_t role;        /* MV_ROLE_, of this rank */
  int32_t transport;   /* MV_TRANSPORT_ */
  int32_t on_loss;     /* MV_LOSS_ */
  int64_t staleness;   /* of MV_MODE_STALE: rounds, >= 1 (0 would be MV_MODE_SYNC) */
  /* Of any call, or MV_NO_LIMIT; saves and loads get more. Default 1 800 000. From 10 s on, a line
   * in the log names the ranks for which a call waits. */
  int64_t timeout_ms;
  const void* mpi_comm;    /* address of an MPI_Comm, or NULL for MPI_COMM_WORLD */
  const char* mpi_path;    /* MPI library to load if none is loaded yet, or NULL to search */
  int64_t peer_timeout_ms; /* how long a rank may send no heartbeat; default 30 000 */
  /* Of MV_TRANSPORT_LOCAL: a name of at most 64 bytes that all ranks of the job give and no other
   * job on the machine, the number of this rank, and the number of ranks. */
  const char* job_name;
  int32_t job_rank;
  int32_t job_size;
  const char* name; /* by which MV_ReaderOpen finds the session, at most 63 bytes; NULL for none */
  /* In an elastic session, on one machine and not in MV_MODE_SYNC, ranks may join and end at any
   * time. A session without a name gets one. */
  int32_t elastic;     /* 0 or 1 */
  int32_t max_workers; /* of an elastic session, at the same time; 0 for no bound */
  /* The name of an elastic session, or in digits the process id of one of its ranks: this process
   * joins it, and `transport` is ignored. NULL opens a session. */
  const char* join;
  /* The same on all ranks: MV_TERM_, and whether (0 or 1) they save when they leave together. */
  int32_t on_term;
  int32_t saves_at_end;
  /* Of waits for ranks of which nothing has been heard: in MV_SessionOpen, and before MPI_Finalize.
   * May be MV_NO_LIMIT. 0, the default, is 120 000, or timeout_ms if that is not its default. */
  int64_t start_timeout_ms;
} MV_SessionOptions;

typedef struct MV_SessionDescription {
  int64_t struct_size; /* set by the caller to sizeof(MV_SessionDescription) */
  int64_t rank;        /* in the communicator */
  int64_t size;        /* ranks of the session; of an elastic one, all that have ever joined */
  int64_t worker_id;   /* dense, in rank order; -1 if this rank is not a worker */
  int64_t server_id;   /* dense, in rank order; -1 if this rank is not a server */
  int64_t num_workers; /* of an elastic session, those that take part now */
  int64_t num_servers;
  int64_t master_rank; /* rank of the first worker that is not lost; its initial values are used */
  int64_t node;        /* dense number of this rank's node */
  int64_t num_nodes;
  int64_t local_rank; /* of this rank among the ranks of its node */
  int64_t local_size;
} MV_SessionDescription;

/* Fills in the defaults: async, role all, single transport, 30 minutes, blocking waits. */
MV_EXPORT int32_t MV_SessionOptionsInit(MV_SessionOptions* options);
/* Collective. Versions, modes and timeouts of the ranks are compared (MV_ERR_MISMATCH). */
MV_EXPORT int32_t MV_SessionOpen(const MV_SessionOptions* options, MV_Session* session);
MV_EXPORT int32_t MV_SessionDescribe(MV_Session session, MV_SessionDescription* description);
/* Not collective. Returns the lost ranks of a session that continues without them, in order, and
 * those of an elastic session that have closed it.
 * `count` receives their number, and `ranks` up to `room` of them. */
MV_EXPORT int32_t MV_SessionLost(MV_Session session, int64_t* ranks, int64_t room, int64_t* count);
/* Returns 1 if an ended session of this process had continued without a lost rank, else 0. If 1,
 * the process should end without MPI_Finalize, which may wait for the lost rank forever. */
MV_EXPORT int32_t MV_HasLostRanks(void);
/* Collective. Every get after the barrier sees every add that any rank called before it. */
MV_EXPORT int32_t MV_SessionBarrier(MV_Session session);
/* Collective over the workers. Combines `count` elements of every worker in place with an operation
 * MV_OP_..., pairwise by their numbers: all get the same bits. MV_FLOAT16 and MV_BFLOAT16 are
 * combined in float32, and the result is rounded once. */
MV_EXPORT int32_t MV_SessionAggregate(MV_Session session, int32_t op, int32_t dtype, void* data,
                                      int64_t count);
typedef struct MV_CollectiveCall {
  int64_t struct_size; /* set by the caller to sizeof(MV_CollectiveCall) */
  int32_t kind;        /* MV_CALL_, which says what the arrays are */
  int32_t op;          /* MV_OP_, of MV_CALL_AGGREGATE and MV_CALL_REDUCE_SCATTER; of calls that
                          only copy, a number of the program, for what its bytes mean */
  int32_t dtype;       /* of all arrays; MV_FLOAT32 ... */
  int32_t root;        /* worker id, of MV_CALL_BROADCAST */
  const void* const* sent;
  const int64_t* sent_counts; /* of elements, of each array */
  void* const* received;
  const int64_t* received_counts;
} MV_CollectiveCall;

/* Collective over the workers, or over all ranks if it is a barrier. Kind, op, dtype, root and the
 * sizes must fit together on all (MV_ERR_MISMATCH). Calls that send arrays need a session of one
 * node with MV_LOSS_FAILS (MV_ERR_UNSUPPORTED). */
MV_EXPORT int32_t MV_SessionRun(MV_Session session, const MV_CollectiveCall* call);

/* Sets how long this rank's later calls wait for other ranks, instead of timeout_ms of the options.
 * May be MV_NO_LIMIT. The ranks need not agree. */
MV_EXPORT int32_t MV_SessionSetTimeout(MV_Session session, int64_t timeout_ms);
/* Not collective. This worker joins no further rounds of MV_MODE_SYNC and MV_MODE_STALE; the other
 * workers continue without it. This worker may still get the state after the last complete round,
 * and must still close the session. */
MV_EXPORT int32_t MV_SessionFinish(MV_Session session);
/* Not collective. Returns in *leaving whether a rank of the session was told to end: 0 or 1. `told`
 * is 1 if this one was, and then all get to know it. In an elastic session a worker passes 1 after
 * its last add, and then leaves (MV_SessionLeave): *leaving is MV_LEAVE_NOW, or for exactly one
 * worker MV_LEAVE_LAST if all leave, and that one saves first. Nobody can join any more then. */
MV_EXPORT int32_t MV_SessionLeaving(MV_Session session, int32_t told, int32_t* leaving);
/* With MV_TERM_LEAVES, asks whether all ranks leave now, and waits until each calls this or another
 * collective call. `when` is an MV_AT_. *outcome is MV_LEAVE_NOW on all ranks if all called this
 * and one was told to end: they then make the same calls, such as MV_SessionSave and
 * MV_SessionClose. A rank that is in another collective call waits there until the others make that
 * call too. With MV_AT_FAILURE it gets MV_ERR_ABORTED instead, since this rank will not make that
 * call, and this rank asks again. *step is the step of this rank, or -1, and receives the smallest
 * step of the ranks that do not close, or of all if all do. */
MV_EXPORT int32_t MV_SessionAgreeToLeave(MV_Session session, int32_t when, int64_t* step,
                                         int32_t* outcome);
/* Collective. Waits for the other ranks to close, frees all tables and the session. The handle is
 * stale afterwards, also after an error, unless this process is still in another call on the
 * session (MV_ERR_STATE, MV_ERR_TIMEOUT). */
MV_EXPORT int32_t MV_SessionClose(MV_Session session);
/* Not collective: this rank leaves without waiting for others. Ranks that wait for it get
 * MV_ERR_PEER_LOST with the reason, or continue without it (MV_LOSS_CONTINUES). Frees all tables
 * and the session, after waiting for other threads' calls on them. */
MV_EXPORT int32_t MV_SessionLeave(MV_Session session, const char* reason);
/* Lets a process that a rank has started ignore SIGTERM, unless the process `parent` sends it or
 * has ended; then the signal does what it did before. Batch systems send the signal to all
 * processes of a job, where only the ranks are to react (MV_TERM_LEAVES). Not for ranks. */
MV_EXPORT int32_t MV_IgnoreNotice(int64_t parent);

/* Collective. Shows readers (MV_ReaderOpen) all tables as they are now, as one version, which
 * *version receives: 1, 2, ... `step` is a number of the program. Copies what has changed since the
 * version before the last one to memory that readers share. MV_ERR_STATE without a name. */
MV_EXPORT int32_t MV_SessionPublish(MV_Session session, int64_t step, int64_t* version);

/* ---- Looking at jobs from outside ------------------------------------------------------------ */
/* Finds the sessions of this user's other processes on this machine, or those of the process `pid`
 * alone unless it is 0. Writes a JSON list to `json`, if its `length` characters fit the `room`
 * there: for each node of a session what MV_NodeDescribe writes, as "node", and the numbers of the
 * ranks that take part now, as "alive". MV_ERR_UNSUPPORTED on other systems than Linux. */
MV_EXPORT int32_t MV_FindSessions(int64_t pid, char* json, int64_t room, int64_t* length);
/* For launchers: tells the sessions of a process, before it is ended, which rank was lost first.
 * Readers of the session say so, unless its ranks have noted another loss before. */
MV_EXPORT int32_t MV_NoteLoss(int64_t pid, int32_t rank);
/* Describes the ranks of a node without disturbing them, as a JSON object of `length` characters,
 * which is written to `json` if it fits the `room` there. `path` is /proc/PID/fd/N, the descriptor
 * of the node's control segment in one of their processes, because the segment has no other name.
 * MV_ERR_UNSUPPORTED if the file is not a control segment of this version of Multiverso. */
MV_EXPORT int32_t MV_NodeDescribe(const char* path, char* json, int64_t room, int64_t* length);
/* The same for the node of this rank, from inside the session. Not collective. */
MV_EXPORT int32_t MV_SessionStats(MV_Session session, char* json, int64_t room, int64_t* length);

/* ---- Reading tables from outside ------------------------------------------------------------- */
/* Attaches to the session with that name on this machine, or to that of the process `pid` if `name`
 * is NULL. The process needs no MPI and no session. A reader cannot change anything and delays
 * nobody. MV_ERR_STATE if there is no such session. After the session's end, what it has published
 * can be read until MV_ReaderClose; reading tables as they are, and waiting for later versions,
 * fails with MV_ERR_STATE, and the message says why the session has ended. In a child forked after
 * this call, all calls with the reader fail with MV_ERR_FORKED. */
MV_EXPORT int32_t MV_ReaderOpen(const char* name, int64_t pid, MV_Reader* reader);
/* Describes the tables and the last publication as a JSON object, as MV_NodeDescribe does.
 * MV_ERR_STATE if the session has ended and had created tables after the last call with the reader,
 * because they cannot be found any more. */
MV_EXPORT int32_t MV_ReaderDescribe(MV_Reader reader, char* json, int64_t room, int64_t* length);
/* Runs the operation "get", "get_rows", "get_keys" or "cells" (MV_TableRun) on the table with that
 * id. `version` is 0 for the table as it is now, of which each stripe is read at another moment, or
 * the number of a publication. MV_OUTDATED, with undefined content of `out`, if the session has
 * published too much since that version: then begin again with the last one. */
MV_EXPORT int32_t MV_ReaderRun(MV_Reader reader, int64_t table, int64_t version,
                               const char* operation, const int64_t* row_ids, int64_t num_ids,
                               void* out, int64_t count);
/* Waits until the session has published `version`. *published receives the last version, 0 before
 * the first, and *step its step. MV_ERR_TIMEOUT after timeout_ms, which may be MV_NO_LIMIT. */
MV_EXPORT int32_t MV_ReaderWait(MV_Reader reader, int64_t version, int64_t timeout_ms,
                                int64_t* published, int64_t* step);
MV_EXPORT int32_t MV_ReaderClose(MV_Reader reader);
/* Finds which of `count` elements, from element `first` on, of a table as of a publication differ
 * bit by bit from those at `before`, and copies these there. `dtype` is how the table stores them,
 * or MV_BFLOAT16, to which float32 are rounded. counts[i] receives how many of the elements from
 * first + 65536 * i to first + 65536 * (i + 1) - 1 differ; `places` and `values`, with room for
 * `count` elements, their places there and their new values, of all i one after the other; *changed
 * the sum of `counts`. If `counts` is NULL, copies all elements to `before`. Not for tables of
 * which only some rows exist. MV_OUTDATED as MV_ReaderRun. */
MV_EXPORT int32_t MV_ReaderCompare(MV_Reader reader, int64_t table, int64_t version, int32_t dtype,
                                   int64_t first, int64_t count, void* before, uint32_t* counts,
                                   uint16_t* places, void* values, int64_t* changed);
/* Keeps the tables all of whose rows exist as they are in a version, until MV_ReaderUnpin has been
 * called as often, the reader is closed, or its process ends. The session continues, and never
 * waits: it publishes to other memory, up to two more copies of these tables. MV_ERR_STATE if
 * readers have pinned two other versions. MV_OUTDATED as MV_ReaderRun. */
MV_EXPORT int32_t MV_ReaderPin(MV_Reader reader, int64_t version);
MV_EXPORT int32_t MV_ReaderUnpin(MV_Reader reader, int64_t version);
/* Sets *values to the elements of a table in a version, row after row, in read-only memory that the
 * session shares with all its readers. They stay as they are while the version is pinned, and the
 * memory stays mapped until MV_MemoryRelease. MV_ERR_VALUE for a table of which only some rows
 * exist. MV_OUTDATED as MV_ReaderRun, and if the version does not have the table. */
MV_EXPORT int32_t MV_ReaderMemory(MV_Reader reader, int64_t table, int64_t version,
                                  const void** values, MV_Memory* memory);
/* Rounds float32 to the nearest bfloat16, ties to even. Needs no session. */
MV_EXPORT int32_t MV_RoundToBfloat16(const float* values, uint16_t* rounded, int64_t count);

/* ---- Tables --------------------------------------------------------------------------------- */
typedef struct MV_TableOptions {
  int64_t struct_size;          /* sizeof(MV_TableOptions), set by MV_TableOptionsInit */
  int32_t kind;                 /* MV_TABLE_ */
  int32_t dtype;                /* MV_FLOAT32 ... */
  int64_t num_row;              /* >= 1 */
  int64_t num_col;              /* >= 1; 1 for an array */
  int32_t updater;              /* MV_UPDATER_ */
  int32_t wire;                 /* MV_WIRE_ */
  double hyper[MV_HYPER_COUNT]; /* by MV_HYPER_; those that the updater does not have are ignored */
  const char* name;             /* for messages and checkpoints, of at most 63 bytes in UTF-8; NULL
                                   for "table N" */
  const void* init_value;       /* num_row * num_col elements, or NULL for zeros. Read on the
                                   master only, so other ranks may pass NULL. */
  int32_t initializer;          /* MV_INITIALIZER_; other than NONE only without init_value */
  int32_t numa;                 /* MV_NUMA_ */
  int64_t seed;                 /* of random initializers; -1 for one that follows from the number
                                   of the table in its session */
  double initializer_values[MV_INITIALIZER_VALUES]; /* 0 where the initializer has none. A constant
                                   of integers is the sum of both, so that it can be any int64 */
  int64_t max_bytes;   /* of parameters and state of touched rows on each node, for a table
                          with an initializer; 0 for all that the machine has. An add that
                          needs more fails with MV_ERR_MEMORY and changes nothing. */
  int64_t capacity;    /* of MV_TABLE_HASH: the most keys; 0 for as many as max_bytes allows */
  int32_t evict;       /* MV_EVICT_ */
  int32_t admit;       /* the number of gets after which a key gets a row, at most 255 */
  const char* backing; /* a folder on a disk in which the table lies, also after the session, or
                          NULL for memory. If a session that has ended well has left the same
                          table there, the table has its rows, and not the initial ones */
} MV_TableOptions;

typedef struct MV_TableDescription {
  int64_t struct_size; /* set by the caller to sizeof(MV_TableDescription) */
  int32_t kind;
  int32_t dtype;
  int64_t num_row; /* of a hash table, the rows for which addresses are reserved */
  int64_t num_col;
  int32_t updater;
  int32_t is_reopened;          /* whether the rows are those of an earlier session (backing) */
  double hyper[MV_HYPER_COUNT]; /* as they are now */
  int64_t id;                   /* 0 for the first table of the session */
  int64_t bytes;                /* of the parameters alone */
  int64_t max_changes;          /* the most ranges that MV_TableListChanges returns */
} MV_TableDescription;

/* Fills in the defaults: a float32 array of 0 rows (to be set), the updater add, and a learning
 * rate of 0.01 in case you set the updater to MV_UPDATER_SGD. */
MV_EXPORT int32_t MV_TableOptionsInit(MV_TableOptions* options);
/* Sets the updater, and `hyper` to its defaults. */
MV_EXPORT int32_t MV_TableOptionsSetUpdater(MV_TableOptions* options, int32_t updater);
/* Collective. On MV_OK the table has the master's initial value. If the options differ or a rank
 * cannot create the table, all ranks get an error, none has the table, and the session stays
 * usable. */
MV_EXPORT int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options,
                                 MV_Table* table);
MV_EXPORT int32_t MV_TableDescribe(MV_Table table, MV_TableDescription* description);
/* Sums the MV_KEY_COUNTS numbers of a hash table over all nodes. Not collective. */
MV_EXPORT int32_t MV_TableKeyCounts(MV_Table table, int64_t* counts);
/* Not collective. Releases the table on this rank, after its background calls, whose first failure
 * the next collective call reports. When every rank has released it, its memory is freed. */
MV_EXPORT int32_t MV_TableFree(MV_Table table);

/* A flag of gets: all workers make the get together and receive bitwise identical values, which
 * include every add before the get and none after it. In MV_MODE_SYNC every get is collective. */
#define MV_COLLECTIVE 1
/* A flag of gets that take part in no round: in MV_MODE_SYNC they return the values after the last
 * complete round, and neither count for this worker nor wait for another worker's call. With
 * bounded staleness they do not wait for the bound. "get_keys" accepts it, "fetch_keys" does not.
 */
#define MV_PEEK 2

/* Runs an operation by name: "get", "add", "add_get", "get_rows" or "add_rows"; of a hash table,
 * whose `row_ids` are keys, any int64: "get_keys" (keys without a row have initial values),
 * "fetch_keys" (a get that gives them rows), "add_keys" (an add that does so), "find_keys" (an
 * int64 for each key, -1 if it has no row), "remove_keys", or "cells". Operations on rows and keys
 * use `row_ids`; adds use `delta`; the others, and "add_get", write to `out`. `count` is the number
 * of elements of `delta` or `out`. "cells" writes two int64 numbers for each of `row_ids`, which
 * are rows from 0 to num_row - 1: its key, and 0 if no key has the row. The functions below are the
 * same operations with fewer arguments. */
MV_EXPORT int32_t MV_TableRun(MV_Table table, const char* operation, const int64_t* row_ids,
                              int64_t num_ids, const void* delta, void* out, int64_t count,
                              int32_t flags);
/* Starts an operation as MV_TableRun makes it, in the background. The library copies `row_ids` and
 * `delta`; `out` must stay valid until the operation has ended. A thread per table makes the
 * operations in the order in which they were started. Every other call on the table first waits for
 * them, and a collective call of the session for those of all tables. The call waits itself only if
 * more than 256 MiB of arguments are in flight. Release the future with MV_FutureRelease. */
MV_EXPORT int32_t MV_TableStart(MV_Table table, const char* operation, const int64_t* row_ids,
                                int64_t num_ids, const void* delta, void* out, int64_t count,
                                MV_Future* future);
/* Waits until the operation has ended, for at most `seconds`, or until the session's timeout if
 * `seconds` is negative (then MV_ERR_TIMEOUT). Sets *done to whether it has ended, and returns its
 * status if it has. */
MV_EXPORT int32_t MV_FutureWait(MV_Future future, double seconds, int32_t* done);
/* Sets *done to whether the operation has ended. Does not wait, and does not count as a report of
 * the operation's failure. */
MV_EXPORT int32_t MV_FutureDone(MV_Future future, int32_t* done);
/* Forgets the future, but not the operation. Not collective. */
MV_EXPORT int32_t MV_FutureRelease(MV_Future future);
/* Wait until all operations in the background of a table, or of a session and all its tables, have
 * ended, with a limit as in MV_FutureWait (then MV_ERR_TIMEOUT). They return the first failure that
 * neither MV_FutureWait nor an earlier flush has returned. Collective calls of the session and
 * MV_SessionFinish do the same first, and fail without having begun if there is such a failure.
 * MV_SessionClose returns the failure after the end of the session. MV_SessionLeave ends operations
 * that wait for other ranks with MV_ERR_ABORTED. */
MV_EXPORT int32_t MV_TableFlush(MV_Table table, double seconds);
MV_EXPORT int32_t MV_SessionFlush(MV_Session session, double seconds);
/* The whole table, row by row. `count` must be num_row * num_col. Only workers may get and add. */
MV_EXPORT int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags);
MV_EXPORT int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count);
/* Adds, and gets the result in the same pass over the memory. `delta` and `out` may be the same
 * memory, but must not overlap otherwise. */
MV_EXPORT int32_t MV_TableAddGet(MV_Table table, const void* delta, void* out, int64_t count);
/* Sets *buffer to memory for num_row * num_col elements, zero at first, in which this worker writes
 * its next delta. MV_TableAdd and MV_TableAddGet do not copy a delta that is there. From then on
 * the memory belongs to the table, until the next MV_TableDeltaBuffer, which waits until every
 * worker has made that add. The content is what the caller last wrote. Sets *buffer to NULL where
 * the mode copies every delta: outside MV_MODE_SYNC, and if the session spans nodes. */
MV_EXPORT int32_t MV_TableDeltaBuffer(MV_Table table, void** buffer);
/* Is a get without a copy: sets *values to the parameters, which remain unchanged until this
 * worker's next add, MV_SessionFinish or load. Sets *values to NULL, and is no get, where
 * parameters may change at any time: as above, and after MV_SessionFinish. Then call MV_TableGet.
 */
MV_EXPORT int32_t MV_TableView(MV_Table table, const void** values);
/* Sets *memory to the parameters, in the type in which they are stored. Other ranks change them at
 * any time, so neighbouring elements may be of different moments. Read only. MV_ERR_UNSUPPORTED in
 * MV_MODE_SYNC, for a table with an initializer, and if not all rows are on this node. */
MV_EXPORT int32_t MV_TableMemory(MV_Table table, const void** memory);
/* Keeps the memory of these three functions valid, also after the table has been freed and the
 * session closed, until MV_MemoryRelease. Not collective. */
MV_EXPORT int32_t MV_TableKeepMemory(MV_Table table, MV_Memory* memory);
MV_EXPORT int32_t MV_MemoryRelease(MV_Memory memory);
/* Rows of a matrix by id, in the given order; `count` must be num_ids * num_col. All ids are
 * checked before any data moves. A get returns the row of a duplicate id each time. An add applies
 * each of its deltas, except that a nonlinear updater receives their sum and MV_UPDATER_EASGD
 * rejects duplicates (MV_ERR_VALUE). */
MV_EXPORT int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                                  void* out, int64_t count, int32_t flags);
MV_EXPORT int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                                  const void* delta, int64_t count);
/* A rectangle of a table, row by row: num_row rows from first_row on, and of each num_col columns
 * from first_col on. An array has one column. Pieces of 64 KiB of the table may be of
 * different moments. An add needs whole rows if the updater counts its updates or has state per
 * row, and a whole array if it counts them (MV_ERR_UNSUPPORTED). 16-bit tables count, too. */
MV_EXPORT int32_t MV_TableGetPart(MV_Table table, int64_t first_row, int64_t num_row,
                                  int64_t first_col, int64_t num_col, void* out, int32_t flags);
MV_EXPORT int32_t MV_TableAddPart(MV_Table table, int64_t first_row, int64_t num_row,
                                  int64_t first_col, int64_t num_col, const void* delta);
/* Add to one element, or store `desired` if it equals `expected`, and set *before to its value
 * before. Atomic for all ranks, and no part of a round of MV_MODE_STALE. MV_ERR_UNSUPPORTED in
 * MV_MODE_SYNC, with another updater than MV_UPDATER_ADD, and for 16-bit tables. */
MV_EXPORT int32_t MV_TableFetchAdd(MV_Table table, int64_t row, int64_t col, const void* delta,
                                   void* before);
MV_EXPORT int32_t MV_TableCompareSwap(MV_Table table, int64_t row, int64_t col,
                                      const void* expected, const void* desired, void* before);
/* Lists the rows that may have changed since a call that returned `since` as *version, or if
 * `since` is 0 all rows, of a table with an initializer those that have ever changed: ranges[2 * i]
 * to ranges[2 * i + 1] - 1 for i < *num_ranges, in ascending order. `ranges` has room for
 * `max_changes` ranges (MV_TableDescribe). The next call lists at least the rows that change after
 * this call. Versions are positive and increase. In sync mode the call counts and waits as a get.
 * Not for hash tables. */
MV_EXPORT int32_t MV_TableListChanges(MV_Table table, int64_t since, int64_t* ranges,
                                      int64_t* num_ranges, int64_t* version);
/* MV_OK if MV_TableSetHyper would accept the value; otherwise MV_ERR_VALUE with an explanation. */
MV_EXPORT int32_t MV_TableCheckHyper(MV_Table table, int32_t hyper, double value);
/* Changes a hyper-parameter (MV_HYPER_) of the table's updater for the next adds of all ranks. */
MV_EXPORT int32_t MV_TableSetHyper(MV_Table table, int32_t hyper, double value);

/* ---- Parameters of models ------------------------------------------------------------------- */
/* Synchronizes tensors that a program trains with a table that holds their elements, tensor after
 * tensor. The tensors have the type of the table's results and counts[i] >= 0 elements. `values`
 * are the common initial values: the result of a get on the table, to which the caller has set the
 * tensors. The values are copied. Not collective. The object outlives the table, and is freed
 * separately. */
MV_EXPORT int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                                     const void* values, MV_ParamSync* sync);
/* Multiplies the deltas of the next runs by a positive factor before they are added to the table,
 * of floating-point numbers: for example, by how much more than others this program has trained. */
MV_EXPORT int32_t MV_ParamSyncSetScale(MV_ParamSync sync, double scale);
/* Adds the delta of the tensors since the last sync, and sets them to the table's parameters. An
 * updater that takes gradients receives the negated delta; MV_UPDATER_EASGD receives the tensors,
 * which then move by elastic_force toward the table. The sync is one add and one get of the mode,
 * without further memory. If the table lies on this node and the mode is not MV_MODE_SYNC, the sync
 * is one pass over the memory. tensors[i] is the current address of tensor i; the tensors do not
 * overlap, and no other thread writes to them. Workers only. In MV_MODE_ASYNC and MV_MODE_STALE you
 * can repeat a call that failed or was aborted: the next call does the rest, and nothing is lost
 * or added twice. In MV_MODE_SYNC, and for a table on several nodes, no call can follow a failed
 * one (MV_ERR_STATE), and a failed call leaves the tensors unchanged. */
MV_EXPORT int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors);
/* Starts a sync as MV_ParamSyncRun makes it, in the background, as MV_TableStart starts an
 * operation. The tensors must stay valid, and unused, until the sync has ended. */
MV_EXPORT int32_t MV_ParamSyncStart(MV_ParamSync sync, void* const* tensors, int64_t num_tensors,
                                    MV_Future* future);
/* Not collective. The table is not freed. */
MV_EXPORT int32_t MV_ParamSyncFree(MV_ParamSync sync);
/* Adds the change of an array to values: out = base + scale * (current - before) for `count`
 * elements of MV_FLOAT32, MV_FLOAT64, MV_INT32 or MV_INT64. What was and is the same infinity, or
 * NaN, has not changed. If `pending` is null, sets `before` to `current` as it was; otherwise sets
 * *pending to 0, and leaves `before`. An exception between two calls of a program therefore finds
 * the change either added and noted, or neither. `out` may be `base` or `current`, and `base` may
 * be `before`; otherwise no arrays overlap. Needs no session. */
MV_EXPORT int32_t MV_AddChange(int32_t dtype, int64_t count, double scale, const void* base,
                               const void* current, void* before, void* out, int32_t* pending);

/* ---- Checkpoints ---------------------------------------------------------------------------- */
/* A checkpoint is a folder in a folder of checkpoints, which all ranks see under the same path.
 * docs/checkpoint-format.md describes its files. */
typedef struct MV_SaveOptions {
  int64_t struct_size;   /* sizeof(MV_SaveOptions), set by MV_SaveOptionsInit */
  const char* directory; /* of the checkpoints; created if missing; a path, not an address */
  int64_t step;          /* >= 0, counted by the caller; -1 for the last checkpoint's plus 1 */
  int64_t keep;          /* checkpoints to keep, including the new one; 0 for all */
  int32_t background;    /* not 0: written in the background, from a copy in memory */
  int32_t incremental;   /* not 0: an increment on this session's last save there, if possible */
} MV_SaveOptions;

/* Fills in the defaults: step -1, all checkpoints are kept, in the foreground. */
MV_EXPORT int32_t MV_SaveOptionsInit(MV_SaveOptions* options);
/* Collective over all ranks. Saves all tables that all ranks have, with their updaters' state,
 * hyper-parameters and clocks. The checkpoint contains every add before the call and none after it.
 * A failure on one rank fails the call on all. The next MV_SessionSave, MV_SessionSaveWait,
 * MV_SessionLoad or MV_SessionClose returns the failure of a save in the background. */
MV_EXPORT int32_t MV_SessionSave(MV_Session session, const MV_SaveOptions* options);
/* Collective. Waits until the save in the background is complete. */
MV_EXPORT int32_t MV_SessionSaveWait(MV_Session session);

/* A flag of loads: a missing checkpoint is not an error, and sets the step to -1. */
#define MV_MISSING_OK 1

/* Collective. Sets the tables, which must be the saved ones, to the contents of the checkpoint; any
 * number of ranks may have written it. `directory` is a checkpoint, or a folder of checkpoints,
 * whose last one is loaded. Nothing changes unless the whole checkpoint is intact. */
MV_EXPORT int32_t MV_SessionLoad(MV_Session session, const char* directory, int32_t flags,
                                 int64_t* step);
/* Save and load a single table. A checkpoint of one table is loaded whatever the table's name. */
MV_EXPORT int32_t MV_TableSave(MV_Table table, const MV_SaveOptions* options);
MV_EXPORT int32_t MV_TableLoad(MV_Table table, const char* directory, int32_t flags, int64_t* step);

/* Checkpoints can be read without a session. Calls of several threads on one checkpoint run one
 * after the other. */
typedef struct MV_CheckpointDescription {
  int64_t struct_size; /* set by the caller to sizeof(MV_CheckpointDescription) */
  int64_t number;      /* in the order of saving */
  int64_t step;
  int64_t created; /* seconds since 1970 UTC */
  int64_t num_tables;
  int64_t num_files; /* of data */
  int64_t num_workers;
  int64_t bytes;       /* of all files */
  int32_t mode;        /* MV_MODE_ */
  int32_t reserved;    /* 0 */
  const char* path;    /* this and `library` are valid until the checkpoint is closed */
  const char* library; /* the version of Multiverso that wrote it */
} MV_CheckpointDescription;

typedef struct MV_CheckpointTable {
  int64_t struct_size; /* set by the caller to sizeof(MV_CheckpointTable) */
  int32_t kind;        /* MV_TABLE_ */
  int32_t dtype;       /* MV_FLOAT32 ... */
  int64_t num_row;     /* of a hash table, the number of its keys */
  int64_t num_col;
  int32_t updater;              /* MV_UPDATER_ */
  int32_t slots;                /* of the updater's state, a value for each parameter */
  int32_t counting;             /* 0 no steps, 1 an int32 per row in MV_AREA_STEPS, 2 in `steps` */
  int32_t row_slots;            /* values of state per row in MV_AREA_ROW_STATE */
  int64_t steps;                /* updates of the table if counting is 2 */
  double hyper[MV_HYPER_COUNT]; /* by MV_HYPER_ */
  const char* name;             /* valid until the checkpoint is closed */
} MV_CheckpointTable;

/* The areas of the steps and of the state per row. Area 0 is the parameters, and 1 + k is state
 * slot k. */
#define MV_AREA_STEPS 65536
#define MV_AREA_ROW_STATE 65538
#define MV_AREA_KEYS 65539 /* 16 bytes per row: its key, and when it was used */

/* Opens the checkpoint that MV_SessionLoad would load. MV_ERR_CHECKPOINT_IO with ENOENT if it is
 * missing. Everything except the data is checked. */
MV_EXPORT int32_t MV_CheckpointOpen(const char* directory, MV_Checkpoint* checkpoint);
MV_EXPORT int32_t MV_CheckpointDescribe(MV_Checkpoint checkpoint,
                                        MV_CheckpointDescription* description);
MV_EXPORT int32_t MV_CheckpointDescribeTable(MV_Checkpoint checkpoint, int64_t table,
                                             MV_CheckpointTable* description);
/* Returns the number of adds of each of the `count` workers to a table. */
MV_EXPORT int32_t MV_CheckpointClocks(MV_Checkpoint checkpoint, int64_t table, int64_t* clocks,
                                      int64_t count);
/* Checks about `most_bytes` bytes of data, in whole blocks, from the end of the last call on.
 * `left` receives the number of unchecked bytes, rounded up to whole blocks: 0 at the end. */
MV_EXPORT int32_t MV_CheckpointVerify(MV_Checkpoint checkpoint, int64_t most_bytes, int64_t* left);
/* Reads an area of a table. `bytes` must be its size. */
MV_EXPORT int32_t MV_CheckpointRead(MV_Checkpoint checkpoint, int64_t table, int64_t area,
                                    void* out, int64_t bytes);
MV_EXPORT int32_t MV_CheckpointClose(MV_Checkpoint checkpoint);
/* Writes a checkpoint of these tables. `areas` holds, table after table, the addresses of the
 * parameters, of each state slot and, if there are any, of the steps and of the state per row. */
MV_EXPORT int32_t MV_CheckpointWrite(const MV_SaveOptions* options,
                                     const MV_CheckpointTable* tables, int64_t num_tables,
                                     const void* const* areas);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MULTIVERSO_C_API_H_ */
