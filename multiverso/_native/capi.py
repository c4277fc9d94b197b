"""The constants, structs and functions of ``c_api.h`` for ctypes.

They have the names of the header, and a test compares each of them with the header.
"""

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import Any, Final

MV_ABI_VERSION: Final = 7

MV_OK: Final = 0
MV_OUTDATED: Final = 1
MV_ERR_VALUE: Final = -1
MV_ERR_TYPE: Final = -2
MV_ERR_INDEX: Final = -3
MV_ERR_MEMORY: Final = -4
MV_ERR_STATE: Final = -5
MV_ERR_HANDLE: Final = -6
MV_ERR_FORKED: Final = -7
MV_ERR_MISMATCH: Final = -8
MV_ERR_TIMEOUT: Final = -9
MV_ERR_PEER_LOST: Final = -10
MV_ERR_ABORTED: Final = -11
MV_ERR_TRANSPORT: Final = -12
MV_ERR_LAUNCHER: Final = -13
MV_ERR_UNSUPPORTED: Final = -14
MV_ERR_INTERNAL: Final = -15
MV_ERR_CHECKPOINT_IO: Final = -16
MV_ERR_CHECKPOINT_CORRUPT: Final = -17

MV_MODE_ASYNC: Final = 0
MV_MODE_SYNC: Final = 1
MV_MODE_STALE: Final = 2

MV_ROLE_ALL: Final = 0
MV_ROLE_WORKER: Final = 1
MV_ROLE_SERVER: Final = 2

MV_LOSS_FAILS: Final = 0
MV_LOSS_CONTINUES: Final = 1
MV_TERM_ENDS: Final = 0
MV_TERM_LEAVES: Final = 1
MV_AT_STEP: Final = 0
MV_AT_CLOSE: Final = 1
MV_AT_FAILURE: Final = 2
MV_LEAVE_NOT_NOW: Final = 0
MV_LEAVE_NOW: Final = 1
MV_LEAVE_OTHER_CALL: Final = 2
MV_LEAVE_LAST: Final = 3

MV_NO_LIMIT: Final = -1
MV_TRANSPORT_SINGLE: Final = 0
MV_TRANSPORT_MPI: Final = 1
MV_TRANSPORT_LOCAL: Final = 2

MV_LAUNCHER_MULTIVERSO: Final = 1
MV_LAUNCHER_MPI: Final = 2
MV_LAUNCHER_TORCHRUN: Final = 4

MV_TABLE_ARRAY: Final = 0
MV_TABLE_MATRIX: Final = 1
MV_TABLE_HASH: Final = 2

MV_FLOAT32: Final = 0
MV_FLOAT64: Final = 1
MV_INT32: Final = 2
MV_INT64: Final = 3
MV_FLOAT16: Final = 4
MV_BFLOAT16: Final = 5
MV_INT8: Final = 6
MV_INT16: Final = 7
MV_UINT8: Final = 8
MV_BOOL: Final = 9
MV_OP_SUM: Final = 0
MV_OP_MEAN: Final = 1
MV_OP_PRODUCT: Final = 2
MV_OP_MIN: Final = 3
MV_OP_MAX: Final = 4
MV_OP_AND: Final = 5
MV_OP_OR: Final = 6
MV_OP_XOR: Final = 7
MV_CALL_BARRIER: Final = 0
MV_CALL_AGGREGATE: Final = 1
MV_CALL_BROADCAST: Final = 2
MV_CALL_ALL_GATHER: Final = 3
MV_CALL_ALL_TO_ALL: Final = 4
MV_CALL_REDUCE_SCATTER: Final = 5

MV_UPDATER_ADD: Final = 0
MV_UPDATER_SGD: Final = 1
MV_UPDATER_MOMENTUM: Final = 2
MV_UPDATER_NESTEROV: Final = 3
MV_UPDATER_ADAGRAD: Final = 4
MV_UPDATER_RMSPROP: Final = 5
MV_UPDATER_ADADELTA: Final = 6
MV_UPDATER_ADAM: Final = 7
MV_UPDATER_EASGD: Final = 8
MV_UPDATER_DCASGD: Final = 9
MV_UPDATER_FTRL: Final = 10
MV_UPDATER_DCASGDA: Final = 11
MV_UPDATER_ADAMW: Final = 12
MV_UPDATER_ROWWISE_ADAGRAD: Final = 13
MV_UPDATER_ROWWISE_ADAM: Final = 14
MV_UPDATER_AMSGRAD: Final = 15

MV_HYPER_LEARNING_RATE: Final = 0
MV_HYPER_MOMENTUM: Final = 1
MV_HYPER_RHO: Final = 2
MV_HYPER_EPSILON: Final = 3
MV_HYPER_BETA_1: Final = 4
MV_HYPER_BETA_2: Final = 5
MV_HYPER_INITIAL_ACCUMULATOR_VALUE: Final = 6
MV_HYPER_ELASTIC_FORCE: Final = 7
MV_HYPER_OUTER_EPSILON: Final = 7
MV_HYPER_VARIANCE_CONTROL: Final = 8
MV_HYPER_CLIPNORM: Final = 8
MV_HYPER_LEARNING_RATE_POWER: Final = 9
MV_HYPER_L1_REGULARIZATION: Final = 10
MV_HYPER_L2_REGULARIZATION: Final = 11
MV_HYPER_L2_SHRINKAGE: Final = 12
MV_HYPER_BETA: Final = 13
MV_HYPER_WEIGHT_DECAY: Final = 14
MV_HYPER_CLIPVALUE: Final = 15
MV_HYPER_COUNT: Final = 16

MV_INITIALIZER_NONE: Final = 0
MV_INITIALIZER_ZEROS: Final = 1
MV_INITIALIZER_CONSTANT: Final = 2
MV_INITIALIZER_UNIFORM: Final = 3
MV_INITIALIZER_NORMAL: Final = 4
MV_INITIALIZER_TRUNCATED_NORMAL: Final = 5
MV_INITIALIZER_VALUES: Final = 2

MV_NUMA_LOCAL: Final = 0
MV_NUMA_INTERLEAVE: Final = 1

MV_WIRE_FLOAT32: Final = 0
MV_WIRE_BFLOAT16: Final = 1
MV_WIRE_INT8: Final = 2
MV_EVICT_NONE: Final = 0
MV_EVICT_LRU: Final = 1
MV_EVICT_LFU: Final = 2
MV_KEY_COUNTS: Final = 7
#: The names of these counts in Python.
KEY_COUNTS: Final = (
    "keys",
    "hits",
    "misses",
    "admissions",
    "rejections",
    "evictions",
    "removals",
)

MV_COLLECTIVE: Final = 1
MV_PEEK: Final = 2
MV_MISSING_OK: Final = 1
MV_AREA_STEPS: Final = 65536
MV_AREA_ROW_STATE: Final = 65538
MV_AREA_KEYS: Final = 65539


class MV_Session(c_void_p):
    """Handle of a session, in a type of its own so that ctypes rejects the handle of a table."""


class MV_Table(c_void_p):
    """Handle of a table. The end of this object releases the table, as for the handles below."""


class MV_Memory(c_void_p):
    """Handle that keeps the memory of a table."""


class MV_Future(c_void_p):
    """Handle of a call in the background."""


class MV_ParamSync(c_void_p):
    """Handle of the native state that syncs a model's parameters with a table."""


class MV_Reader(c_void_p):
    """A reader of another process's session."""


class MV_Checkpoint(c_void_p):
    """Handle of a checkpoint that is open for reading."""


#: The callback takes a pointer and returns the address of a text, or None. As the result type of a
#: callback, c_char_p would leak memory.
MV_InterruptCheck: Final = CFUNCTYPE(c_void_p, c_void_p)


class MV_FileError(Structure):
    """The file that an error is about."""

    _fields_ = (
        ("struct_size", c_int64),
        ("error_number", c_int32),
        ("reserved", c_int32),
        ("position", c_int64),
        ("path", c_char_p),
    )


class MV_PeerError(Structure):
    """The other rank that an error is about."""

    _fields_ = (
        ("struct_size", c_int64),
        ("rank", c_int32),
        ("reserved", c_int32),
        ("silent_for", c_double),
        ("host", c_char_p),
        ("last_call", c_char_p),
        ("table", c_char_p),
        ("checkpoint", c_char_p),
    )


class MV_SaveOptions(Structure):
    """Options of a save."""

    _fields_ = (
        ("struct_size", c_int64),
        ("directory", c_char_p),
        ("step", c_int64),
        ("keep", c_int64),
        ("background", c_int32),
        ("incremental", c_int32),
    )


class MV_CheckpointDescription(Structure):
    """Description of a checkpoint."""

    _fields_ = (
        ("struct_size", c_int64),
        ("number", c_int64),
        ("step", c_int64),
        ("created", c_int64),
        ("num_tables", c_int64),
        ("num_files", c_int64),
        ("num_workers", c_int64),
        ("bytes", c_int64),
        ("mode", c_int32),
        ("reserved", c_int32),
        ("path", c_char_p),
        ("library", c_char_p),
    )


class MV_CheckpointTable(Structure):
    """Description of a table in a checkpoint."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("slots", c_int32),
        ("counting", c_int32),
        ("row_slots", c_int32),
        ("steps", c_int64),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("name", c_char_p),
    )


class MV_CollectiveCall(Structure):
    """A call of `MV_SessionRun`."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("op", c_int32),
        ("dtype", c_int32),
        ("root", c_int32),
        ("sent", POINTER(c_void_p)),
        ("sent_counts", c_void_p),
        ("received", c_void_p),
        ("received_counts", c_void_p),
    )


class MV_SessionOptions(Structure):
    """Options of a session."""

    _fields_ = (
        ("struct_size", c_int64),
        ("mode", c_int32),
        ("role", c_int32),
        ("transport", c_int32),
        ("on_loss", c_int32),
        ("staleness", c_int64),
        ("timeout_ms", c_int64),
        ("mpi_comm", c_void_p),
        ("mpi_path", c_char_p),
        ("peer_timeout_ms", c_int64),
        ("job_name", c_char_p),
        ("job_rank", c_int32),
        ("job_size", c_int32),
        ("name", c_char_p),
        ("elastic", c_int32),
        ("max_workers", c_int32),
        ("join", c_char_p),
        ("on_term", c_int32),
        ("saves_at_end", c_int32),
        ("start_timeout_ms", c_int64),
    )


class MV_SessionDescription(Structure):
    """Description of a rank in its session."""

    _fields_ = (
        ("struct_size", c_int64),
        ("rank", c_int64),
        ("size", c_int64),
        ("worker_id", c_int64),
        ("server_id", c_int64),
        ("num_workers", c_int64),
        ("num_servers", c_int64),
        ("master_rank", c_int64),
        ("node", c_int64),
        ("num_nodes", c_int64),
        ("local_rank", c_int64),
        ("local_size", c_int64),
    )


class MV_TableOptions(Structure):
    """Options of a table."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("wire", c_int32),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("name", c_char_p),
        ("init_value", c_void_p),
        ("initializer", c_int32),
        ("numa", c_int32),
        ("seed", c_int64),
        ("initializer_values", c_double * MV_INITIALIZER_VALUES),
        ("max_bytes", c_int64),
        ("capacity", c_int64),
        ("evict", c_int32),
        ("admit", c_int32),
        ("backing", c_char_p),
    )


class MV_TableDescription(Structure):
    """Description of a table."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("is_reopened", c_int32),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("id", c_int64),
        ("bytes", c_int64),
        ("max_changes", c_int64),
    )


_INT32: Final = POINTER(c_int32)
_INT64: Final = POINTER(c_int64)
#: The types of the arguments of each function.
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "MV_AbiVersion": (),
    "MV_VersionString": (),
    "MV_BuildInfo": (),
    "MV_Supported": (),
    "MV_CheckIsFree": (c_int64, c_char_p),
    "MV_StatusName": (c_int32,),
    "MV_LastError": (),
    "MV_SetInterrupt": (MV_InterruptCheck, c_void_p),
    "MV_SetDefaultInterrupt": (MV_InterruptCheck, c_void_p),
    "MV_CheckLuaHook": (c_void_p,),
    "MV_ExitDeadlineBegin": (c_char_p, c_int64),
    "MV_ExitDeadlineEnd": (),
    "MV_ExitMeet": (c_int64,),
    "MV_SessionOptionsInit": (POINTER(MV_SessionOptions),),
    "MV_SessionOpen": (POINTER(MV_SessionOptions), POINTER(MV_Session)),
    "MV_SessionDescribe": (MV_Session, POINTER(MV_SessionDescription)),
    "MV_NoteLoss": (c_int64, c_int32),
    "MV_FindSessions": (c_int64, c_char_p, c_int64, _INT64),
    "MV_NodeDescribe": (c_char_p, c_char_p, c_int64, _INT64),
    "MV_SessionStats": (MV_Session, c_char_p, c_int64, _INT64),
    "MV_ReaderOpen": (c_char_p, c_int64, POINTER(MV_Reader)),
    "MV_ReaderDescribe": (MV_Reader, c_char_p, c_int64, _INT64),
    "MV_ReaderRun": (MV_Reader, c_int64, c_int64, c_char_p, c_void_p, c_int64, c_void_p, c_int64),
    "MV_ReaderWait": (MV_Reader, c_int64, c_int64, _INT64, _INT64),
    "MV_ReaderClose": (MV_Reader,),
    "MV_ReaderCompare": (
        *(MV_Reader, c_int64, c_int64, c_int32, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_void_p, _INT64),
    ),
    "MV_ReaderPin": (MV_Reader, c_int64),
    "MV_ReaderUnpin": (MV_Reader, c_int64),
    "MV_ReaderMemory": (MV_Reader, c_int64, c_int64, POINTER(c_void_p), POINTER(MV_Memory)),
    "MV_RoundToBfloat16": (c_void_p, c_void_p, c_int64),
    "MV_ClaimRank": (c_int32, _INT32),
    "MV_HasLostRanks": (),
    "MV_IgnoreNotice": (c_int64,),
    "MV_SessionLost": (MV_Session, _INT64, c_int64, _INT64),
    "MV_SessionBarrier": (MV_Session,),
    "MV_SessionAggregate": (MV_Session, c_int32, c_int32, c_void_p, c_int64),
    "MV_SessionRun": (MV_Session, POINTER(MV_CollectiveCall)),
    "MV_SessionSetTimeout": (MV_Session, c_int64),
    "MV_SessionFinish": (MV_Session,),
    "MV_SessionLeaving": (MV_Session, c_int32, _INT32),
    "MV_SessionAgreeToLeave": (MV_Session, c_int32, _INT64, _INT32),
    "MV_SessionClose": (MV_Session,),
    "MV_SessionLeave": (MV_Session, c_char_p),
    "MV_TableOptionsInit": (POINTER(MV_TableOptions),),
    "MV_TableOptionsSetUpdater": (POINTER(MV_TableOptions), c_int32),
    "MV_TableCreate": (MV_Session, POINTER(MV_TableOptions), POINTER(MV_Table)),
    "MV_TableDescribe": (MV_Table, POINTER(MV_TableDescription)),
    "MV_TableKeyCounts": (MV_Table, _INT64),
    "MV_TableFree": (MV_Table,),
    "MV_TableRun": (MV_Table, c_char_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int32),
    "MV_TableGet": (MV_Table, c_void_p, c_int64, c_int32),
    "MV_TableAdd": (MV_Table, c_void_p, c_int64),
    "MV_TableAddGet": (MV_Table, c_void_p, c_void_p, c_int64),
    "MV_TableDeltaBuffer": (MV_Table, POINTER(c_void_p)),
    "MV_TableView": (MV_Table, POINTER(c_void_p)),
    "MV_TableMemory": (MV_Table, POINTER(c_void_p)),
    "MV_TableKeepMemory": (MV_Table, POINTER(MV_Memory)),
    "MV_MemoryRelease": (MV_Memory,),
    "MV_TableStart": (
        *(MV_Table, c_char_p, c_void_p, c_int64),
        *(c_void_p, c_void_p, c_int64, POINTER(MV_Future)),
    ),
    "MV_FutureWait": (MV_Future, c_double, _INT32),
    "MV_FutureDone": (MV_Future, _INT32),
    "MV_FutureRelease": (MV_Future,),
    "MV_TableFlush": (MV_Table, c_double),
    "MV_SessionFlush": (MV_Session, c_double),
    "MV_TableGetRows": (MV_Table, c_void_p, c_int64, c_void_p, c_int64, c_int32),
    "MV_TableAddRows": (MV_Table, c_void_p, c_int64, c_void_p, c_int64),
    "MV_TableGetPart": (MV_Table, c_int64, c_int64, c_int64, c_int64, c_void_p, c_int32),
    "MV_TableAddPart": (MV_Table, c_int64, c_int64, c_int64, c_int64, c_void_p),
    "MV_TableFetchAdd": (MV_Table, c_int64, c_int64, c_void_p, c_void_p),
    "MV_TableCompareSwap": (MV_Table, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "MV_TableListChanges": (MV_Table, c_int64, _INT64, _INT64, _INT64),
    "MV_TableCheckHyper": (MV_Table, c_int32, c_double),
    "MV_TableSetHyper": (MV_Table, c_int32, c_double),
    "MV_ParamSyncCreate": (MV_Table, c_void_p, c_int64, c_void_p, POINTER(MV_ParamSync)),
    "MV_ParamSyncSetScale": (MV_ParamSync, c_double),
    "MV_ParamSyncRun": (MV_ParamSync, c_void_p, c_int64),
    "MV_ParamSyncStart": (MV_ParamSync, c_void_p, c_int64, POINTER(MV_Future)),
    "MV_ParamSyncFree": (MV_ParamSync,),
    "MV_AddChange": (
        *(c_int32, c_int64, c_double),
        *(c_void_p, c_void_p, c_void_p, c_void_p, _INT32),
    ),
    "MV_LastErrorFile": (POINTER(MV_FileError),),
    "MV_LastErrorPeer": (POINTER(MV_PeerError),),
    "MV_SaveOptionsInit": (POINTER(MV_SaveOptions),),
    "MV_SessionSave": (MV_Session, POINTER(MV_SaveOptions)),
    "MV_SessionPublish": (MV_Session, c_int64, _INT64),
    "MV_SessionSaveWait": (MV_Session,),
    "MV_SessionLoad": (MV_Session, c_char_p, c_int32, _INT64),
    "MV_TableSave": (MV_Table, POINTER(MV_SaveOptions)),
    "MV_TableLoad": (MV_Table, c_char_p, c_int32, _INT64),
    "MV_CheckpointOpen": (c_char_p, POINTER(MV_Checkpoint)),
    "MV_CheckpointDescribe": (MV_Checkpoint, POINTER(MV_CheckpointDescription)),
    "MV_CheckpointDescribeTable": (MV_Checkpoint, c_int64, POINTER(MV_CheckpointTable)),
    "MV_CheckpointClocks": (MV_Checkpoint, c_int64, _INT64, c_int64),
    "MV_CheckpointVerify": (MV_Checkpoint, c_int64, _INT64),
    "MV_CheckpointRead": (MV_Checkpoint, c_int64, c_int64, c_void_p, c_int64),
    "MV_CheckpointClose": (MV_Checkpoint,),
    "MV_CheckpointWrite": (
        POINTER(MV_SaveOptions),
        POINTER(MV_CheckpointTable),
        c_int64,
        POINTER(c_void_p),
    ),
}
#: The functions that return a text and not a status or a number.
_TEXTS: Final = (
    "MV_VersionString",
    "MV_BuildInfo",
    "MV_Supported",
    "MV_StatusName",
    "MV_LastError",
    "MV_CheckLuaHook",
)
#: The type of the result and the types of the arguments of each function.
PROTOTYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    name: (c_char_p if name in _TEXTS else c_int32, arguments)
    for name, arguments in _ARGUMENTS.items()
}
