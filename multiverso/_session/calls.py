"""The functions of the session of this process: its calls, what describes it, its membership."""

from collections.abc import Callable
from typing import TypeVar

from multiverso._native.arguments import suggests_names
from multiverso._native.places import StrPath
from multiverso._session.membership import Membership
from multiverso._session.options import ReduceOp
from multiverso._session.process import current, find
from multiverso._session.session import Session

_Array = TypeVar("_Array")


def aggregate(array: _Array, op: ReduceOp = "sum") -> _Array:
    """Sum an array over the workers, in place. Collective over the workers: waits for all.

    The results are bitwise identical on all workers, because the array of each worker has its place
    in a pairwise sum. With ``op="mean"`` they average a model.

    Parameters
    ----------
    array : ndarray, any shape
        The array, or another object with such memory, which must be writable. Size and dtype must
        be the same on all workers. The dtype is float16, bfloat16, float32, float64, int8, int16,
        int32, int64, uint8 or bool. 16-bit floats are summed in float32, and rounded once.
    op : {"sum", "mean", "product", "min", "max", "and", "or", "xor"}, optional
        The operation. "mean" is for floats, and "and", "or" and "xor" are for the bits of integers
        and for bools. As in NumPy, integers wrap around, a minimum or maximum with a NaN is NaN,
        and the sum of bools is their "or".

    Returns
    -------
    ndarray
        The same `array`.

    Raises
    ------
    TypeError, ValueError
        If `array` is not writable or has another dtype, or `op` is not for its dtype; with
        ``nan_policy="error"`` also if it is not finite. The other workers then wait for this one.
    StateError, MismatchError, OperationTimeout, PeerLostError, AbortedError
        If this rank is not a worker; if not all workers make the call, with the same size, dtype
        and operation.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> with mv.init():
    ...     mv.aggregate(np.ones(3, np.float32), op="mean")
    array([1., 1., 1.], dtype=float32)

    """
    return current().aggregate(array, op)


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
        created if it does not exist. With the package fsspec also an address such as
        "s3://bucket/run", to which a thread sends what has been saved (docs/checkpoints.md).
    step : int, optional
        The number that `load` returns, such as a count of batches; by default the last step plus 1.
    keep : int, optional
        The number of checkpoints to keep in the folder, including the new one. Older ones are
        removed when the new one is complete. By default all are kept.
    background : bool, optional
        True returns as soon as every rank has copied its part to memory, and writes the files while
        the training continues. The memory for the copies is kept for the next save.
    incremental : bool, optional
        True writes only the rows that have changed since this session's last save into the folder,
        and links the files of that save, so that the checkpoint is complete. docs/checkpoints.md
        says when the save is full nevertheless.

    Raises
    ------
    CheckpointIOError
        On all ranks, if a file cannot be written; earlier checkpoints are unchanged. For a save
        in the background, the next `save`, `load`, `wait_for_save` or `shutdown` raises it.
    MemoryError
        If there is not enough memory for the copies.
    TypeError, ValueError, StateError, MismatchError, OperationTimeout, PeerLostError, AbortedError
        As for all collective calls (docs/errors.md), after a minute more for each 1.2 GB.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, [1, 2], name="w")
    ...     mv.save(folder, step=7, keep=3)
    ...     table.add([10, 10])
    ...     print(mv.load(folder), table.get())
    7 [1. 2.]

    """
    current().save(directory, step, keep, background, incremental)


def wait_for_save() -> None:
    """Wait until the background save, if any, is complete. Collective over all ranks.

    Raises
    ------
    CheckpointIOError
        On all ranks, if the background save failed.
    StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
        As for `save`.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder, background=True)
    ...     table.add([1, 1])  # while the files are written
    ...     mv.wait_for_save()

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
        A checkpoint, or a folder of checkpoints, from which the last one saved is loaded; also
        an address.
    missing_ok : bool, optional
        Whether to return None if there is no checkpoint, as in the first run of a job.

    Returns
    -------
    int or None
        The step of the checkpoint; None if there is no checkpoint.

    Raises
    ------
    CheckpointIOError, CheckpointCorruptError
        On all ranks, if there is no checkpoint, it cannot be read, or a file has changed since the
        save. The tables are unchanged.
    MismatchError
        If the tables differ from those in the checkpoint, or the ranks pass different arguments.
    StateError, OperationTimeout, PeerLostError, AbortedError
        As for `save`.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     first = mv.load(folder, missing_ok=True) or 0
    >>> first
    0

    """
    step: int | None = current().load(directory, missing_ok)
    return step


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
        are 0 on one node. In sync mode, the round leader of a node, its first worker, exchanges the
        messages for its workers, and the waits for rounds are not counted. Tables beyond the 64th
        are not listed.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(10, name="w")
    ...     table.add([1] * 10)
    ...     mv.stats()["w"]["bytes_added"]
    40

    """
    return current().stats()


def is_leaving() -> bool:
    """Return whether the ranks of this job are to leave, because SIGTERM was sent to one of them.

    Does not wait, and works in any thread. In an elastic session it is about this worker alone. It
    is False without ``mv.init(on_term="leave")``.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(on_term="leave"):
    ...     mv.api.is_leaving()
    False

    """
    return current().is_leaving()


@suggests_names
def check_leaving(step: int | None = None, *, before: Callable[[], object] | None = None) -> None:
    """End this rank if it is to leave, after a save. Call it at the end of each step.

    It returns at once without ``mv.init(on_term="leave")``, and in async mode as long as nobody has
    received SIGTERM. When a rank has, all ranks leave together: they wait until all have called
    this, save in the folder `checkpoints` of `init`, shut down and end with exit code 143, or with
    1 if there is neither a folder nor `before`. If a rank makes another collective call instead,
    all continue, and ask again at their next `check_leaving`. In an elastic session only that
    worker leaves, with exit code 0, and the last one saves. docs/faults.md has the other cases.

    Before the save, adapters add the deltas since their last syncs. `Work` makes this call for each
    item, and the adapters of Keras, PyTorch and JAX after each step, unless your program does: they
    know no step, so the checkpoint gets the last one plus 1, as by `save`. In sync mode all ranks
    make it equally often, and it waits for all of them each time, like a `barrier`.

    In a thread, the call ends that thread, and the main thread when it runs again.

    Parameters
    ----------
    step : int, optional
        The step of this rank. The checkpoint gets the smallest of all ranks, for `load` to return.
    before : callable, optional
        What this rank does before the save, for instance write files of its own. A rank that is in
        `shutdown` has nothing to do.

    Raises
    ------
    SystemExit
        To end this process. ``finally`` blocks run.
    CheckpointIOError
        On all ranks that save, if the save failed.
    StateError, OperationTimeout, PeerLostError, AbortedError
        If another rank makes neither this call nor another collective one.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(on_term="leave", checkpoints="saved"):
    ...     weights = mv.ArrayTable(3, name="weights")
    ...     first = mv.load("saved", missing_ok=True) or 0
    ...     for step in range(first, 100):
    ...         weights.add([0.1, 0.2, 0.3])
    ...         mv.check_leaving(step + 1)

    """
    current().check_leaving(step, before=before)


def current_session() -> Session:
    """Return the open session.

    Raises
    ------
    StateError, ForkedError
        If no session is open, or this is a forked child of a process that has one.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     mv.api.current_session() is session
    True

    """
    return current()


def lost_ranks() -> tuple[int, ...]:
    """Return the result of `Session.lost_ranks`, which replaces this function."""
    return current().lost_ranks()


def leave() -> None:
    """Call `Session.leave`, which replaces this function."""
    current().leave()


def membership() -> Membership:
    """Return the result of `Session.membership`, which replaces this function."""
    return current().membership()


def on_membership(callback: Callable[[Membership], None]) -> None:
    """Call `Session.on_membership`, which replaces this function."""
    current().on_membership(callback)


def is_initialized() -> bool:
    """Return whether a session is open in this process.

    Examples
    --------
    >>> import multiverso as mv
    >>> mv.is_initialized()
    False

    """
    return find() is not None


def rank() -> int:
    """Return the rank of this process in the session, from 0.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.rank()
    0

    """
    return current().rank


def size() -> int:
    """Return the number of ranks in the session; if elastic, of those that have ever joined.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.size()
    1

    """
    return current().size


def num_workers() -> int:
    """Return the number of ranks that train; in an elastic session, their current number.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mine = range(10)[mv.worker_id() :: mv.num_workers()]
    ...     len(mine)
    10

    """
    return current().num_workers


def num_servers() -> int:
    """Return the number of ranks that keep a part of the tables.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     session.num_servers
    1

    """
    return current().num_servers


def workers_num() -> int:
    """Return `num_workers`; older scripts use this name."""
    return num_workers()


def servers_num() -> int:
    """Return `num_servers`; older scripts use this name."""
    return num_servers()


def worker_id() -> int:
    """Return the index of this worker, from 0 in rank order; -1 on a rank that is not a worker.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.worker_id()
    0

    """
    return current().worker_id


def server_id() -> int:
    """Return the index of this server, from 0 in rank order; -1 on a rank that is not a server.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     session.server_id
    0

    """
    return current().server_id


def is_master_worker() -> bool:
    """Return whether this is the master: its initial values are used; it usually prints and saves.

    The master is worker 0, or the first remaining worker if the session continues without worker 0.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     if mv.is_master_worker():
    ...         print("written once")
    written once

    """
    return current().is_master_worker()
