/* Multiverso: the parameter server's C API. Every binding (Python, Lua, your own) goes through it.
 *
 * Conventions
 * - A function that can fail returns an int32_t status: MV_OK, MV_PENDING, or an MV_ERR_ code.
 *   Results come back through out pointers, which are written only on MV_OK.
 * - MV_LastError() explains the calling thread's last error, in words.
 * - Sizes, counts, row ids and milliseconds are int64_t; counts are elements, never bytes.
 * - Nothing exits, aborts, throws or installs a signal handler. A stale handle is a status.
 * - Waiting. With MV_SessionOptions.wait_slice_ms == 0 a call blocks until it is done or its
 *   deadline passes. With a positive slice, a call that has to wait longer than the slice returns
 *   MV_PENDING: its arguments must then stay valid, and the same thread calls MV_Wait() until it
 *   no longer returns MV_PENDING, or MV_Cancel(). A thread that has called MV_SetInterrupt blocks
 *   whatever the slice, and its function is called during the wait. Either keeps a binding
 *   responsive to signals without the library knowing about them.
 * - Every function may be called from any thread; collective calls of one session must be made in
 *   the same order on every rank, so one thread at a time makes them, and with MV_MODE_SYNC and
 *   MV_MODE_STALE one thread at a time calls a table: another gets MV_ERR_STATE.
 */
#ifndef MULTIVERSO_C_API_H_
#define MULTIVERSO_C_API_H_

#include <stdint.h>

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

/* Raised when a function or a struct below changes incompatibly. */
#define MV_ABI_VERSION 3

/* ---- Status codes. The numbers never change. ------------------------------------------------ */
#define MV_OK 0
#define MV_PENDING 1             /* not done yet: MV_Wait() goes on, MV_Cancel() gives up */
#define MV_ERR_VALUE (-1)        /* an argument has the wrong value, size or shape */
#define MV_ERR_TYPE (-2)         /* an argument has the wrong type */
#define MV_ERR_INDEX (-3)        /* a row id is out of range; nothing was changed */
#define MV_ERR_MEMORY (-4)       /* memory could not be had; the message says how much */
#define MV_ERR_STATE (-5)        /* the call does not fit the state of the session or the role */
#define MV_ERR_HANDLE (-6)       /* the handle was never valid or has been closed */
#define MV_ERR_FORKED (-7)       /* the process was forked after the session was opened */
#define MV_ERR_MISMATCH (-8)     /* the ranks did not make the same call; names both sides */
#define MV_ERR_TIMEOUT (-9)      /* the deadline passed; names who is late */
#define MV_ERR_PEER_LOST (-10)   /* a rank died or left; names it */
#define MV_ERR_ABORTED (-11)     /* another rank gave the session up; names it and its reason */
#define MV_ERR_TRANSPORT (-12)   /* MPI reported an error */
#define MV_ERR_LAUNCHER (-13)    /* no MPI, two MPIs, or a launcher of another MPI */
#define MV_ERR_UNSUPPORTED (-14) /* this build or machine cannot do it; says what can */
#define MV_ERR_INTERNAL (-15)    /* a bug in Multiverso */
/* With MV_LastErrorFile: */
#define MV_ERR_CHECKPOINT_IO (-16)      /* a file could not be written or read */
#define MV_ERR_CHECKPOINT_CORRUPT (-17) /* a file is not what was written */

/* ---- Choices -------------------------------------------------------------------------------- */
#define MV_MODE_ASYNC 0 /* each worker goes at its own speed */
#define MV_MODE_SYNC 1  /* lock-step: a get after j adds sees exactly j adds of every worker */
#define MV_MODE_STALE 2 /* no worker runs more than `staleness` rounds ahead of the slowest */

#define MV_ROLE_ALL 0    /* worker and server */
#define MV_ROLE_WORKER 1 /* trains, keeps no shard */
#define MV_ROLE_SERVER 2 /* keeps a shard, does not train */

/* When a rank dies, or leaves in the middle. To go on is for MV_MODE_ASYNC. */
#define MV_LOSS_FAILS 0     /* calls that need the rank get MV_ERR_PEER_LOST */
#define MV_LOSS_CONTINUES 1 /* meetings do without it */

#define MV_TRANSPORT_SINGLE 0 /* one rank, no MPI */
#define MV_TRANSPORT_MPI 1    /* the ranks of an MPI communicator */

#define MV_TABLE_ARRAY 0  /* num_row elements, num_col is 1 */
#define MV_TABLE_MATRIX 1 /* num_row rows of num_col elements */

#define MV_FLOAT32 0
#define MV_FLOAT64 1
#define MV_INT32 2
#define MV_INT64 3

/* What an add does with a delta d; docs/updaters.md has the formulas and which hyper-parameters
 * each has. All but MV_UPDATER_ADD are for MV_FLOAT32 and MV_FLOAT64. */
#define MV_UPDATER_ADD 0      /* w += d */
#define MV_UPDATER_SGD 1      /* w -= learning_rate * d; from here on d is a gradient */
#define MV_UPDATER_MOMENTUM 2 /* Polyak's momentum */
#define MV_UPDATER_NESTEROV 3 /* Nesterov's momentum */
#define MV_UPDATER_ADAGRAD 4
#define MV_UPDATER_RMSPROP 5
#define MV_UPDATER_ADADELTA 6
#define MV_UPDATER_ADAM 7   /* bias correction counts the updates of each row */
#define MV_UPDATER_EASGD 8  /* w += elastic_force * (d - w): d is the worker's parameters */
#define MV_UPDATER_DCASGD 9 /* sgd that makes up for what w has changed since the worker's get */

/* Hyper-parameters of updaters: the index into MV_TableOptions.hyper. */
#define MV_HYPER_LEARNING_RATE 0             /* finite */
#define MV_HYPER_MOMENTUM 1                  /* 0 to 1 */
#define MV_HYPER_RHO 2                       /* 0 to less than 1 */
#define MV_HYPER_EPSILON 3                   /* at least 1e-37 */
#define MV_HYPER_BETA_1 4                    /* 0 to less than 1 */
#define MV_HYPER_BETA_2 5                    /* 0 to less than 1 */
#define MV_HYPER_INITIAL_ACCUMULATOR_VALUE 6 /* at least 0 */
#define MV_HYPER_ELASTIC_FORCE 7             /* 0 to 1 */
#define MV_HYPER_VARIANCE_CONTROL 8          /* at least 0 */
#define MV_HYPER_COUNT 16

/* ---- Handles: distinct types, so that the compiler tells them apart ------------------------- */
typedef struct MV_SessionHandle_* MV_Session;
typedef struct MV_TableHandle_* MV_Table;
typedef struct MV_ParamSyncHandle_* MV_ParamSync;
typedef struct MV_CheckpointHandle_* MV_Checkpoint;

/* ---- The library itself --------------------------------------------------------------------- */
MV_EXPORT int32_t MV_AbiVersion(void);
MV_EXPORT const char* MV_VersionString(void);
/* A JSON object: version, abi, compiler, build type, vector kernels in use. Static storage. */
MV_EXPORT const char* MV_BuildInfo(void);
/* "MV_ERR_VALUE" for MV_ERR_VALUE, and so on; "unknown" otherwise. Static storage. */
MV_EXPORT const char* MV_StatusName(int32_t status);
/* What went wrong in the calling thread's last failing call. Valid until its next call. */
MV_EXPORT const char* MV_LastError(void);

typedef struct MV_FileError {
  int64_t struct_size;  /* set by the caller to sizeof(MV_FileError) */
  int32_t error_number; /* errno, or 0 */
  int32_t reserved;
  int64_t position; /* bytes of the file written before, or where in it the fault is */
  const char* path; /* NULL if that error is about no file. Valid until the thread's next call */
} MV_FileError;

/* Which file the calling thread's last failing call was about. */
MV_EXPORT int32_t MV_LastErrorFile(MV_FileError* error);

typedef struct MV_PeerError {
  int64_t struct_size; /* set by the caller to sizeof(MV_PeerError) */
  int32_t rank;        /* the first, if there are several; -1 if that error is about no rank */
  int32_t reserved;
  double silent_for; /* seconds since its last sign of life; negative if that is not known */
  /* NULL where that is not known, or there is none. Valid until the thread's next call: */
  const char* host;       /* that it is on */
  const char* last_call;  /* what it did last, and when */
  const char* table;      /* of the call that failed here */
  const char* checkpoint; /* the path of the one that the session completed last */
} MV_PeerError;

/* Which other rank the calling thread's last failing call was about: with MV_ERR_PEER_LOST who was
 * lost, with MV_ERR_TIMEOUT who is late, with MV_ERR_ABORTED who gave the session up. */
MV_EXPORT int32_t MV_LastErrorPeer(MV_PeerError* error);

/* ---- Waiting -------------------------------------------------------------------------------- */
/* Goes on with the calling thread's pending call for one more slice. MV_ERR_STATE without one. */
MV_EXPORT int32_t MV_Wait(void);
/* Gives the calling thread's pending call up. If other ranks take part in it, the session is
 * aborted with this reason, since they can no longer complete it. No-op without a pending call. */
MV_EXPORT int32_t MV_Cancel(const char* reason);
/* Called about every 20 ms by a thread that waits in a call. NULL: the call continues. Otherwise
 * the call is given up for this reason, as by MV_Cancel, and returns MV_ERR_ABORTED; the text must
 * stay valid until then. Calls that it makes on sessions and tables fail with MV_ERR_STATE. */
typedef const char* (*MV_InterruptCheck)(void* argument);
/* Sets the function that the calling thread's later waits call; NULL for none, the default. */
MV_EXPORT int32_t MV_SetInterrupt(MV_InterruptCheck check, void* argument);

/* ---- Sessions ------------------------------------------------------------------------------- */
typedef struct MV_SessionOptions {
  int64_t struct_size;     /* sizeof(MV_SessionOptions), set by MV_SessionOptionsInit */
  int32_t mode;            /* MV_MODE_ */
  int32_t role;            /* MV_ROLE_, of this rank */
  int32_t transport;       /* MV_TRANSPORT_ */
  int32_t on_loss;         /* MV_LOSS_ */
  int64_t staleness;       /* of MV_MODE_STALE: rounds, >= 1 (0 would be MV_MODE_SYNC) */
  int64_t timeout_ms;      /* deadline of any single call; default 120 000 */
  int64_t wait_slice_ms;   /* see "Waiting" above; default 0 */
  const void* mpi_comm;    /* address of an MPI_Comm, or NULL for MPI_COMM_WORLD */
  const char* mpi_path;    /* libmpi to open if the process holds none yet, or NULL to search */
  int64_t peer_timeout_ms; /* how long a rank may give no sign of life; default 30 000 */
} MV_SessionOptions;

typedef struct MV_SessionDescription {
  int64_t struct_size; /* set by the caller to sizeof(MV_SessionDescription) */
  int64_t rank;        /* in the communicator */
  int64_t size;        /* ranks of the session */
  int64_t worker_id;   /* dense, in rank order; -1 if this rank is no worker */
  int64_t server_id;   /* dense, in rank order; -1 if this rank is no server */
  int64_t num_workers;
  int64_t num_servers;
  int64_t master_rank; /* the rank of the first worker that is there, whose initial values count */
  int64_t node;        /* dense number of this rank's node */
  int64_t num_nodes;
  int64_t local_rank; /* of this rank among the ranks of its node */
  int64_t local_size;
} MV_SessionDescription;

/* Fills in the defaults: async, role all, single transport, 120 s, blocking waits. */
MV_EXPORT int32_t MV_SessionOptionsInit(MV_SessionOptions* options);
/* Collective. Versions, modes and timeouts of the ranks are compared (MV_ERR_MISMATCH). */
MV_EXPORT int32_t MV_SessionOpen(const MV_SessionOptions* options, MV_Session* session);
MV_EXPORT int32_t MV_SessionDescribe(MV_Session session, MV_SessionDescription* description);
/* Not collective. The ranks that have died or left, in order, where the session goes on without
 * them; up to `room` of them are written. */
MV_EXPORT int32_t MV_SessionLost(MV_Session session, int64_t* ranks, int64_t room, int64_t* count);
/* 1 if a session of this process has ended that went on without a rank, else 0. MPI_Finalize may
 * wait for that rank for ever: the process is better ended without it. */
MV_EXPORT int32_t MV_HasLostRanks(void);
/* Collective, a fence: every add called by any rank before it is seen by every get after it. */
MV_EXPORT int32_t MV_SessionBarrier(MV_Session session);
/* Collective over the workers. Sums `count` elements of every worker in place: all get the same
 * bits, summed in worker order. */
MV_EXPORT int32_t MV_SessionAggregate(MV_Session session, int32_t dtype, void* data, int64_t count);
/* Not collective. This worker joins no further rounds of MV_MODE_SYNC and MV_MODE_STALE; those of
 * the others go on without it. It may still get, which gives the state after the last complete
 * round, and must still close the session. */
MV_EXPORT int32_t MV_SessionFinish(MV_Session session);
/* Collective. Waits for the other ranks to close, frees all tables and the session. The handle is
 * stale afterwards, whatever the status (but MV_PENDING). */
MV_EXPORT int32_t MV_SessionClose(MV_Session session);
/* Not collective, returns at once: this rank leaves. Ranks that wait for it get MV_ERR_PEER_LOST
 * with the reason. Frees all tables and the session. */
MV_EXPORT int32_t MV_SessionLeave(MV_Session session, const char* reason);

/* ---- Looking at jobs from outside ------------------------------------------------------------ */
/* What the ranks of a node do, as a JSON object that fills `length` characters of `json`, without
 * disturbing them. `path` is a descriptor of one of their processes, /proc/PID/fd/N, for what is in
 * memory has no other name. MV_ERR_UNSUPPORTED if that is no node of this version of Multiverso.
 * Nothing is written if there is too little room. */
MV_EXPORT int32_t MV_NodeDescribe(const char* path, char* json, int64_t room, int64_t* length);

/* ---- Tables --------------------------------------------------------------------------------- */
typedef struct MV_TableOptions {
  int64_t struct_size;          /* sizeof(MV_TableOptions), set by MV_TableOptionsInit */
  int32_t kind;                 /* MV_TABLE_ */
  int32_t dtype;                /* MV_FLOAT32 ... */
  int64_t num_row;              /* >= 1 */
  int64_t num_col;              /* >= 1; 1 for an array */
  int32_t updater;              /* MV_UPDATER_ */
  int32_t reserved;             /* 0 */
  double hyper[MV_HYPER_COUNT]; /* by MV_HYPER_; those the updater does not have do not count */
  const char* name;             /* for messages; NULL for "table N" */
  const void* init_value;       /* num_row * num_col elements, or NULL for zeros. Read on the
                                   master only, so other ranks may pass NULL. */
} MV_TableOptions;

typedef struct MV_TableDescription {
  int64_t struct_size; /* set by the caller to sizeof(MV_TableDescription) */
  int32_t kind;
  int32_t dtype;
  int64_t num_row;
  int64_t num_col;
  int32_t updater;
  int32_t reserved;
  double hyper[MV_HYPER_COUNT]; /* as they are now */
  int64_t id;                   /* 0 for the first table of the session */
  int64_t bytes;                /* of the parameters alone */
} MV_TableDescription;

/* Fills in the defaults: a float32 array of 0 rows (to be set), add; a learning rate of 0.01, for
 * who sets the updater to MV_UPDATER_SGD. */
MV_EXPORT int32_t MV_TableOptionsInit(MV_TableOptions* options);
/* Sets the updater, and hyper to its defaults. */
MV_EXPORT int32_t MV_TableOptionsSetUpdater(MV_TableOptions* options, int32_t updater);
/* Collective. When it returns MV_OK on any rank, the master's initial value is in force. On any
 * other status no rank has the table and the session stays usable. */
MV_EXPORT int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options,
                                 MV_Table* table);
MV_EXPORT int32_t MV_TableDescribe(MV_Table table, MV_TableDescription* description);
/* Releases this rank's hold. The memory goes when every rank has released it. Not collective. */
MV_EXPORT int32_t MV_TableFree(MV_Table table);

/* Flags of get. MV_COLLECTIVE: all workers call it and get the same bits, with every add before
 * the call in and none after it. In MV_MODE_SYNC every get is like that. */
#define MV_COLLECTIVE 1

/* The whole table, row by row. `count` must be num_row * num_col. Workers only. */
MV_EXPORT int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags);
MV_EXPORT int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count);
/* Adds and reads back in one pass over the memory. `delta` and `out` may be the same. */
MV_EXPORT int32_t MV_TableAddGet(MV_Table table, const void* delta, void* out, int64_t count);
/* Rows of a matrix by id, in the order given; `count` must be num_ids * num_col. All ids are
 * checked before anything moves. Duplicates: get returns the row each time; add adds each, an
 * updater that is not linear gets their sum, and MV_UPDATER_EASGD refuses them (MV_ERR_VALUE). */
MV_EXPORT int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                                  void* out, int64_t count, int32_t flags);
MV_EXPORT int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                                  const void* delta, int64_t count);
/* MV_OK if MV_TableSetHyper would take it; else MV_ERR_VALUE, and the words for it. */
MV_EXPORT int32_t MV_TableCheckHyper(MV_Table table, int32_t hyper, double value);
/* Changes a hyper-parameter (MV_HYPER_) of the table's updater for all ranks, from the next add
 * on. */
MV_EXPORT int32_t MV_TableSetHyper(MV_Table table, int32_t hyper, double value);

/* ---- Parameters of models ------------------------------------------------------------------- */
/* Keeps tensors that a program trains in step with a table that has one element for each of
 * theirs, tensor after tensor. The tensors are of the table's dtype and of counts[i] >= 0 elements.
 * `values` are what both have at first: what a get on the table gave and what the caller has set
 * the tensors to. They are copied. Not collective. Outlives the table, and is freed on its own. */
MV_EXPORT int32_t MV_ParamSyncCreate(MV_Table table, const int64_t* counts, int64_t num_tensors,
                                     const void* values, MV_ParamSync* sync);
/* Adds what the tensors have gained since they were last equal to the table, and sets them to the
 * table's parameters. A table whose updater takes gradients gets what they have lost instead; one
 * of MV_UPDATER_EASGD gets the tensors, which then move by elastic_force towards the table. It is
 * one add and one get of the mode, without further memory, and where the table
 * lies on this node and the mode is not MV_MODE_SYNC, in one pass over the memory. tensors[i] is
 * where tensor i is now; no two overlap, and nobody else writes to them meanwhile. Workers only. In
 * MV_MODE_ASYNC and MV_MODE_STALE what a call has done when it fails or is given up is whole: the
 * next call does the rest, and nothing is lost or added twice. In MV_MODE_SYNC, and for a table on
 * several nodes, no call can follow one that fails (MV_ERR_STATE), and the tensors are as they
 * were. */
MV_EXPORT int32_t MV_ParamSyncRun(MV_ParamSync sync, void* const* tensors, int64_t num_tensors);
/* Not collective. The table stays. */
MV_EXPORT int32_t MV_ParamSyncFree(MV_ParamSync sync);

/* ---- Checkpoints ---------------------------------------------------------------------------- */
/* A checkpoint is a folder in a folder of checkpoints. docs/checkpoint-format.md says what is in
 * it. All ranks see the same folder under the same path. */
typedef struct MV_SaveOptions {
  int64_t struct_size;   /* sizeof(MV_SaveOptions), set by MV_SaveOptionsInit */
  const char* directory; /* of the checkpoints; made if it is not there */
  int64_t step;          /* >= 0, whatever the caller counts; -1 for the one after the last */
  int64_t keep;          /* checkpoints to keep, the new one among them; 0 for all */
  int32_t background;    /* not 0: written behind, from a copy in memory */
  int32_t reserved;      /* 0 */
} MV_SaveOptions;

/* Fills in the defaults: step -1, all are kept, in the foreground. */
MV_EXPORT int32_t MV_SaveOptionsInit(MV_SaveOptions* options);
/* Collective over all ranks. Saves all tables that all ranks have, their updaters' state,
 * hyper-parameters and clocks, in one state: with every add before the call, and none after it.
 * What fails on one rank fails on all. In the background, the failure is that of the next
 * MV_SessionSave, MV_SessionSaveWait, MV_SessionLoad or MV_SessionClose. */
MV_EXPORT int32_t MV_SessionSave(MV_Session session, const MV_SaveOptions* options);
/* Collective: until the save in the background is complete. */
MV_EXPORT int32_t MV_SessionSaveWait(MV_Session session);

/* Flag of load: that there is no checkpoint is no error; the step is -1 then. */
#define MV_MISSING_OK 1

/* Collective. Sets the tables, which must be those that were saved, to what the checkpoint holds,
 * whatever number of ranks wrote it. `directory` is a checkpoint, or a folder of them, of which the
 * one saved last is taken. Nothing changes unless all of it is whole. */
MV_EXPORT int32_t MV_SessionLoad(MV_Session session, const char* directory, int32_t flags,
                                 int64_t* step);
/* The same with one table alone. A checkpoint of one table is loaded whatever its name. */
MV_EXPORT int32_t MV_TableSave(MV_Table table, const MV_SaveOptions* options);
MV_EXPORT int32_t MV_TableLoad(MV_Table table, const char* directory, int32_t flags, int64_t* step);

/* Without a session: reading a checkpoint, by one thread at a time. */
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
  const char* path;    /* these are valid until the checkpoint is closed */
  const char* library; /* the version that wrote it */
} MV_CheckpointDescription;

typedef struct MV_CheckpointTable {
  int64_t struct_size; /* set by the caller to sizeof(MV_CheckpointTable) */
  int32_t kind;        /* MV_TABLE_ */
  int32_t dtype;       /* MV_FLOAT32 ... */
  int64_t num_row;
  int64_t num_col;
  int32_t updater;              /* MV_UPDATER_ */
  int32_t slots;                /* of the updater's state, each of the table's size */
  int32_t counting;             /* 0 no steps, 1 an int32 per row in MV_AREA_STEPS, 2 in `steps` */
  int32_t reserved;             /* 0 */
  int64_t steps;                /* updates of the table, if counting is 2 */
  double hyper[MV_HYPER_COUNT]; /* by MV_HYPER_ */
  const char* name;             /* valid until the checkpoint is closed */
} MV_CheckpointTable;

/* Areas of a table: 0 for the parameters, 1 + k for state slot k, and this for steps. */
#define MV_AREA_STEPS 65536

/* As MV_SessionLoad finds it. MV_ERR_CHECKPOINT_IO with ENOENT if there is none. All is checked but
 * the data. */
MV_EXPORT int32_t MV_CheckpointOpen(const char* directory, MV_Checkpoint* checkpoint);
MV_EXPORT int32_t MV_CheckpointDescribe(MV_Checkpoint checkpoint,
                                        MV_CheckpointDescription* description);
MV_EXPORT int32_t MV_CheckpointDescribeTable(MV_Checkpoint checkpoint, int64_t table,
                                             MV_CheckpointTable* description);
/* The adds of each of the `count` workers. */
MV_EXPORT int32_t MV_CheckpointClocks(MV_Checkpoint checkpoint, int64_t table, int64_t* clocks,
                                      int64_t count);
/* Checks up to `most_bytes` bytes of data, from where the last call ended. `left` receives how many
 * there are still to check. */
MV_EXPORT int32_t MV_CheckpointVerify(MV_Checkpoint checkpoint, int64_t most_bytes, int64_t* left);
/* An area of a table; `bytes` is its size. */
MV_EXPORT int32_t MV_CheckpointRead(MV_Checkpoint checkpoint, int64_t table, int64_t area,
                                    void* out, int64_t bytes);
MV_EXPORT int32_t MV_CheckpointClose(MV_Checkpoint checkpoint);
/* Writes a checkpoint of these tables. `areas` holds, table after table, where the parameters, each
 * state slot and, if counting is 1, the steps are. */
MV_EXPORT int32_t MV_CheckpointWrite(const MV_SaveOptions* options,
                                     const MV_CheckpointTable* tables, int64_t num_tables,
                                     const void* const* areas);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MULTIVERSO_C_API_H_ */
