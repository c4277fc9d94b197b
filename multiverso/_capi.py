"""The C library: finds it, loads it, declares it, and turns its statuses into exceptions.

This is the only module that knows ctypes prototypes. Constants, structs and functions bear the
names they have in ``c_api.h``, and a test compares them with it one by one.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_void_p,
    sizeof,
)
from pathlib import Path
from typing import Any, Final

from multiverso import errors
from multiverso._reasons import describe
from multiverso._version import __version__

MV_ABI_VERSION: Final = 3

MV_OK: Final = 0
MV_PENDING: Final = 1
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

MV_TRANSPORT_SINGLE: Final = 0
MV_TRANSPORT_MPI: Final = 1

MV_TABLE_ARRAY: Final = 0
MV_TABLE_MATRIX: Final = 1

MV_FLOAT32: Final = 0
MV_FLOAT64: Final = 1
MV_INT32: Final = 2
MV_INT64: Final = 3

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

MV_HYPER_LEARNING_RATE: Final = 0
MV_HYPER_MOMENTUM: Final = 1
MV_HYPER_RHO: Final = 2
MV_HYPER_EPSILON: Final = 3
MV_HYPER_BETA_1: Final = 4
MV_HYPER_BETA_2: Final = 5
MV_HYPER_INITIAL_ACCUMULATOR_VALUE: Final = 6
MV_HYPER_ELASTIC_FORCE: Final = 7
MV_HYPER_VARIANCE_CONTROL: Final = 8
MV_HYPER_COUNT: Final = 16

MV_COLLECTIVE: Final = 1
MV_MISSING_OK: Final = 1
MV_AREA_STEPS: Final = 65536


class MV_Session(c_void_p):
    """Handle of a session; its own type, so that ctypes refuses a table's handle for it."""


class MV_Table(c_void_p):
    """Handle of a table."""


class MV_ParamSync(c_void_p):
    """Handle of the synchronisation of a model's parameters with a table."""


class MV_Checkpoint(c_void_p):
    """Handle of a checkpoint that is being read."""


class MV_FileError(Structure):
    """Which file an error is about."""

    _fields_ = (
        ("struct_size", c_int64),
        ("error_number", c_int32),
        ("reserved", c_int32),
        ("position", c_int64),
        ("path", c_char_p),
    )


class MV_PeerError(Structure):
    """Which other rank an error is about."""

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
    """How to save."""

    _fields_ = (
        ("struct_size", c_int64),
        ("directory", c_char_p),
        ("step", c_int64),
        ("keep", c_int64),
        ("background", c_int32),
        ("reserved", c_int32),
    )


class MV_CheckpointDescription(Structure):
    """What a checkpoint is."""

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
    """What a table of a checkpoint is."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("slots", c_int32),
        ("counting", c_int32),
        ("reserved", c_int32),
        ("steps", c_int64),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("name", c_char_p),
    )


class MV_SessionOptions(Structure):
    """How to open a session."""

    _fields_ = (
        ("struct_size", c_int64),
        ("mode", c_int32),
        ("role", c_int32),
        ("transport", c_int32),
        ("on_loss", c_int32),
        ("staleness", c_int64),
        ("timeout_ms", c_int64),
        ("wait_slice_ms", c_int64),
        ("mpi_comm", c_void_p),
        ("mpi_path", c_char_p),
        ("peer_timeout_ms", c_int64),
    )


class MV_SessionDescription(Structure):
    """Who this rank is in its session."""

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
    """What table to create."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("reserved", c_int32),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("name", c_char_p),
        ("init_value", c_void_p),
    )


class MV_TableDescription(Structure):
    """What a table is."""

    _fields_ = (
        ("struct_size", c_int64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("num_row", c_int64),
        ("num_col", c_int64),
        ("updater", c_int32),
        ("reserved", c_int32),
        ("hyper", c_double * MV_HYPER_COUNT),
        ("id", c_int64),
        ("bytes", c_int64),
    )


#: Function name: (type of the result, types of the arguments).
PROTOTYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "MV_AbiVersion": (c_int32, ()),
    "MV_VersionString": (c_char_p, ()),
    "MV_BuildInfo": (c_char_p, ()),
    "MV_StatusName": (c_char_p, (c_int32,)),
    "MV_LastError": (c_char_p, ()),
    "MV_Wait": (c_int32, ()),
    "MV_Cancel": (c_int32, (c_char_p,)),
    "MV_SessionOptionsInit": (c_int32, (POINTER(MV_SessionOptions),)),
    "MV_SessionOpen": (c_int32, (POINTER(MV_SessionOptions), POINTER(MV_Session))),
    "MV_SessionDescribe": (c_int32, (MV_Session, POINTER(MV_SessionDescription))),
    "MV_NodeDescribe": (c_int32, (c_char_p, c_char_p, c_int64, POINTER(c_int64))),
    "MV_HasLostRanks": (c_int32, ()),
    "MV_SessionLost": (c_int32, (MV_Session, POINTER(c_int64), c_int64, POINTER(c_int64))),
    "MV_SessionBarrier": (c_int32, (MV_Session,)),
    "MV_SessionAggregate": (c_int32, (MV_Session, c_int32, c_void_p, c_int64)),
    "MV_SessionFinish": (c_int32, (MV_Session,)),
    "MV_SessionClose": (c_int32, (MV_Session,)),
    "MV_SessionLeave": (c_int32, (MV_Session, c_char_p)),
    "MV_TableOptionsInit": (c_int32, (POINTER(MV_TableOptions),)),
    "MV_TableOptionsSetUpdater": (c_int32, (POINTER(MV_TableOptions), c_int32)),
    "MV_TableCreate": (c_int32, (MV_Session, POINTER(MV_TableOptions), POINTER(MV_Table))),
    "MV_TableDescribe": (c_int32, (MV_Table, POINTER(MV_TableDescription))),
    "MV_TableFree": (c_int32, (MV_Table,)),
    "MV_TableGet": (c_int32, (MV_Table, c_void_p, c_int64, c_int32)),
    "MV_TableAdd": (c_int32, (MV_Table, c_void_p, c_int64)),
    "MV_TableAddGet": (c_int32, (MV_Table, c_void_p, c_void_p, c_int64)),
    "MV_TableGetRows": (c_int32, (MV_Table, c_void_p, c_int64, c_void_p, c_int64, c_int32)),
    "MV_TableAddRows": (c_int32, (MV_Table, c_void_p, c_int64, c_void_p, c_int64)),
    "MV_TableCheckHyper": (c_int32, (MV_Table, c_int32, c_double)),
    "MV_TableSetHyper": (c_int32, (MV_Table, c_int32, c_double)),
    "MV_ParamSyncCreate": (
        c_int32,
        (MV_Table, c_void_p, c_int64, c_void_p, POINTER(MV_ParamSync)),
    ),
    "MV_ParamSyncRun": (c_int32, (MV_ParamSync, c_void_p, c_int64)),
    "MV_ParamSyncFree": (c_int32, (MV_ParamSync,)),
    "MV_LastErrorFile": (c_int32, (POINTER(MV_FileError),)),
    "MV_LastErrorPeer": (c_int32, (POINTER(MV_PeerError),)),
    "MV_SaveOptionsInit": (c_int32, (POINTER(MV_SaveOptions),)),
    "MV_SessionSave": (c_int32, (MV_Session, POINTER(MV_SaveOptions))),
    "MV_SessionSaveWait": (c_int32, (MV_Session,)),
    "MV_SessionLoad": (c_int32, (MV_Session, c_char_p, c_int32, POINTER(c_int64))),
    "MV_TableSave": (c_int32, (MV_Table, POINTER(MV_SaveOptions))),
    "MV_TableLoad": (c_int32, (MV_Table, c_char_p, c_int32, POINTER(c_int64))),
    "MV_CheckpointOpen": (c_int32, (c_char_p, POINTER(MV_Checkpoint))),
    "MV_CheckpointDescribe": (c_int32, (MV_Checkpoint, POINTER(MV_CheckpointDescription))),
    "MV_CheckpointDescribeTable": (
        c_int32,
        (MV_Checkpoint, c_int64, POINTER(MV_CheckpointTable)),
    ),
    "MV_CheckpointClocks": (c_int32, (MV_Checkpoint, c_int64, POINTER(c_int64), c_int64)),
    "MV_CheckpointVerify": (c_int32, (MV_Checkpoint, c_int64, POINTER(c_int64))),
    "MV_CheckpointRead": (c_int32, (MV_Checkpoint, c_int64, c_int64, c_void_p, c_int64)),
    "MV_CheckpointClose": (c_int32, (MV_Checkpoint,)),
    "MV_CheckpointWrite": (
        c_int32,
        (POINTER(MV_SaveOptions), POINTER(MV_CheckpointTable), c_int64, POINTER(c_void_p)),
    ),
}

ERRORS: Final[dict[int, type[Exception]]] = {
    MV_ERR_VALUE: ValueError,
    MV_ERR_TYPE: TypeError,
    MV_ERR_INDEX: IndexError,
    MV_ERR_MEMORY: MemoryError,
    MV_ERR_STATE: errors.StateError,
    MV_ERR_HANDLE: errors.StateError,
    MV_ERR_FORKED: errors.ForkedError,
    MV_ERR_MISMATCH: errors.MismatchError,
    MV_ERR_TIMEOUT: errors.OperationTimeout,
    MV_ERR_PEER_LOST: errors.PeerLostError,
    MV_ERR_ABORTED: errors.AbortedError,
    MV_ERR_TRANSPORT: errors.TransportError,
    MV_ERR_LAUNCHER: errors.LauncherError,
    MV_ERR_UNSUPPORTED: errors.UnsupportedError,
    MV_ERR_INTERNAL: errors.InternalError,
    MV_ERR_CHECKPOINT_IO: errors.CheckpointIOError,
    MV_ERR_CHECKPOINT_CORRUPT: errors.CheckpointCorruptError,
}


def library_path() -> Path:
    """Return where the library is expected: ``MULTIVERSO_LIBRARY``, or inside the package."""
    override = os.environ.get("MULTIVERSO_LIBRARY")
    if override:
        return Path(override)
    names = {"win32": "Multiverso.dll", "darwin": "libmultiverso.dylib"}
    return Path(__file__).parent / "_lib" / names.get(sys.platform, "libmultiverso.so")


def load(path: Path) -> ctypes.CDLL:
    """Load the library at `path`, check that it belongs to this package, declare its functions.

    Raises
    ------
    ImportError
        If the file is missing, is no Multiverso library, or has another version.

    """
    if not path.exists():
        source = "MULTIVERSO_LIBRARY names" if "MULTIVERSO_LIBRARY" in os.environ else "expected at"
        msg = (
            f"the Multiverso library is missing ({source} {path}). 'pip install .' builds it, "
            f"'pip install -e .' builds it in place; the environment variable MULTIVERSO_LIBRARY "
            f"names one that lies elsewhere."
        )
        raise ImportError(msg, name="multiverso", path=str(path))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        msg = f"the Multiverso library {path} cannot be loaded: {error}"
        raise ImportError(msg, name="multiverso", path=str(path)) from error
    for name in ("MV_AbiVersion", "MV_VersionString"):  # first, since they explain the rest
        _declare(library, name, path)
    version = library.MV_VersionString().decode()
    abi = library.MV_AbiVersion()
    if version != __version__ or abi != MV_ABI_VERSION:
        msg = (
            f"the package and the library of Multiverso do not belong together: the package in "
            f"{Path(__file__).parent} is version {__version__} (ABI {MV_ABI_VERSION}), the library "
            f"{path} is version {version} (ABI {abi}). Install Multiverso anew, or correct "
            f"MULTIVERSO_LIBRARY."
        )
        raise ImportError(msg, name="multiverso", path=str(path))
    for name in PROTOTYPES:
        _declare(library, name, path)
    return library


def _declare(library: ctypes.CDLL, name: str, path: Path) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        msg = f"the Multiverso library {path} is not one that fits: it has no function {name}"
        raise ImportError(msg, name="multiverso", path=str(path)) from None
    function.restype, function.argtypes = PROTOTYPES[name]


lib: Final = load(library_path())

_wait = lib.MV_Wait


def undeclared(name: str) -> Callable[..., int]:
    """Return a function of the library without the declared types of its arguments.

    It takes ctypes objects of just these types, and nothing else: a Python int would lose its upper
    half. For calls on small arrays, a third of whose time goes into checking such objects anew.
    """
    function: Callable[..., int] = lib[name]  # a new object, which shares nothing with lib.NAME
    function.restype = PROTOTYPES[name][0]  # type: ignore[attr-defined]
    return function


def call(function: Callable[..., int], *arguments: object) -> None:
    """Call a function of the library to its end and raise what its status stands for.

    A call that has to wait comes back every slice, so that a signal's handler runs and Ctrl-C
    arrives. Whatever it raises gives the call up, for all ranks that take part in it.
    """
    try:
        status = function(*arguments)
        while status == MV_PENDING:
            status = _wait()
    except BaseException as error:
        reason = type(error).__name__
        try:
            reason = describe(error)
        finally:  # also when Ctrl-C comes once more
            lib.MV_Cancel(reason.encode(errors="replace"))
        raise
    if status:
        raise exception(status)


def call_until(stop: threading.Event, function: Callable[..., int], *arguments: object) -> None:
    """Call a function as `call` does, in a thread that no signal reaches, until `stop` is set.

    Then the call is given up within a slice, and AbortedError raised.
    """
    status = function(*arguments)
    while status == MV_PENDING:
        if stop.is_set():
            msg = "the session was left"
            lib.MV_Cancel(msg.encode())
            raise errors.AbortedError(msg)
        status = _wait()
    if status:
        raise exception(status)


def exception(status: int) -> Exception:
    """Return the exception that the calling thread's last failing call stands for."""
    message = lib.MV_LastError().decode(errors="replace")
    error = ERRORS.get(status, errors.InternalError)(message)
    if isinstance(error, errors.MultiversoError):
        error.status = status
    if isinstance(error, errors.CheckpointIOError | errors.CheckpointCorruptError):
        raw = MV_FileError(struct_size=sizeof(MV_FileError))
        if lib.MV_LastErrorFile(byref(raw)) == MV_OK and raw.path is not None:
            error.set_file(os.fsdecode(raw.path), raw.position, raw.error_number)
    if isinstance(error, errors.PeerError):
        _set_peer(error)
    return error


def _set_peer(error: errors.PeerError) -> None:
    """Note what the library knows about the rank that the calling thread's last error is about."""
    raw = MV_PeerError(struct_size=sizeof(MV_PeerError))
    if lib.MV_LastErrorPeer(byref(raw)) != MV_OK or raw.rank < 0:
        return
    error.rank = raw.rank
    error.silent_for = raw.silent_for if raw.silent_for >= 0 else None
    error.host, error.last_call, error.table = map(_text, (raw.host, raw.last_call, raw.table))
    error.last_checkpoint = None if raw.checkpoint is None else os.fsdecode(raw.checkpoint)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")
