"""The functions that open, use and close the session of this process."""

import contextlib
import warnings
from collections.abc import Iterator

from multiverso import _session
from multiverso._native.arguments import suggests_names, takes_arguments_of
from multiverso._native.exception_text import describe
from multiverso._session import Session, current
from multiverso._session.calls import (
    aggregate,
    check_leaving,
    current_session,
    is_initialized,
    is_leaving,
    is_master_worker,
    leave,
    load,
    lost_ranks,
    membership,
    num_servers,
    num_workers,
    on_membership,
    rank,
    save,
    server_id,
    servers_num,
    size,
    stats,
    wait_for_save,
    worker_id,
    workers_num,
)
from multiverso._session.membership import Membership
from multiverso._session.notice import ignore_notice
from multiverso._session.options import SessionOptions, session_options

__all__ = [
    "Membership",
    "Session",
    "aggregate",
    "barrier",
    "check_leaving",
    "current_session",
    "finish",
    "ignore_notice",
    "init",
    "is_initialized",
    "is_leaving",
    "is_master_worker",
    "leave",
    "load",
    "lost_ranks",
    "membership",
    "num_servers",
    "num_workers",
    "on_membership",
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
@takes_arguments_of(session_options)
def init(options: SessionOptions) -> Session:
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
    timeout : float or None, optional
        Seconds that any single call may wait for other ranks, by default half an hour; None for no
        limit. From 10 s on, a line in the log names the late ranks, every 30 s. A rank that dies or
        makes another call ends a wait at once.
    start_timeout : float or None, optional
        The same for ranks of which nothing has been heard: here, and when the processes end with
        MPI_Finalize. If you pass only `timeout`, it is this limit too. If MPI_Init takes longer,
        which no exception can end, the process prints an error and ends with exit code 1.
    nan_policy : {"propagate", "error"}, optional
        The treatment of NaN and infinity in deltas, in the parameters of a `ParamSync` or an
        adapter, and in aggregated arrays. "propagate" adds them, as NumPy does. "error" raises a
        ValueError that names the first such element, and applies nothing; the check costs a pass
        over the data of each call. Each rank may choose differently. Integers are not affected.
    on_peer_lost : {"fail", "continue"}, optional
        The reaction when a rank dies or leaves without `shutdown`. With "fail", ranks that wait for
        the lost rank get `PeerLostError`. With "continue", in async mode on one node, the other
        ranks continue, and keep every add that has returned; collective calls such as `barrier`,
        `save` and `shutdown` do not wait for the lost rank. On several nodes, "continue" is a
        ValueError: start the job again from a checkpoint.
    peer_timeout : float, optional
        Seconds that a rank may be without a heartbeat, because its process is suspended or its
        machine is unreachable. After a third of the time the rank is logged. After all of it, ranks
        that wait get `OperationTimeout`, or `PeerLostError` if a whole machine is silent. In a
        session that continues without lost ranks, they end the process of the silent rank instead.
    name : str, optional
        The name by which other processes of this user on the machine read the tables, with
        `attach`. All ranks pass the same. Without a name, nobody can read them from outside.
    elastic : bool, optional
        True lets other processes of this user on the machine join later, and lets ranks leave: with
        `shutdown`, `leave` or by death, after which the others continue (docs/elastic.md). It needs
        one machine, and async mode or a staleness of 1 or more. ``multiverso run --elastic`` and
        ``multiverso join`` imply it. A session without a `name` is then called "job-PID".
    on_term : {"end", "leave"}, optional
        What SIGTERM does, which batch systems send before they end a job. "end" is what it did
        before. With "leave", this rank leaves at the end of a step: see `check_leaving`. The same
        on all ranks. It needs the main thread, roles of "all", and no `staleness` unless the
        session is elastic. docs/faults.md says what handlers and a second SIGTERM do.
    checkpoints : path, optional
        With ``on_term="leave"``, the folder, or its address, in which the ranks save before they
        leave together, or the last worker of an elastic session, as `save` does. `load` finds the
        tables there when the job starts again. All ranks pass one, or none does.

    Returns
    -------
    Session
        A context manager: the end of its block calls `shutdown`, or leaves after an exception.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid.
    StateError
        If a session with other options is open, MPI has been finalized, or ``on_term="leave"`` is
        given outside the main thread; for a process that is to join, if there is no such session,
        it is not elastic, it has no free place, or its last worker ends it because of SIGTERM.
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
    return _session.open_session(options)


@suggests_names
@takes_arguments_of(session_options)
@contextlib.contextmanager
def session(options: SessionOptions) -> Iterator[Session]:
    """Open a session for a ``with`` block. Parameters and errors are those of `init`.

    The session is shut down at the end of the block. If an exception ends the block, except
    SystemExit with code 0 or None, this rank leaves at once, and ranks that wait for it receive the
    reason. If a session with the same options is open already, the block uses it and keeps it open.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(3)
    ...     table.add([1, 2, 3])
    ...     table.get()
    array([1., 2., 3.], dtype=float32)

    """
    if _session.is_open():
        yield _session.open_session(options)
        return
    opened: Session | None = None
    try:
        opened = _session.open_session(options)
        with opened:
            yield opened
    except BaseException as error:  # perhaps of an interrupt just before or after the inner block
        left = _session.find()
        if left is not None and opened in (None, left):
            left.leave_with(f"its script left the session's block: {describe(error)}")
        raise


def finish() -> None:
    """Announce that this worker takes part in no further round of any table. Not collective.

    Call it on a worker with less data than the others: with ``sync=True`` or `staleness`, their
    rounds continue without this worker. The worker may still call `barrier` and get, which returns
    the state after the last complete round, and must call `shutdown`. In async mode it is a no-op.

    Raises
    ------
    StateError
        If no session is open. Later adds of this worker raise this error too.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(sync=True):
    ...     table = mv.ArrayTable(1)
    ...     for batch in range(3):
    ...         table.add([1])
    ...     mv.finish()
    ...     table.get()
    array([3.], dtype=float32)

    """
    current().finish()


def shutdown() -> None:
    """Close the session. Collective: waits until all ranks have called it.

    This frees all tables. `init` may be called again afterwards. Without a session this only warns
    (`RuntimeWarning`). In an elastic session it waits for nobody: the other ranks continue.

    Raises
    ------
    CheckpointIOError, OperationTimeout, PeerLostError, AbortedError
        If the background save failed, or another rank does not shut down. The session has ended
        nevertheless.
    ForkedError
        In a forked child of a process that has a session.

    Examples
    --------
    >>> import multiverso as mv
    >>> session = mv.init()
    >>> mv.shutdown()
    >>> session.closed
    True

    """
    if not _session.is_open():
        msg = "mv.shutdown() has no effect: no session is open"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
        return
    current().close()


def barrier() -> None:
    """Wait until all ranks have called this. A get after the barrier sees every add before it.

    Raises
    ------
    StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
        If no session is open, or a rank does not call `barrier`. The message names the rank.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(1)
    ...     table.add([1])
    ...     mv.barrier()
    ...     int(table.get()[0]) == mv.num_workers()
    True

    """
    current().barrier()
