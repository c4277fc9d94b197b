"""Finds, loads and calls the C library, and converts its statuses to exceptions."""

import atexit
import ctypes
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from ctypes import PYFUNCTYPE, byref, c_int32, py_object, sizeof
from pathlib import Path
from typing import Any, Final

from multiverso import errors
from multiverso._native import capi
from multiverso._native.exception_text import describe
from multiverso._native.reports import note_loss
from multiverso._version import __version__

_PACKAGE: Final = Path(__file__).parents[1]
_VARIABLE: Final = "MULTIVERSO_LIBRARY"
_NAMES: Final = {"win32": "Multiverso.dll", "darwin": "libmultiverso.dylib"}
#: The library's place in the package, and its name.
_IN_PACKAGE: Final = Path("_lib", _NAMES.get(sys.platform, "libmultiverso.so"))
#: Where CMake builds the library in a clone. A library with sanitizers would end the program.
_BUILDS: Final = ("build", "build/cmake", "build/development", "build/release", "build/Release")

_log = logging.getLogger("multiverso")

#: The exception for each error status, with the message of the library as its argument.
ERRORS: Final[dict[int, type[Exception]]] = {
    capi.MV_ERR_VALUE: ValueError,
    capi.MV_ERR_TYPE: TypeError,
    capi.MV_ERR_INDEX: IndexError,
    capi.MV_ERR_MEMORY: MemoryError,
    capi.MV_ERR_STATE: errors.StateError,
    capi.MV_ERR_HANDLE: errors.StateError,
    capi.MV_ERR_FORKED: errors.ForkedError,
    capi.MV_ERR_MISMATCH: errors.MismatchError,
    capi.MV_ERR_TIMEOUT: errors.OperationTimeout,
    capi.MV_ERR_PEER_LOST: errors.PeerLostError,
    capi.MV_ERR_ABORTED: errors.AbortedError,
    capi.MV_ERR_TRANSPORT: errors.TransportError,
    capi.MV_ERR_LAUNCHER: errors.LauncherError,
    capi.MV_ERR_UNSUPPORTED: errors.UnsupportedError,
    capi.MV_ERR_INTERNAL: errors.InternalError,
    capi.MV_ERR_CHECKPOINT_IO: errors.CheckpointIOError,
    capi.MV_ERR_CHECKPOINT_CORRUPT: errors.CheckpointCorruptError,
}


def library_path() -> Path:
    """Return the path of the library that this process has loaded."""
    return Path(lib._name)


def _elsewhere() -> Iterator[Path]:
    """Yield where the library may be of a package without one, such as that of a clone.

    In a clone, Python finds its package first. So the installed packages come before what CMake
    has built.
    """
    for folder in sys.path:
        yield Path(folder, "multiverso", _IN_PACKAGE)
    for finder in sys.meta_path:  # A package that is installed as editable has its own finder.
        find = getattr(finder, "find_spec", None)
        spec = find("multiverso", []) if find else None
        for folder in (spec and spec.submodule_search_locations) or ():
            yield Path(folder, _IN_PACKAGE)
    for folder in _BUILDS:
        yield _PACKAGE.parent / folder / _IN_PACKAGE.name
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        yield Path(folder, _IN_PACKAGE.name)
    multiarch = getattr(sys.implementation, "_multiarch", "")  # such as x86_64-linux-gnu
    for prefix in (sys.prefix, "/usr/local", "/usr"):
        for folder in ("lib", "lib64", f"lib/{multiarch}"):
            yield Path(prefix, folder, _IN_PACKAGE.name)


def _load_any() -> ctypes.CDLL:
    """Load the library that ``MULTIVERSO_LIBRARY`` names, the package's, or one from elsewhere."""
    expected = Path(os.environ.get(_VARIABLE) or _PACKAGE / _IN_PACKAGE)
    if os.environ.get(_VARIABLE) or expected.exists():
        return load(expected)
    refused = []
    for path in dict.fromkeys(map(Path.absolute, _elsewhere())):
        if path.exists():
            try:
                library = load(path)
            except ImportError as error:
                refused.append(str(error))
            else:
                _log.info("the package in %s has no library, so it uses %s", _PACKAGE, path)
                return library
    if not refused:
        return load(expected)
    msg = f"the Multiverso library is missing (expected at {expected}), and others do not fit:"
    raise ImportError("\n".join([msg, *refused]), name="multiverso", path=str(expected))


def load(path: Path) -> ctypes.CDLL:
    """Load the library at `path`, check that it has this version, and declare its functions."""
    if not path.exists():
        source = "MULTIVERSO_LIBRARY names" if os.environ.get(_VARIABLE) else "expected at"
        msg = (
            f"the Multiverso library is missing ({source} {path}). 'pip install .' builds it, "
            f"'pip install -e .' builds it in place; MULTIVERSO_LIBRARY can name one elsewhere."
        )
        raise ImportError(msg, name="multiverso", path=str(path))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        msg = f"the Multiverso library {path} cannot be loaded: {error}"
        raise ImportError(msg, name="multiverso", path=str(path)) from error
    # The versions are checked first, because a difference explains why other functions are missing.
    for name in ("MV_AbiVersion", "MV_VersionString"):
        _declare(library, name, path)
    version = library.MV_VersionString().decode()
    abi = library.MV_AbiVersion()
    if version != __version__ or abi != capi.MV_ABI_VERSION:
        msg = (
            f"expected a Multiverso library of the same version as the package: the package in "
            f"{_PACKAGE} is version {__version__} (ABI {capi.MV_ABI_VERSION}), the library "
            f"{path} is version {version} (ABI {abi}). Reinstall Multiverso, or correct "
            f"MULTIVERSO_LIBRARY."
        )
        raise ImportError(msg, name="multiverso", path=str(path))
    for name in capi.PROTOTYPES:
        _declare(library, name, path)
    return library


def _declare(library: ctypes.CDLL, name: str, path: Path) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        msg = (
            f"the Multiverso library {path} is incompatible: function {name} is missing, as in one "
            f"of another build. Run 'pip install .' again, or correct MULTIVERSO_LIBRARY."
        )
        raise ImportError(msg, name="multiverso", path=str(path)) from None
    function.restype, function.argtypes = capi.PROTOTYPES[name]


#: The library, whose functions return their statuses.
lib: Final = _load_any()


class _Results(dict[int, Any]):
    """Maps the status that a function returns to a result: MV_OK to `result`, others to exceptions.

    ctypes calls the `restype` of a function with the status. Looking up MV_OK in C takes a fourth
    of the time of a Python function that checks the status.
    """

    def __init__(self, result: object = None, used: object = None) -> None:
        super().__init__({capi.MV_OK: result})
        self.used = used  # The function keeps these objects alive.

    def __missing__(self, status: int) -> Any:
        complete(status)
        return self[capi.MV_OK]


def undeclared(name: str, result: object = None, used: object = None) -> Callable[..., Any]:
    """Return a function as in `checked`, but without the declared types of its arguments.

    The function returns `result`, and keeps `result` and `used` alive. Its arguments must be ctypes
    objects of exactly the right types; a Python int would lose its upper half. Use it for calls on
    small arrays, where checking types takes a third of the time. A result of the ``from_param`` of
    a ctypes type is an argument that needs no conversion.
    """
    function: Callable[..., Any] = lib[name]  # a new object, independent of lib.NAME
    function.restype = _Results(result, used).__getitem__  # type: ignore[attr-defined]
    return function


def _load_checked() -> ctypes.CDLL:
    library = ctypes.CDLL(lib._name)
    raise_errors = _Results().__getitem__
    for name, (result, arguments) in capi.PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = raise_errors if result is c_int32 else result
        function.argtypes = arguments
    return library


#: The library, whose functions return None instead of MV_OK, and raise exceptions for errors.
#:
#: Python runs during a wait, so that Ctrl-C works. An exception that a signal handler raises, or
#: another thread in this one, ends the call, and the session if other ranks take part in the call.
checked: Final = _load_checked()


def _let_handles_release() -> None:
    """Let each handle release what it stands for when it is no longer used.

    An exception, such as that of Ctrl-C, may be raised between any two instructions of Python, also
    right after a C function has written a handle, and at the start of a method ``__del__``. So the
    method is the C function itself, and no instruction of Python is needed to release the object.
    """
    method = PYFUNCTYPE(py_object, py_object)(("PyInstanceMethod_New", ctypes.pythonapi))
    for handle, release in (
        (capi.MV_Table, lib.MV_TableFree),
        (capi.MV_Memory, lib.MV_MemoryRelease),
        (capi.MV_Future, lib.MV_FutureRelease),
        (capi.MV_ParamSync, lib.MV_ParamSyncFree),
        (capi.MV_Reader, lib.MV_ReaderClose),
        (capi.MV_Checkpoint, lib.MV_CheckpointClose),
    ):
        setattr(handle, "__del__", method(release))  # noqa: B010  # mypy does not know it


_let_handles_release()


class _Interrupts:
    """Lets exceptions of signal handlers and threads reach those who wait in the library."""

    def __init__(self) -> None:
        #: Returns whether an exception, raised so many seconds ago, ends a call that other ranks
        #: take part in only when the call is complete.
        self.may_wait: Callable[[BaseException, float], bool] = lambda error, seconds: False
        self._raised = threading.local()
        self._checks: list[object] = []  # A child may be forked while one of them runs.
        self.enable()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.enable)
        # A thread that calls Python while the interpreter ends would be ended in the library.
        atexit.register(lib.MV_SetDefaultInterrupt, capi.MV_InterruptCheck(), None)

    def enable(self) -> None:
        """Let waits in the library run Python about every 20 ms."""
        run = self._run()
        next(run)
        # An exception in the function of a callback would leave its result undefined.
        self._checks.append(capi.MV_InterruptCheck(functools.partial(next, run)))
        lib.MV_SetDefaultInterrupt(self._checks[-1], None)

    def take(self) -> BaseException | None:
        """Return the exception that ended this thread's last call, if any, and forget it."""
        error: BaseException | None = getattr(self._raised, "error", None)
        self._raised.error = self._raised.since = None
        return error

    def _reason_to_end(self) -> int | None:
        """Return why the call ends after all, if an exception in this thread has waited."""
        since: float | None = getattr(self._raised, "since", None)
        if since is None or self.may_wait(self._raised.error, time.monotonic() - since):
            return None
        self._raised.since = None
        return ctypes.addressof(self._raised.text)

    def _run(self) -> Generator[int | None, None, None]:
        # This is a generator because Python raises an exception as soon as this code is entered. A
        # function is entered before its `try`, so the exception would be lost in ctypes; a
        # generator is entered at its `yield`, inside the `try`.
        reason = None
        while True:
            try:
                while True:
                    yield reason
                    reason = self._reason_to_end()
            except GeneratorExit:
                return
            except BaseException as error:
                self._raised.error = error
                reason = _INTERRUPTED_ADDRESS
                # A second Ctrl-C is raised at a call, as a rule, and all calls are in this block.
                try:
                    # Programs may clear the frames of a traceback, which would end this generator.
                    traceback = error.__traceback__
                    error.__traceback__ = None if traceback is None else traceback.tb_next
                    text = ctypes.create_string_buffer(describe(error).encode(errors="replace"))
                    self._raised.text = text  # It stays valid until this thread's next exception.
                    reason = ctypes.addressof(text)
                    if self.may_wait(error, 0):
                        self._raised.since, reason = time.monotonic(), _WAITS_ADDRESS
                except BaseException:
                    pass


_INTERRUPTED: Final = ctypes.create_string_buffer(b"interrupted")
_INTERRUPTED_ADDRESS: Final = ctypes.addressof(_INTERRUPTED)
#: With an empty reason, the call goes on, and fails at its end (MV_InterruptCheck).
_WAITS: Final = ctypes.create_string_buffer(b"")
_WAITS_ADDRESS: Final = ctypes.addressof(_WAITS)
_interrupts: Final = _Interrupts()


def let_wait(may_wait: Callable[[BaseException, float], bool]) -> None:
    """Set which exceptions, after some seconds, wait for the end of calls with other ranks."""
    _interrupts.may_wait = may_wait


def complete(status: int) -> None:
    """Raise the exception of a call of this thread that returned `status`, if any."""
    if status:
        raised = _interrupts.take()
        raise exception_for(status) if raised is None else raised


#: The addresses of folders of this machine in which checkpoints are for a while, for messages.
addresses: Final[dict[str, str]] = {}


def _shown(text: bytes) -> str:
    shown = os.fsdecode(text)
    for folder, address in addresses.items():
        shown = shown.replace(folder, address)
    return shown


def exception_for(status: int) -> Exception:
    """Return the exception for the last call of this thread, which failed with `status`."""
    message = _shown(lib.MV_LastError()).encode(errors="replace").decode()
    error = ERRORS.get(status, errors.InternalError)(message)
    if isinstance(error, errors.MultiversoError):
        error.status = status
    if isinstance(error, errors.CheckpointIOError | errors.CheckpointCorruptError):
        raw = capi.MV_FileError(struct_size=sizeof(capi.MV_FileError))
        if lib.MV_LastErrorFile(byref(raw)) == capi.MV_OK and raw.path is not None:
            error.set_file(_shown(raw.path), raw.position, raw.error_number)
    if isinstance(error, errors.PeerError):
        _set_peer(error)
        note_loss(error)
    return error


def _set_peer(error: errors.PeerError) -> None:
    """Store in `error` the facts that the library knows about the rank that caused the error."""
    raw = capi.MV_PeerError(struct_size=sizeof(capi.MV_PeerError))
    if lib.MV_LastErrorPeer(byref(raw)) != capi.MV_OK or raw.rank < 0:
        return
    error.rank = raw.rank
    error.silent_for = raw.silent_for if raw.silent_for >= 0 else None
    error.host, error.last_call, error.table = map(_decoded, (raw.host, raw.last_call, raw.table))
    error.last_checkpoint = None if raw.checkpoint is None else _shown(raw.checkpoint)


def _decoded(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")
