"""Opening and closing the session, and asking who takes part in it."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from multiverso import _session, _session_options
from multiverso._native import checkpoint_calls
from multiverso._session import Session, current

__all__ = [
    "Session",
    "aggregate",
    "barrier",
    "current_session",
    "finish",
    "init",
    "is_initialized",
    "is_master_worker",
    "load",
    "lost_ranks",
    "num_servers",
    "num_workers",
    "rank",
    "save",
    "server_id",
    "servers_num",
    "session",
    "shutdown",
    "size",
    "wait_for_save",
    "worker_id",
    "workers_num",
]


def init(
    sync: bool = False,
    *,
    staleness: int | None = None,
    role: str = "all",
    comm: object = None,
    timeout: float = 120.0,
    nan_policy: str = "propagate",
    on_peer_lost: str = "fail",
    peer_timeout: float = 30.0,
) -> Session:
    """Join the parameter server. Collective: returns when all ranks have called it.

    Under ``mpirun`` (or ``srun``) the session has all ranks of ``COMM_WORLD``; mpi4py initialises
    MPI if that has not been done. A plain ``python train.py`` is a session of one rank, for which
    no MPI is loaded. If a session with the same options is open, that one is returned.

    Parameters
    ----------
    sync : bool, optional
        False: each worker goes at its own speed. True: lock-step. A worker's get after its j-th
        add to a table waits until every worker has made j adds to it, and returns the state after
        exactly those; all workers' i-th gets are equal to the bit.
    staleness : int, optional
        Lets workers run that many rounds ahead of the slowest, and no further; an add to a table
        ends a round of it. 0 is ``sync=True``; None sets no bound.
    role : {"all", "worker", "server"}, optional
        What this rank does: train (worker), keep a part of the tables (server), or both.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks of the session, if not ``COMM_WORLD``.
    timeout : float, optional
        Seconds that any single call may wait for other ranks.
    nan_policy : {"propagate", "error"}, optional
        What becomes of NaN and infinity in a delta, in the parameters of a `ParamSync` or an
        adapter, and in what is aggregated. "propagate": they are added, as NumPy would.
        "error": a ValueError that names the first, and nothing is applied. That costs a pass over
        the data of each call. It is a matter of each rank, and of floating point alone.
    on_peer_lost : {"fail", "continue"}, optional
        What happens when a rank dies, or its script ends in the middle. "fail": whoever waits for
        it gets `PeerLostError`. "continue", in async mode: the others go on without it, with every
        add that has returned in place; `barrier`, creating tables, `save`, `shutdown` and the
        other calls that all make together are made by those who are left. On several nodes, as
        long as each node has a rank that is left; an add in the middle of which the rank died that
        served it to other nodes raises `PeerLostError` on its caller alone.
    peer_timeout : float, optional
        Seconds that a rank may give no sign of life, as a process that was stopped or a machine
        that is out of reach. After a third of them its name is logged; after all of them, who waits
        for it gets `OperationTimeout`, or `PeerLostError` for the ranks of a machine.

    Returns
    -------
    Session
        A context manager that calls `shutdown` at the end of its block.

    Raises
    ------
    TypeError, ValueError
        If an option is wrong.
    StateError
        If a session with other options is open, or MPI has been finalised.
    LauncherError
        If no MPI can be found under a launcher, or the launcher belongs to another one.
    MismatchError, OperationTimeout, PeerLostError, AbortedError
        If not all ranks open the session with options that go together.
    ForkedError
        In a forked child of a process that has a session.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.init():
    ...     mv.rank(), mv.size()
    (0, 1)

    """
    options = _session_options.checked(
        sync, staleness, role, comm, timeout, nan_policy, on_peer_lost, peer_timeout
    )
    return _session.open_session(options)[0]


@contextlib.contextmanager
def session(
    sync: bool = False,
    *,
    staleness: int | None = None,
    role: str = "all",
    comm: object = None,
    timeout: float = 120.0,
    nan_policy: str = "propagate",
    on_peer_lost: str = "fail",
    peer_timeout: float = 30.0,
) -> Iterator[Session]:
    """Open a session for a ``with`` block; takes and raises what `init` does.

    At the end of the block it is shut down. If an exception ends the block, this rank leaves at
    once, and the others learn the reason when they wait for it. A session with the same options
    that is open already is used, and stays open.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTableHandler(3)
    ...     table.add([1, 2, 3])
    ...     table.get()
    array([1., 2., 3.], dtype=float32)

    """
    options = _session_options.checked(
        sync, staleness, role, comm, timeout, nan_policy, on_peer_lost, peer_timeout
    )
    opened, new = _session.open_session(options)
    if not new:
        yield opened
        return
    with opened:
        yield opened


def finish() -> None:
    """Say that this worker joins no further rounds of any table. Returns at once.

    For a worker with less data than the others: with ``sync=True`` or `staleness`, their rounds go
    on without it, exactly. It may still get, which returns the state after the last complete round,
    meet the others in `barrier`, and must still `shutdown`. Without rounds, in async mode, this
    changes nothing.

    Raises
    ------
    StateError
        If no session is open; and, afterwards, by every add of this worker.

    """
    current().finish()


def aggregate(array: Any) -> Any:
    """Sum an array over the workers, in place. Collective over the workers: waits for all.

    All workers get the same bits, since the sum is made in worker order. Divide by `num_workers`
    for the average of a model.

    Parameters
    ----------
    array : ndarray of float32, float64, int32 or int64, any shape
        Or anything else with such memory that can be written to. Equal in size and dtype on all
        workers.

    Returns
    -------
    ndarray
        The same `array`.

    Raises
    ------
    TypeError, ValueError
        If `array` has no memory to write to, or another dtype; with ``nan_policy="error"``, if
        not all of it is finite. The other workers then wait for this one until it leaves or their
        deadline passes.
    MismatchError
        On all workers, if sizes or dtypes differ or somebody makes another call.
    OperationTimeout, PeerLostError, AbortedError
        If not all workers call it.
    StateError
        If no session is open, or this rank is no worker.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> with mv.init():
    ...     mv.aggregate(np.ones(3, np.float32)) / mv.num_workers()
    array([1., 1., 1.], dtype=float32)

    """
    return current().aggregate(array)


def save(
    directory: checkpoint_calls.Directory,
    *,
    step: int | None = None,
    keep: int | None = None,
    background: bool = False,
) -> None:
    """Save all tables as a checkpoint. Collective over all ranks, which call it alike.

    What is saved is one state: with every add before the call on any rank, and none after it. The
    parameters, what the updaters keep of them, hyper-parameters and clocks are in it. Every rank
    that keeps a part of the tables writes it; the checkpoint appears in one step when all of it is
    on the disk, under a name such as ``000012-step-300``. Whenever a rank is killed, what was saved
    before is still there, whole.

    Parameters
    ----------
    directory : path
        A folder for the checkpoints of this job, made if it is not there, which all nodes see
        under this path.
    step : int, optional
        What `load` returns, such as the number of batches; by default one more than the last.
    keep : int, optional
        Remove the oldest checkpoints in the folder until this many are left, the new one among
        them, after that one is complete. By default all stay.
    background : bool, optional
        True: return as soon as every rank has copied its part to memory, and write behind the
        training. Needs memory for the copies, which is kept for the next save.

    Raises
    ------
    CheckpointIOError
        On all ranks, if a file cannot be written; the checkpoints before are untouched. Of a save
        in the background it is raised by the next `save`, `load`, `wait_for_save` or `shutdown`.
    MemoryError
        If there is no memory for the copies.
    TypeError, ValueError
        If an argument is wrong.
    MismatchError
        If the ranks call it with different arguments, or somebody makes another call.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError
        If not all ranks call it, or writing takes longer than the deadline and a minute for
        each 1.2 GB.

    """
    current().save(directory, step, keep, background)


def wait_for_save() -> None:
    """Wait until the save in the background, if there is one, is complete. Collective.

    Raises
    ------
    CheckpointIOError
        On all ranks, if it failed.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError, MismatchError
        As for `save`.

    """
    current().wait_for_save()


def load(directory: checkpoint_calls.Directory, *, missing_ok: bool = False) -> int | None:
    """Set all tables to what a checkpoint holds. Collective over all ranks.

    The tables must have been created before, as they were when it was saved: they are found by
    name, those of one name in the order of creation. The numbers of workers, servers and nodes may
    differ. All of it is checked before anything changes.

    Parameters
    ----------
    directory : path
        A checkpoint, or a folder of them, of which the one saved last is taken.
    missing_ok : bool, optional
        Whether to return None if there is no checkpoint, for a job that may be the first.

    Returns
    -------
    int or None
        The step that it was saved with.

    Raises
    ------
    CheckpointIOError
        On all ranks, if there is no checkpoint or it cannot be read.
    CheckpointCorruptError
        On all ranks, if a file is not what was written. No table has changed.
    MismatchError
        If the tables are not those that were saved, or the ranks call it with different arguments.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError
        As for `save`.

    """
    step: int | None = current().load(directory, missing_ok)
    return step


def shutdown() -> None:
    """Leave the parameter server. Collective: waits until all ranks have called it.

    All tables go. Without a session this does nothing but warn (`RuntimeWarning`). `init` may be
    called again afterwards.

    Raises
    ------
    CheckpointIOError
        If the save in the background failed.
    OperationTimeout, PeerLostError, AbortedError
        If the other ranks do not shut down too. The session is over nevertheless.
    ForkedError
        In a forked child of a process that has a session.

    """
    if _session.is_over():
        msg = "mv.shutdown() without an open session does nothing"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
        return
    current().close()


def current_session() -> Session:
    """Return the open session.

    Raises
    ------
    StateError
        If no session is open.
    ForkedError
        In a forked child of a process that has a session.

    """
    return current()


def barrier() -> None:
    """Wait until all ranks have called this. A fence: a get after it sees every add before it.

    Raises
    ------
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError, MismatchError
        If a rank does not come. The message names it.

    """
    current().barrier()


def lost_ranks() -> tuple[int, ...]:
    """Return the ranks that have died or left, in order. Does not wait.

    Empty unless the session was opened with ``on_peer_lost="continue"``: with "fail", a lost rank
    is the error of a call.

    Raises
    ------
    StateError
        If no session is open.

    """
    return current().lost_ranks()


def is_initialized() -> bool:
    """Return whether a session is open in this process."""
    return _session.find() is not None


def rank() -> int:
    """Return the number of this process in the session, from 0."""
    return current().rank


def size() -> int:
    """Return the number of processes in the session."""
    return current().size


def num_workers() -> int:
    """Return the number of ranks that train."""
    return current().num_workers


def num_servers() -> int:
    """Return the number of ranks that keep a part of the tables."""
    return current().num_servers


def workers_num() -> int:
    """Return `num_workers`, under the name it has in older scripts."""
    return num_workers()


def servers_num() -> int:
    """Return `num_servers`, under the name it has in older scripts."""
    return num_servers()


def worker_id() -> int:
    """Return the number of this worker, from 0 in rank order; -1 on a rank that is none."""
    return current().worker_id


def server_id() -> int:
    """Return the number of this server, from 0 in rank order; -1 on a rank that is none."""
    return current().server_id


def is_master_worker() -> bool:
    """Return whether this is the worker whose initial values count and who prints and validates.

    It is worker 0, or, in a session that has gone on without that one, the first worker there.
    """
    return current().is_master_worker()
