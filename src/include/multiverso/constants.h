/* The numbers of the C API. The library itself uses them, too, and checkpoints contain some, so
 * they never change. */
#ifndef MULTIVERSO_CONSTANTS_H_
#define MULTIVERSO_CONSTANTS_H_

/* Increased when a function or a struct of c_api.h changes incompatibly. */
#define MV_ABI_VERSION 7

/* ---- Status codes. The numbers never change. ------------------------------------------------ */
#define MV_OK 0
#define MV_OUTDATED 1          /* of MV_ReaderRun only: begin again with the last version */
#define MV_ERR_VALUE (-1)      /* an argument has the wrong value, size or shape */
#define MV_ERR_TYPE (-2)       /* an argument has the wrong type */
#define MV_ERR_INDEX (-3)      /* a row id or another index is out of range; nothing was changed */
#define MV_ERR_MEMORY (-4)     /* not enough memory; the message says how much is missing */
#define MV_ERR_STATE (-5)      /* the call does not fit the state of the session or the role */
#define MV_ERR_HANDLE (-6)     /* the handle was never valid or has been closed */
#define MV_ERR_FORKED (-7)     /* the process was forked after the session was opened */
#define MV_ERR_MISMATCH (-8)   /* the ranks did not make the same call; the message names both */
#define MV_ERR_TIMEOUT (-9)    /* the deadline passed; the message names the late ranks */
#define MV_ERR_PEER_LOST (-10) /* a rank died or left; the message names it */
#define MV_ERR_ABORTED (-11)   /* its caller aborted the call, or a rank the session */
#define MV_ERR_TRANSPORT (-12) /* MPI reported an error */
#define MV_ERR_LAUNCHER (-13)  /* no MPI, two MPIs, or a launcher of another MPI */
#define MV_ERR_UNSUPPORTED (-14) /* this build or machine cannot; the message says what can */
#define MV_ERR_INTERNAL (-15)    /* a bug in Multiverso */
/* For these two, MV_LastErrorFile names the file: */
#define MV_ERR_CHECKPOINT_IO (-16)      /* a file could not be written or read */
#define MV_ERR_CHECKPOINT_CORRUPT (-17) /* a file is not what was written */

/* ---- Choices -------------------------------------------------------------------------------- */
#define MV_MODE_ASYNC 0 /* each worker goes at its own speed */
#define MV_MODE_SYNC 1  /* lock-step: a get after j adds sees exactly j adds of every worker */
#define MV_MODE_STALE 2 /* no worker runs more than `staleness` rounds ahead of the slowest */

#define MV_ROLE_ALL 0    /* worker and server */
#define MV_ROLE_WORKER 1 /* trains, keeps no shard */
#define MV_ROLE_SERVER 2 /* keeps a shard, does not train */

/* What happens when a rank dies, or leaves without closing. MV_LOSS_CONTINUES needs
 * MV_MODE_ASYNC and ranks of one node. */
#define MV_LOSS_FAILS 0     /* calls that need the rank get MV_ERR_PEER_LOST */
#define MV_LOSS_CONTINUES 1 /* collective calls continue without the rank */

/* What the ranks do when one of them was told to end, by SIGTERM. */
#define MV_TERM_ENDS 0   /* nothing together */
#define MV_TERM_LEAVES 1 /* leave together (MV_SessionAgreeToLeave), or each alone if elastic */

/* When a rank asks whether all leave. */
#define MV_AT_STEP 0    /* at the end of a step */
#define MV_AT_CLOSE 1   /* before it closes the session */
#define MV_AT_FAILURE 2 /* when its program has failed after it was told to end */

/* Whether this rank leaves. */
#define MV_LEAVE_NOT_NOW 0    /* no rank was told to end */
#define MV_LEAVE_NOW 1        /* all ranks save and close the session; if elastic, only this one */
#define MV_LEAVE_OTHER_CALL 2 /* a rank is in another collective call, or all close the session */
#define MV_LEAVE_LAST 3       /* if elastic: this worker leaves as the last one, after a save */

/* In place of milliseconds: a wait of any length, with lines in the log. */
#define MV_NO_LIMIT (-1)

#define MV_TRANSPORT_SINGLE 0 /* one rank, no MPI */
#define MV_TRANSPORT_MPI 1    /* the ranks of an MPI communicator */
#define MV_TRANSPORT_LOCAL 2  /* the ranks of a job on one machine, without MPI */

/* Launchers, by the variables in which they tell a process its rank. */
#define MV_LAUNCHER_MULTIVERSO 1 /* MULTIVERSO_JOB, _RANK and _SIZE, or MULTIVERSO_JOIN */
#define MV_LAUNCHER_MPI 2        /* those of mpirun or srun */
#define MV_LAUNCHER_TORCHRUN 4   /* TORCHELASTIC_RUN_ID, RANK, WORLD_SIZE */

#define MV_TABLE_ARRAY 0  /* num_row elements, num_col is 1 */
#define MV_TABLE_MATRIX 1 /* num_row rows of num_col elements */
#define MV_TABLE_HASH 2   /* a row for each key; num_row is ignored, an initializer needed */

#define MV_FLOAT32 0
#define MV_FLOAT64 1
#define MV_INT32 2
#define MV_INT64 3
/* A table of these types stores its parameters in 16 bits. Arithmetic, deltas, results and state
 * are float32, and an add rounds the new parameters stochastically. */
#define MV_FLOAT16 4
#define MV_BFLOAT16 5
/* Arrays of these types can be aggregated; no table has them. */
#define MV_INT8 6
#define MV_INT16 7
#define MV_UINT8 8
#define MV_BOOL 9 /* bytes that are 0 or 1 */

/* What MV_SessionAggregate makes of the arrays of all workers. As in NumPy, integers wrap around, a
 * minimum or maximum with a NaN is NaN, and the sum of bools is their "or". */
#define MV_OP_SUM 0
#define MV_OP_MEAN 1 /* of floats */
#define MV_OP_PRODUCT 2
#define MV_OP_MIN 3
#define MV_OP_MAX 4
#define MV_OP_AND 5 /* of the bits of integers and bools, like the next two */
#define MV_OP_OR 6
#define MV_OP_XOR 7

/* The calls of MV_SessionRun. Their arrays are 0, 1 or one for each worker, in worker order. */
#define MV_CALL_BARRIER 0
#define MV_CALL_AGGREGATE 1  /* MV_SessionAggregate of the received array, in place */
#define MV_CALL_BROADCAST 2  /* received is the array of the root, which others receive */
#define MV_CALL_ALL_GATHER 3 /* each worker sends an array to all, and receives one from each */
#define MV_CALL_ALL_TO_ALL 4 /* each worker sends an array to each, and receives one from each */
#define MV_CALL_REDUCE_SCATTER 5 /* an aggregate of the arrays that are sent to each worker */

/* What an add does to the parameters w with a delta d; docs/updaters.md has the formulas and the
 * hyper-parameters of each updater. Only MV_UPDATER_ADD is for MV_INT32 and MV_INT64, too. */
#define MV_UPDATER_ADD 0      /* w += d */
#define MV_UPDATER_SGD 1      /* w -= learning_rate * d; from here on d is a gradient */
#define MV_UPDATER_MOMENTUM 2 /* Polyak's momentum */
#define MV_UPDATER_NESTEROV 3 /* Nesterov's momentum */
#define MV_UPDATER_ADAGRAD 4
#define MV_UPDATER_RMSPROP 5
#define MV_UPDATER_ADADELTA 6
#define MV_UPDATER_ADAM 7     /* bias correction counts the updates of each row */
#define MV_UPDATER_EASGD 8    /* w += elastic_force * (d - w): d is the worker's parameters */
#define MV_UPDATER_DCASGD 9   /* sgd that compensates for the change of w since the worker's get */
#define MV_UPDATER_FTRL 10    /* the first update shrinks the initial w */
#define MV_UPDATER_DCASGDA 11 /* dcasgd with a strength that adapts to the gradients */
#define MV_UPDATER_ADAMW 12   /* adam with a weight decay */
#define MV_UPDATER_ROWWISE_ADAGRAD 13 /* for matrices; one number of state per row */
#define MV_UPDATER_ROWWISE_ADAM 14    /* for matrices; adam with one second moment per row */
#define MV_UPDATER_AMSGRAD 15         /* adam with the largest second moment so far */

/* Hyper-parameters of updaters: the index into MV_TableOptions.hyper. */
#define MV_HYPER_LEARNING_RATE 0             /* finite; at least 1e-37 for MV_UPDATER_FTRL */
#define MV_HYPER_MOMENTUM 1                  /* 0 to 1 */
#define MV_HYPER_RHO 2                       /* 0 to less than 1 */
#define MV_HYPER_EPSILON 3                   /* at least 1e-37 */
#define MV_HYPER_BETA_1 4                    /* 0 to less than 1 */
#define MV_HYPER_BETA_2 5                    /* 0 to less than 1 */
#define MV_HYPER_INITIAL_ACCUMULATOR_VALUE 6 /* at least 0 */
#define MV_HYPER_ELASTIC_FORCE 7             /* 0 to 1; of MV_UPDATER_EASGD only */
#define MV_HYPER_OUTER_EPSILON 7             /* at least 0; of updaters with an epsilon */
#define MV_HYPER_VARIANCE_CONTROL 8          /* at least 0; of MV_UPDATER_DCASGD and DCASGDA only */
#define MV_HYPER_CLIPNORM 8                  /* at least 0; 0 clips nothing; 0 in sync mode */
#define MV_HYPER_LEARNING_RATE_POWER 9       /* at most 0 */
#define MV_HYPER_L1_REGULARIZATION 10        /* at least 0 */
#define MV_HYPER_L2_REGULARIZATION 11        /* at least 0 */
#define MV_HYPER_L2_SHRINKAGE 12             /* at least 0 */
#define MV_HYPER_BETA 13                     /* at least 0 */
#define MV_HYPER_WEIGHT_DECAY 14             /* at least 0 */
#define MV_HYPER_CLIPVALUE 15                /* at least 0; 0 clips nothing */
#define MV_HYPER_COUNT 16

/* Initializers: the initial values of a row are a function of the seed, the row and the column, and
 * take memory when the row is first changed. docs/initializers.md has the functions. */
#define MV_INITIALIZER_NONE 0 /* init_value, or zeros; all rows may take memory */
#define MV_INITIALIZER_ZEROS 1
#define MV_INITIALIZER_CONSTANT 2         /* initializer_values[0] */
#define MV_INITIALIZER_UNIFORM 3          /* from initializer_values[0] to [1] */
#define MV_INITIALIZER_NORMAL 4           /* mean and standard deviation */
#define MV_INITIALIZER_TRUNCATED_NORMAL 5 /* the same, at most two standard deviations away */
#define MV_INITIALIZER_VALUES 2

/* Where the memory of a table is on a machine with several NUMA nodes. */
#define MV_NUMA_LOCAL 0      /* where the rank runs that touches a page first */
#define MV_NUMA_INTERLEAVE 1 /* the pages take turns */

/* How float32 values travel between nodes (docs/slow-links.md): sums and results of rounds, and in
 * the other modes deltas of the whole table or a part, and what MV_ParamSyncRun and "add_get"
 * return. */
#define MV_WIRE_FLOAT32 0  /* unchanged */
#define MV_WIRE_BFLOAT16 1 /* in half of the bytes */
#define MV_WIRE_INT8 2     /* in about a quarter; outside rounds, what is returned as bfloat16 */

/* Which key loses its row if a key needs one and a hash table is full. */
#define MV_EVICT_NONE 0 /* none: the call fails with MV_ERR_MEMORY and changes nothing */
#define MV_EVICT_LRU 1  /* of the keys in the same stripe, the one that was not used for longest */
#define MV_EVICT_LFU 2  /* the one that was used least often */
/* The numbers of MV_TableKeyCounts: keys with rows, and since the table was created: keys of gets
 * with and without a row, keys that got a row, keys of gets that were left without one, evictions
 * and removals. */
#define MV_KEY_COUNTS 7

#endif /* MULTIVERSO_CONSTANTS_H_ */
