"""Opens a session in the C library: with the ranks of a job, or by joining an elastic session."""

import logging
from ctypes import byref
from typing import Final

from multiverso._local.cores import crowding
from multiverso._local.job import find_local_job
from multiverso._local.processes import has_session, join_targets
from multiverso._mpi.communicator import Communicator, find_communicator, is_alone
from multiverso._native import arguments, capi, launchers
from multiverso._native.library import checked
from multiverso._session.options import LOSSES, ROLES, TERMS, SessionOptions
from multiverso.errors import LauncherError, StateError

_log = logging.getLogger("multiverso")

#: What `warn_of_crowding` has logged.
_logged: Final[set[str]] = set()


def resolve_options(options: SessionOptions) -> tuple[capi.MV_SessionOptions, Communicator | None]:
    """Choose the transport; return the library's options, and the communicator in them, if any."""
    raw = capi.MV_SessionOptions()
    checked.MV_SessionOptionsInit(byref(raw))
    raw.mode = options.mode
    raw.staleness = options.staleness or 0
    raw.role = ROLES[options.role]
    raw.on_loss = LOSSES[options.on_peer_lost]
    raw.timeout_ms = arguments.milliseconds(options.timeout)
    raw.start_timeout_ms = arguments.milliseconds(options.start_timeout)
    raw.name = None if options.name is None else options.name.encode()
    raw.peer_timeout_ms = arguments.milliseconds(options.peer_timeout)
    raw.elastic, raw.max_workers = options.elastic, options.max_workers
    raw.on_term = TERMS[options.on_term]
    raw.saves_at_end = options.checkpoints is not None
    if options.join is not None:  # A joiner needs neither a launcher nor MPI.
        return raw, None
    environ = launchers.own_environ(opens=options.comm is None)
    _explain_own_session(environ)
    has_lonely_mpi = is_alone(options.comm)
    job = find_local_job(environ) if options.comm is None or has_lonely_mpi else None
    if job is not None and job.size > 1 and has_lonely_mpi:
        _warn_of_mpi(job.size, options.comm)
    if job is not None and options.comm is None:
        raw.transport = capi.MV_TRANSPORT_LOCAL
        raw.job_name, raw.job_rank, raw.job_size = job.name.encode(), job.rank, job.size
        return raw, None
    communicator = find_communicator(options.comm, options.start_timeout)
    if communicator is not None:
        raw.transport = capi.MV_TRANSPORT_MPI
        raw.mpi_comm = communicator.address
    return raw, communicator


def warn_of_crowding(local_size: int) -> None:
    """Log once if the ranks that mpirun has started on this machine have too many threads."""
    text = crowding(local_size)
    if text is not None and text not in _logged:
        _logged.add(text)
        _log.warning(text)


def open_handle(raw: capi.MV_SessionOptions, join: str | None, handle: capi.MV_Session) -> None:
    """Open the session, or join one, through the first of its processes that is still there."""
    targets: list[str | None] = [join]
    if join is not None and join.isdecimal():
        targets = [*join_targets(int(join))]
    for target in targets:
        raw.join = None if target is None else target.encode()
        try:
            checked.MV_SessionOpen(byref(raw), byref(handle))
        except StateError:
            if target == targets[-1]:
                raise
            continue  # The process may have ended meanwhile.
        return


def _explain_own_session(environ: dict[str, str]) -> None:
    """Log why this process is not the rank that the variables of the launcher describe, if so."""
    owner = launchers.owner_of(environ)
    if owner is None:
        return
    # A process that imports this package, and leaves the training to one that it starts, is
    # probably a wrapper.
    level = logging.DEBUG if has_session(owner) else logging.WARNING
    _log.log(
        level,
        "this process opens a session of its own: the variables of the launcher are about process "
        "%d, which has started this one and imported multiverso before. If this process is to be "
        "the rank, start it without the variable %s",
        owner,
        launchers.OWNER,
    )


def _warn_of_mpi(size: int, comm: object) -> None:
    """Say that MPI has one rank in a job without MPI of several; raise if `comm` is its world."""
    msg = (
        f"MPI has one rank in this process, but its job has {size} and was started without MPI: "
        "start a script that uses MPI itself with mpirun, or with multiverso run --mpi"
    )
    if comm is not None:
        raise LauncherError(msg)
    _log.warning(msg)
