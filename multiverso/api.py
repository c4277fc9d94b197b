"""The functions that open, use and close the session of this process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from multiverso import _session, _session_options
from multiverso._membership import Membership, membership_of, watch
from multiverso._native.arguments import suggests_names
from multiverso._native.checkpoint_calls import StrPath
from multiverso._session import Session, current

__all__ = [
    "Membership",
    "Session",
    "aggregate",
    "barrier",
    "current_session",
    "finish",
    "init",
    "is_initialized",
    "is_master_worker",
    "leave",
    "load",
    "lost_ranks",
    "membership",
    "num_servers",
    "num_workers",
    "on_membership",
    "publish",
    "rank",
    "save",
    "server_id",
    "servers_num",
    "session",
    "shutdown",
    "size",
    "stats",
    "wait_for_save",
    "worker_id",
    "workers_num",
]


@suggests_names
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
    name: str | None = None,
    elastic: bool = False,
) -> Session:
    """Join the parameter server. Collective: waits until all ranks have called it.

    A process that ``multiverso join`` or ``--respawn`` has started joins the elastic session that
    the variable ``MULTIVERSO_JOIN`` names, and nobody waits for it. All others begin a session.
    Under ``mpirun`` (or ``srun``) the session has all ranks of ``COMM_WORLD``; mpi4py initializes
    MPI if necessary. Without MPI, it has all ranks that ``multiverso run``, torchrun or `spawn`
    started on this machine. A plain ``python train.py`` is a session of one rank. If a session with
    the same options is open, that session is returned.

    Parameters
    ----------
    sync : bool, optional
        False lets each worker run at its own speed. True makes all run in lock-step: a worker's get
        after its j-th add to a table waits until every worker has made j adds to the table, and
        returns the state after exactly those; the i-th gets of all workers are bitwise identical.
    staleness : int, optional
        The number of rounds that a worker may run ahead of the slowest worker; each add to a table
        ends a round of the table. 0 is ``sync=True``; None sets no bound.
    role : {"all", "worker", "server"}, optional
        Whether this rank trains (worker), keeps a part of the tables (server), or both.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks of the session; ``COMM_WORLD`` by default.
    timeout : float, optional
        Seconds that any single call may wait for other ranks. If MPI_Init takes longer, which no
        exception can end, the process prints an error and ends with exit code 1.
    nan_policy : {"propagate", "error"}, optional
        The treatment of NaN and infinity in deltas, in the parameters of a `ParamSync` or an
        adapter, and in aggregated arrays. "propagate" adds them, as NumPy does. "error" raises a
        ValueError that names the first such element, and applies nothing; the check costs a pass
        over the data of each call. Each rank may choose differently. Integers are not affected.
    on_peer_lost : {"fail", "continue"}, optional
        The reaction when a rank dies or leaves without `shutdown`. With "fail", ranks that wait for
        the lost rank get `PeerLostError`. With "continue", in async mode, the other ranks continue,
        and keep every add that has returned; collective calls such as `barrier`, `save` and
        `shutdown` do not wait for the lost rank. Every node needs a remaining rank. An add that a
        dying rank was serving to another node is continued by another rank, and made once.
    peer_timeout : float, optional
        Seconds that a rank may be without a heartbeat, because its process is suspended or its
        machine is unreachable. After a third of the time the rank is logged. After all of it, ranks
        that wait get `OperationTimeout`, or `PeerLostError` if a whole machine is silent.
    name : str, optional
        The name by which other processes of this user on the machine read the tables, with
        `attach`. All ranks pass the same. Without a name, nobody can read them from outside.
    elastic : bool, optional
        True lets other processes of this user on the machine join the session later, and lets ranks
        leave: with `shutdown`, `leave` or by death, after which the others continue. It needs async
        mode or a staleness of 1 or more, and a job on one machine, whose ranks are all workers and
        servers. docs/elastic.md explains what joins and how. ``multiverso run --elastic`` and
        ``multiverso join`` imply it. A session without a `name` is then called "job-PID".

    Returns
    -------
    Session
        A context manager: the end of its block calls `shutdown`, or leaves after an exception.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid.
    StateError
        If a session with other options is open, or MPI has been finalized; for a process that is
        to join, if there is no such session, it is not elastic, or it has no free place.
    LauncherError
        If a launcher started this process and no MPI is found, or the launcher has another MPI.
    MismatchError, OperationTimeout, PeerLostError, AbortedError
        If not all ranks open the session with matching options.
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
        sync,
        staleness,
        role,
        comm,
        timeout,
        nan_policy,
        on_peer_lost,
        peer_timeout,
        name,
        elastic,
    )
    return _session.open_session(options)[0]


@suggests_names
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
    name: str | None = None,
    elastic: bool = False,
) -> Iterator[Session]:
    """Open a session for a ``with`` block. Parameters and errors are those of `init`.

    The session is shut down at the end of the block. If an exception ends the block, except
    SystemExit with code 0 or None, this rank leaves at once, and ranks that wait for it receive the
    reason. If a session with the same options is open already, the block uses it and keeps it open.

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
        sync,
        staleness,
        role,
        comm,
        timeout,
        nan_policy,
        on_peer_lost,
        peer_timeout,
        name,
        elastic,
    )
    opened, new = _session.open_session(options)
    if not new:
        yield opened
        return
    with opened:
        yield opened


def finish() -> None:
    """Announce that this worker takes part in no further round of any table. Not collective.

    Call it on a worker with less data than the others: with ``sync=True`` or `staleness`, their
    rounds continue without this worker. The worker may still call `barrier` and get, which returns
    the state after the last complete round, and must call `shutdown`. In async mode it is a no-op.

    Raises
    ------
    StateError
        If no session is open. Later adds of this worker raise this error too.

    """
    current().finish()


def aggregate(array: Any) -> Any:
    """Sum an array over the workers, in place. Collective over the workers: waits for all.

    The results are bitwise identical on all workers, because the array of each worker has its place
    in a pairwise sum. Divide by `num_workers` to average a model.

    Parameters
    ----------
    array : ndarray of float32, float64, int32 or int64, any shape
        The array, or another object with such memory, which must be writable. Size and dtype must
        be the same on all workers.

    Returns
    -------
    ndarray
        The same `array`.

    Raises
    ------
    TypeError, ValueError
        If `array` is not writable or has another dtype; with ``nan_policy="error"`` also if it is
        not finite. The other workers then wait until this one leaves or their deadline passes.
    MismatchError
        On all workers, if sizes or dtypes differ, or a worker makes another call.
    OperationTimeout, PeerLostError, AbortedError
        If not all workers call it.
    StateError
        If no session is open, or this rank is not a worker.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> with mv.init():
    ...     mv.aggregate(np.ones(3, np.float32)) / mv.num_workers()
    array([1., 1., 1.], dtype=float32)

    """
    return current().aggregate(array)


@suggests_names
def save(
    directory: StrPath,
    *,
    step: int | None = None,
    keep: int | None = None,
    background: bool = False,
    incremental: bool = False,
) -> None:
    """Save all tables as a checkpoint. Collective over all ranks, with the same arguments.

    A checkpoint is one consistent state, which contains every add before the call on any rank, and
    none after it. It consists of the parameters, the state of the updaters, hyper-parameters and
    clocks. Every rank writes its part of the tables. When all parts are on the disk, the checkpoint
    appears in one step under a name such as ``000012-step-300``. A rank that is killed at any
    moment leaves the earlier checkpoints complete.

    Parameters
    ----------
    directory : path
        The folder for the checkpoints of this job, which all nodes must see under this path. It is
        created if it does not exist.
    step : int, optional
        The number that `load` returns, such as a count of batches; by default the last step plus 1.
    keep : int, optional
        The number of checkpoints to keep in the folder, including the new one. Older ones are
        removed when the new one is complete. By default all are kept.
    background : bool, optional
        True returns as soon as every rank has copied its part to memory, and writes the files while
        the training continues. The memory for the copies is kept for the next save.
    incremental : bool, optional
        True writes only what has changed, in stripes of about 64 KiB, since this session's last
        save into the folder, and links the files of that save, so that the checkpoint is complete.
        Without such a save, or if that checkpoint is gone, had other tables or cannot be linked,
        the save is full, which is logged. It is also full after 32 increments, or when these are
        larger than the full checkpoint.

    Raises
    ------
    CheckpointIOError
        On all ranks, if a file cannot be written; earlier checkpoints are unchanged. For a save
        in the background, the next `save`, `load`, `wait_for_save` or `shutdown` raises it.
    MemoryError
        If there is not enough memory for the copies.
    TypeError, ValueError
        If an argument is invalid.
    MismatchError
        If the ranks pass different arguments, or a rank makes another call.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError
        If not all ranks call it, or writing takes longer than the deadline plus a minute for
        each 1.2 GB.

    """
    current().save(directory, step, keep, background, incremental)


def wait_for_save() -> None:
    """Wait until the background save, if any, is complete. Collective over all ranks.

    Raises
    ------
    CheckpointIOError
        On all ranks, if the background save failed.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError, MismatchError
        As for `save`.

    """
    current().wait_for_save()


@suggests_names
def load(directory: StrPath, *, missing_ok: bool = False) -> int | None:
    """Restore all tables from a checkpoint. Collective over all ranks.

    First create the same tables as before the save. Tables are matched by name, and tables of the
    same name by the order of creation. The numbers of workers, servers and nodes may differ. The
    whole checkpoint is verified before a table changes.

    Parameters
    ----------
    directory : path
        A checkpoint, or a folder of checkpoints, from which the last one saved is loaded.
    missing_ok : bool, optional
        Whether to return None if there is no checkpoint, as in the first run of a job.

    Returns
    -------
    int or None
        The step of the checkpoint; None if there is no checkpoint.

    Raises
    ------
    CheckpointIOError
        On all ranks, if there is no checkpoint or it cannot be read.
    CheckpointCorruptError
        On all ranks, if a file has changed since the save. The tables are unchanged.
    MismatchError
        If the tables differ from those in the checkpoint, or the ranks pass different arguments.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError
        As for `save`.

    """
    step: int | None = current().load(directory, missing_ok)
    return step


def shutdown() -> None:
    """Close the session. Collective: waits until all ranks have called it.

    This frees all tables. `init` may be called again afterwards. Without a session this only warns
    (`RuntimeWarning`). In an elastic session it waits for nobody: the other ranks continue.

    Raises
    ------
    CheckpointIOError
        If the background save failed.
    OperationTimeout, PeerLostError, AbortedError
        If another rank does not shut down. The session has ended nevertheless.
    ForkedError
        In a forked child of a process that has a session.

    """
    if not _session.is_open():
        msg = "mv.shutdown() has no effect: no session is open"
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
    """Wait until all ranks have called this. A get after the barrier sees every add before it.

    Raises
    ------
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError, MismatchError
        If a rank does not call `barrier`. The message names the rank.

    """
    current().barrier()


def lost_ranks() -> tuple[int, ...]:
    """Return the ranks that are lost (left, died or excluded), in ascending order. Does not wait.

    The result is empty unless the session was opened with ``on_peer_lost="continue"`` or
    ``elastic=True``: with "fail", calls raise an error about a lost rank. In an elastic session it
    also contains the ranks that have shut down.

    Raises
    ------
    StateError
        If no session is open.

    """
    return current().lost_ranks()


def leave() -> None:
    """Stop taking part in the session, while the other ranks continue. Not collective.

    Every add that has returned is kept. The other ranks then find this one in `lost_ranks`, and
    collective calls do not wait for it. If it was the master, the next worker becomes the master.
    `init` may be called again afterwards.

    Raises
    ------
    StateError
        If no session is open, or it has neither ``elastic=True`` nor ``on_peer_lost="continue"``.
    CheckpointIOError, OperationTimeout, PeerLostError, AbortedError
        If a background save or a background call of a table failed.

    Examples
    --------
    >>> import multiverso as mv
    >>> session = mv.init(on_peer_lost="continue")
    >>> mv.leave()
    >>> mv.is_initialized()
    False

    """
    current().leave_early()


def membership() -> Membership:
    """Return which workers have joined an elastic session and which have left. Does not wait.

    A worker that dies is in `left` at once.

    Returns
    -------
    Membership
        A named tuple of `version`, `joined` and `left`, with the property `workers`: the ids of the
        workers that take part now.

    Raises
    ------
    StateError
        If no session is open, or it is not elastic.

    """
    return membership_of(current())


def on_membership(callback: Callable[[Membership], None]) -> None:
    """Call a function whenever workers have joined or left, until the session ends.

    Parameters
    ----------
    callback : callable
        The function, whose argument is the new `membership`. It is called in a thread of its own,
        at most ten times per second, so several events may arrive in one call. It must make no
        collective calls. An exception that it raises is logged.

    Raises
    ------
    TypeError
        If `callback` cannot be called.
    StateError
        If no session is open, or it is not elastic.

    """
    watch(current(), callback)


def publish(step: int = 0) -> int:
    """Show all tables, as they are now, to readers as one version. Collective over all ranks.

    Readers get the tables with `View.cut`. No worker changes a table during the call. The first two
    calls copy all tables to shared memory, which they keep; later ones copy what has changed since
    the call before the last one. So a job that publishes uses up to three times the memory of its
    tables, without the optimizer's state. Tables with an initializer take memory for the rows that
    have been changed.

    Parameters
    ----------
    step : int, optional
        A number for the readers, such as the batch, 0 or more.

    Returns
    -------
    int
        The version: 1, 2, ...

    Raises
    ------
    TypeError, ValueError
        If `step` is not an integer of 0 or more.
    StateError
        If no session is open, or the session has no name.
    MemoryError
        On all ranks, if there is not enough memory. Readers keep the last version.
    MismatchError, OperationTimeout, PeerLostError, AbortedError
        If not all ranks make the call with the same step.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(name="train"):
    ...     table = mv.ArrayTableHandler(10)
    ...     mv.publish(step=100)
    1

    """
    return current().publish(step)


def stats() -> dict[str, dict[str, float]]:
    """Return what this rank has moved from and to each table since the table was created.

    The call waits for nobody and may be made at any time. ``multiverso top --json`` shows the same
    for all ranks of a node, from outside.

    Returns
    -------
    dict
        For each table, by name, or "NAME (table ID)" if a later one has its name: ``gets`` and
        ``adds``, the number of calls; ``bytes_got`` and ``bytes_added``, the bytes of their values;
        ``bytes_sent`` and ``bytes_received``, the bytes of messages to and from other nodes;
        ``raw_bytes_sent`` and ``raw_bytes_received``, the bytes of these messages if their values
        were not encoded (`wire`); ``seconds_encoding``, the time of the passes that encode and
        decode them, also for other ranks, and that may update the table, too; and
        ``seconds_waiting``, the time in which calls waited for other nodes' answers. The last six
        are 0 on one node. In sync mode, the leader of a node (its first rank) exchanges the
        messages for its workers, and the waits for rounds are not counted. Tables beyond the 64th
        are not listed.

    Raises
    ------
    StateError
        If no session is open.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTableHandler(10, name="w")
    ...     table.add([1] * 10)
    ...     mv.stats()["w"]["bytes_added"]
    40

    """
    return current().stats()


def is_initialized() -> bool:
    """Return whether a session is open in this process."""
    return _session.find() is not None


def rank() -> int:
    """Return the rank of this process in the session, from 0."""
    return current().rank


def size() -> int:
    """Return the number of ranks in the session; if elastic, of those that have ever joined."""
    return current().size


def num_workers() -> int:
    """Return the number of ranks that train; in an elastic session, their current number."""
    return current().num_workers


def num_servers() -> int:
    """Return the number of ranks that keep a part of the tables."""
    return current().num_servers


def workers_num() -> int:
    """Return `num_workers`; older scripts use this name."""
    return num_workers()


def servers_num() -> int:
    """Return `num_servers`; older scripts use this name."""
    return num_servers()


def worker_id() -> int:
    """Return the index of this worker, from 0 in rank order; -1 on a rank that is not a worker."""
    return current().worker_id


def server_id() -> int:
    """Return the index of this server, from 0 in rank order; -1 on a rank that is not a server."""
    return current().server_id


def is_master_worker() -> bool:
    """Return whether this is the master: its initial values are used; it usually prints and saves.

    The master is worker 0, or the first remaining worker if the session continues without worker 0.
    """
    return current().is_master_worker()
