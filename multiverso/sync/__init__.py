"""Keep the parameters of a model in step with those of all other workers.

`ParamSync` is for programs whose parameters are NumPy arrays, or anything else with memory that
can be written to; the adapters for frameworks do the same with the framework's own objects.

    from multiverso.sync import ParamSync

    with mv.session():
        sync = ParamSync([weights, bias])  # from here on all workers have the master's values
        for batch in batches:
            train(weights, bias, batch)  # in place
            sync.sync()
"""

from collections.abc import Iterable
from typing import Any

from multiverso.sync._array_tensors import tensors_of
from multiverso.sync._tensor_sync import TensorSync
from multiverso.tables import ArrayTableHandler

__all__ = ["ParamSync"]


class ParamSync:
    """Arrays that each worker trains in place, and that are synchronised through a table.

    Making one is collective: all ranks make it of arrays of the same shapes and dtypes. When it
    returns, the arrays of all workers have the master's values.

    Parameters
    ----------
    arrays : iterable of array
        NumPy arrays of any shape, or objects that share their memory with NumPy, such as tensors
        of PyTorch on the CPU. Of float32, float64, int32, int64, float16, or the bfloat16 of the
        package ml_dtypes; different ones may be mixed. They are kept, and must not share memory
        among themselves. Those that are C-contiguous and not of half precision are worked on in
        place; of others there is a copy. What is of half precision is summed up in float32.
    name : str, optional
        What messages call it, "parameters" by default.
    overlap : bool, optional
        True: a thread exchanges what a sync has found while the program trains on, and the next
        sync brings the result, so that what others have learned arrives one sync later. For models
        where waiting shows. It takes two more copies of the arrays.
    updater : str, optional
        What becomes of what a worker has learned, as for `ArrayTableHandler`. With "add", the
        default, it is added. With an optimiser the opposite of it is the gradient of one step:
        many local steps are one step on the server, which with "nesterov" is DiLoCo (Douillard et
        al., arXiv:2311.08105). With "easgd" the arrays stay the worker's own, and a sync moves them
        and the table towards each other (Zhang et al., NIPS 2015, in the order of mpi_learn).
    **options : float
        Options of the updater, as for `ArrayTableHandler`.

    Raises
    ------
    ValueError
        If there are no arrays, or none has an element; if one cannot be written to, or shares
        memory with another.
    TypeError
        If something is no array, or of another dtype, or the updater has no such option, or is an
        optimiser and there are integers.
    MismatchError
        If another rank's arrays differ in number, shape or dtype, or it failed.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTableHandler`.

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
        updater: str = "add",
        **options: float | None,
    ) -> None:
        self._sync = TensorSync(lambda: tensors_of(arrays), name, overlap, updater, **options)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._sync.name

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come among the arrays."""
        return self._sync.tables

    def sync(self) -> None:
        """Add what this worker has learned since the last time, fetch what all have learned.

        The arrays are ``table + (array - last array)`` afterwards, and so is the table, unless its
        updater is another than "add": one add and one get, in one pass over the memory. It waits
        for other workers where the mode does: in sync mode all workers call it equally often, and,
        unless the updater is "easgd", end with the same bits.

        In the other modes, on one node, an interrupted call, by Ctrl-C or a deadline, leaves the
        arrays usable: the next call does the rest, and nothing is lost or added twice.

        Raises
        ------
        StateError
            If the session has been shut down, this rank is no worker or has called `finish`, or
            an earlier call failed in sync mode or on several nodes.
        OperationTimeout, PeerLostError, AbortedError
            If it has to wait for a worker that does not come. The message names it. With
            ``overlap=True`` it raises what the last exchange has raised, which is then made again.

        """
        self._sync.sync()

    def wait(self) -> None:
        """Wait for the exchange that the last sync has begun, and put its result into the arrays.

        To be called after the last sync of a program that has ``overlap=True``; it does nothing
        elsewhere. What all ranks do together, such as `multiverso.barrier`, waits for the exchange
        too, but leaves the arrays alone.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As `sync`.

        """
        self._sync.wait()

    def __repr__(self) -> str:
        """Return its name, and the size and dtype of each table."""
        tables = ", ".join(f"{table.size} {table.dtype}" for table in self.tables)
        return f"<ParamSync '{self.name}': {tables}>"
