"""Tables of one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from multiverso._native import capi
from multiverso.initializers import Initializer
from multiverso.tables._background import Future
from multiverso.tables._dense_table import DenseTable, checked_sync
from multiverso.tables._options import document_options
from multiverso.tables._shaped_table import array_shape

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.tables._options import TableOptions
    from multiverso.tables._types import Index, Out


@document_options
class ArrayTable(DenseTable):
    """A table of one dimension. The constructor is collective: all ranks create the same table.

    Parameters
    ----------
    size : int
        Number of elements, 1 or more.
    init_value : array_like of shape (size,), scalar or Initializer, optional
        The initial values; zeros by default. Only the master worker's are used, and every rank
        sees them when this returns. An initializer of `multiverso.initializers`, which all ranks
        pass, computes the values when they are read, and a row takes memory when it is first
        changed. Each element of an array is a row of its own.
    dtype, updater, name, max_bytes, backing, numa, wire, **options : optional
        As for `multiverso.tables.TableOptions`. `help` of the class shows them here.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. The other ranks get a `MismatchError`.
    MismatchError
        If another rank creates a different table. The message describes both.
    MemoryError
        On all ranks, if there is not enough memory. The session stays usable. A table with an
        initializer may be larger than the memory.
    StateError, OperationTimeout, PeerLostError, AbortedError
        If no session is open, or a rank does not create the table. The message names the rank.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTable(3, init_value=[1, 2, 3])
    ...     table.add([10, 10, 10])
    ...     table.get()
    array([11., 12., 13.], dtype=float32)
    >>> with mv.session():
    ...     table = mv.ArrayTable(2, updater="momentum", learning_rate=0.5, momentum=0.5)
    ...     table.add([1, 2])  # a gradient
    ...     table.set_option(learning_rate=0.25)
    ...     table.add_get([0, 0])
    array([-0.75, -1.5 ], dtype=float32)

    """

    __slots__ = ()
    _kind = capi.MV_TABLE_ARRAY

    def __init__(
        self,
        size: int,
        init_value: ArrayLike | Initializer | None = None,
        **options: Unpack[TableOptions],
    ) -> None:
        super().__init__(lambda: array_shape(size), init_value, options)

    def get(self, sync: bool = False, out: Out | None = None, index: Index | None = None) -> Out:
        """Return the whole table, or a part of it.

        The result contains all earlier adds of this worker, and at least the adds of the other
        workers before the last barrier. In sync mode the call waits for as many adds of each other
        worker as this one has made, and the result contains exactly those.

        Parameters
        ----------
        sync : bool, optional
            True makes the call collective: all workers call it and get bitwise identical values,
            which contain every add before the call and none after it.
        out : array of shape (size,) and the table's dtype or value_dtype, optional
            The array to write the values to. With an `index`, its shape is that of the part.
        index : int or slice, optional
            The part, as NumPy's basic indexing selects it, such as ``np.s_[-100:]``. The step of a
            slice must be 1.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        TypeError, ValueError, IndexError
            If `out` is not a writable array of the right dtype and shape, or `index` is out of
            range, or not one of integers and slices of step 1.
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            With ``sync=True`` or in sync mode, if another worker does not make the call; in a job
            of several nodes, if a server does not answer.

        Examples
        --------
        >>> import numpy as np
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTable(2, init_value=0.5)
        ...     values = np.empty(2, np.float32)
        ...     table.get(out=values) is values
        True

        """
        return self._get(sync, out) if index is None else self._get_part(index, sync, out)

    def add(self, data: ArrayLike, sync: bool = False, index: Index | None = None) -> None:
        """Apply a delta with the table's updater. `data` can be reused when this returns.

        Parameters
        ----------
        data : array_like of shape (size,)
            The delta. It is cast to the table's `value_dtype` if NumPy's "same_kind" rule allows
            that; a C-contiguous array of that dtype is not copied.
        sync : bool, optional
            The argument has no effect; older scripts pass it. An add always waits until the
            servers have received the delta, so that this worker's later gets contain the delta.
        index : int or slice, optional
            The part to change, as for `get`; `data` has its shape. Updaters that count updates
            ("adam" and others) and 16-bit arrays take only whole arrays.

        Raises
        ------
        TypeError, ValueError, IndexError
            If `data` has another shape, cannot be cast, or is not finite with
            ``nan_policy="error"`` of `multiverso.init`; or `index` is as `get` does not take it.
        UnsupportedError
            If the updater cannot update the part alone. The message says what to do.
        MemoryError
            If the table has an initializer, and there is no memory for the elements that `data`
            changes for the first time. The table is unchanged after this error and those above.
        StateError
            If this rank is not a worker or has finished, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            In sync mode or with staleness, if another worker takes no part in the rounds; in a job
            of several nodes, if a server does not answer.

        """
        if sync is not False:
            checked_sync(sync)
        if index is None:
            self._add(data)
        else:
            self._add_part(data, index)

    def peek(self, out: Out | None = None) -> Out:
        """Return the whole table without taking part in a round, for an evaluation on one worker.

        In sync mode the result is the state after the last round to which all workers have added.
        The call does not count, so the other workers need not make it, and it waits for no worker's
        next call; a `get` there is a call that all workers make. With bounded staleness the call
        returns the current values without waiting. In async mode it is a `get`.

        Parameters
        ----------
        out : array of shape (size,) and the table's dtype or value_dtype, optional
            The array to write the values to.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        TypeError, ValueError, StateError
            As for `get`.
        OperationTimeout, PeerLostError, AbortedError
            If a rank that is applying the last round, or a server of another node, does not answer.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.ArrayTable(2)
        ...     table.add([1, 2])
        ...     table.peek()
        array([1., 2.], dtype=float32)

        """
        return self._read(b"get", None, self._shape, out, capi.MV_PEEK)

    def get_async(self, out: Out | None = None) -> Future[Out]:
        """Begin a `get` in the background.

        A thread of the library makes the background calls of a table in the order in which they
        were started, while the program continues. Every other call on the table waits for them, so
        a worker's calls on a table always run in the order of the program.

        Wrong arguments raise as in [`get`][multiverso.tables.ArrayTable.get]; the future raises all
        other errors of `get`.

        Parameters
        ----------
        out : array of shape (size,) and the table's dtype or value_dtype, optional
            The array to write the values to. Do not use it until the call has ended.

        Returns
        -------
        multiverso.tables.Future
            Its ``result()`` waits for the call and returns `out`, or a new array.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTable(2)
        ...     pushed = table.add_async([1, 2])
        ...     table.get_async().result()
        array([1., 2.], dtype=float32)

        """
        return self._get_async(out)

    def add_async(self, data: ArrayLike) -> Future[None]:
        """Begin an `add` in the background. `data` is copied and can be reused when this returns.

        The call itself waits only if more than 256 MiB of deltas are waiting to be added.

        Parameters
        ----------
        data : array_like of shape (size,)
            The delta, as for `add`.

        Returns
        -------
        multiverso.tables.Future
            Its ``result()`` waits for the add and returns None. If you do not keep the future, its
            error is raised by the next `flush`, collective call, or end of the session.

        Raises
        ------
        TypeError, ValueError, StateError
            As for `add`. All other errors of `add` are raised by the future.
        OperationTimeout
            If the deltas that are waiting leave no room within the session's timeout.

        """
        return self._add_async(data)


class ExchangeTable(ArrayTable):
    """An array that each worker copies, whose `wire` also encodes the calls outside rounds."""

    __slots__ = ()
    _encodes_calls = True
