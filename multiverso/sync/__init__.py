"""Keeps the parameters of a model in sync between all workers.

`ParamSync` is for programs whose parameters are NumPy arrays or other objects with writable memory;
the adapters do the same for the parameters of a framework.

    from multiverso.sync import ParamSync

    with mv.session():
        sync = ParamSync([weights, bias])  # now all workers have the master's values
        for batch in batches:
            train(weights, bias, batch)  # in place
            sync.sync()
"""

from collections.abc import Iterable
from typing import Any

from multiverso.sync._array_tensors import tensors_of
from multiverso.sync._options import SyncOptions
from multiverso.sync._tensor_sync import TensorSync
from multiverso.sync._weighted_merge import Weight
from multiverso.tables import ArrayTable
from multiverso.tables._options import UpdaterName, Wire

__all__ = ["ParamSync"]


class ParamSync:
    """Synchronizes arrays that each worker trains in place, through tables.

    The constructor is collective: all ranks pass arrays of the same shapes and dtypes. On return
    the arrays of all workers have the master's values.

    Parameters
    ----------
    arrays : iterable of array
        NumPy arrays of any shape, or objects that share their memory with NumPy, such as PyTorch
        tensors on the CPU. Their dtypes may be float32, float64, int32, int64, float16, and the
        bfloat16 of the package ml_dtypes, in any mixture. `ParamSync` refers to the arrays,
        which must not share memory with each other. Arrays that are C-contiguous and not of half
        precision are updated in place; the others need a copy. Half precision is summed in float32.
    name : str, optional
        The name in messages, "parameters" by default.
    overlap : bool, optional
        True makes the exchanges in a background thread while the program trains. The next sync
        applies the result, so that updates of other workers arrive one sync later. Use `overlap` if
        waiting takes a visible part of the time. It needs memory for two more copies of the arrays.
    average : bool, optional
        True divides each worker's delta by the number of workers, so that together they take steps
        of the same size as one worker; by default, deltas are summed. The workers count equally,
        however many samples they train. The number is that of the workers at the creation, even if
        the session continues without a lost one; in an elastic session, it is the current number at
        each sync. Integers cannot be averaged and are those of the master. It requires the updater
        "add".
    updater : str, optional
        How a worker's delta is applied, as for `ArrayTable`. "add", the default, adds it.
        An optimizer uses the negative delta as the gradient of one step: many local steps become
        one step on the server, which with "nesterov" is DiLoCo (Douillard et al.,
        arXiv:2311.08105). With "easgd" each worker keeps its own values: a sync moves the table
        toward the arrays, then these toward the table's new values (Zhang et al., NIPS 2015).
    fragments : int, optional
        The number of parts, each of some of the arrays, that are synchronized at different times,
        so that a slow link is never needed for all of them at once (Streaming DiLoCo, Douillard et
        al., arXiv:2501.18512). Each part has tables of its own.
    sync_every : int, optional
        The number of calls of `sync` in which each fragment is synchronized once. The other calls
        only count.
    fragment_sync_delay : int, optional
        The number of steps for which a fragment is exchanged in the background before its result is
        applied, less than the steps from one fragment to the next. What this worker learns
        meanwhile is dropped, unless `fragment_update_alpha` keeps a share of it.
    fragment_update_alpha : float, optional
        The share of this worker's own values when a result is applied, from 0, the default, to 1:
        ``values = alpha * own + (1 - alpha) * result``. Both options have the meaning that they
        have in torchft's Streaming DiLoCo, and exclude `overlap` and "easgd". Integers have the
        share 0.
    wire : {"float32", "bfloat16", "int8"}, optional
        How values of float32 travel between nodes: "bfloat16" halves their bytes, and "int8"
        divides those of deltas by 3.94. What rounding takes from a delta stays in the arrays and is
        part of the next delta, so nothing is lost. docs/slow-links.md derives this. In sync mode,
        sums of deltas are rounded at random instead. On one node, it changes nothing.
    weight : float or callable, optional
        How much this worker trains between two syncs, for instance in tokens, or a function that
        returns it. A delta is multiplied by its weight divided by the mean of all workers' weights
        so far (Decoupled DiLoCo, arXiv:2604.21428). It needs floats, and an updater but "easgd".
    **options : float
        Options of the updater, as for `ArrayTable`.

    Raises
    ------
    TypeError, ValueError
        If an array is read-only, shares memory with another or has another dtype, or an option does
        not go with the others; the message says what was expected.
    MismatchError
        If the arrays or options of another rank differ, or that rank failed.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTable`.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.sync import ParamSync
    >>> with mv.session():
    ...     weights = np.zeros((2, 3), "float32")
    ...     sync = ParamSync([weights])
    ...     weights += 1  # training
    ...     sync.sync()
    ...     sync.tables[0].get()
    array([1., 1., 1., 1., 1., 1.], dtype=float32)

    """

    __slots__ = ("_sync",)

    def __init__(
        self,
        arrays: Iterable[Any],
        name: str | None = None,
        *,
        overlap: bool = False,
        average: bool = False,
        updater: UpdaterName = "add",
        fragments: int = 1,
        sync_every: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
        wire: Wire | None = None,
        weight: Weight | None = None,
        **options: float | None,
    ) -> None:
        given = SyncOptions(
            overlap,
            average,
            updater,
            fragments,
            sync_every,
            fragment_sync_delay,
            fragment_update_alpha,
            wire,
            weight,
        )
        self._sync = TensorSync(lambda: tensors_of(arrays, average=average), name, given, options)

    @property
    def name(self) -> str:
        """The name in messages."""
        return self._sync.name

    @property
    def tables(self) -> tuple[ArrayTable, ...]:
        """The tables: one for each dtype, in the order of their first use in the arrays."""
        return self._sync.tables

    def sync(self) -> None:
        """Add this worker's delta since the last sync, and fetch the values with all deltas.

        With `sync_every` or `fragments`, the call does so for the fragments that are due, if any;
        call `sync_all` for all of them, for instance when training ends.

        With the updater "add", arrays and table become ``table + (array - last array)``, where
        `average` divides the difference: one add and one get, in one pass over the memory. The call
        waits for other workers if the mode requires it. In sync mode all workers make equally many
        calls and, unless the updater is "easgd", end with bitwise identical arrays.

        In the other modes, on one node, a call that Ctrl-C or a deadline interrupts leaves the
        arrays usable: the next call resumes the sync, and no delta is lost or added twice.

        Raises
        ------
        StateError
            If the session has been shut down, this rank is not a worker or has called `finish`, or
            an earlier call failed in sync mode or on several nodes.
        OperationTimeout, PeerLostError, AbortedError
            If a worker that this call waits for does not call `sync`. The message names the worker.
            With ``overlap=True`` the error is that of the last exchange, which is then resumed.

        """
        self._sync.step()

    def sync_all(self) -> None:
        """Synchronize all fragments now, as `sync` does, and restart the count of calls.

        It raises the errors of [`sync`][multiverso.sync.ParamSync.sync].
        """
        self._sync.sync()

    def wait(self) -> None:
        """Wait for the exchange of the last sync, and apply its result to the arrays.

        With ``overlap=True``, call `wait` after the last sync; otherwise it is a no-op. Collective
        calls such as `multiverso.barrier` also wait for the exchange, but change no arrays.

        It raises the errors of [`sync`][multiverso.sync.ParamSync.sync].
        """
        self._sync.wait()

    def __repr__(self) -> str:
        """Return the name, and the size and dtype of each table."""
        tables = ", ".join(f"{table.size} {table.dtype}" for table in self.tables)
        return f"<ParamSync '{self.name}': {tables}>"
