"""Tables: arrays and matrices of parameters that every worker can add to and get from."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from multiverso import _session
from multiverso._native import arrays, capi
from multiverso._native.arguments import integer
from multiverso._native.library import checked
from multiverso.initializers import Initializer
from multiverso.tables._background import FreshGets, Future, require_async_mode
from multiverso.tables._changes import Changes
from multiverso.tables._dense_table import DenseTable, checked_sync
from multiverso.tables._hash_table import HashTableHandler
from multiverso.tables._ids import as_ids, hash_keys
from multiverso.tables._table import copier

__all__ = [
    "ArrayTableHandler",
    "Changes",
    "Future",
    "HashTableHandler",
    "MatrixTableHandler",
    "hash_keys",
]

_run: Final = checked.MV_TableRun


class ArrayTableHandler(DenseTable):
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
    dtype : {"float32", "float64", "int32", "int64", "float16", "bfloat16"}, optional
        The type in which the parameters are stored, in any form that NumPy accepts. With float16
        and bfloat16, deltas, results and state are float32, and an add rounds the new parameters
        stochastically, so that small steps are not lost on average. bfloat16 needs ml_dtypes.
    updater : str, optional
        How `add` applies a delta. "add" makes ``w += delta``. "sgd", "momentum", "nesterov",
        "adagrad", "rmsprop", "adadelta", "adam", "adamw", "amsgrad", "rowwise_adagrad",
        "rowwise_adam", "dcasgd", "dcasgda" and "ftrl" make one step of that optimizer, with the
        delta as the gradient; the row-wise ones are for matrices. "easgd" makes
        ``w += elastic_force * (delta - w)``, with the worker's own parameters as the delta.
        docs/updaters.md has the formulas and their sources. All but "add" require floating-point
        numbers.
    name : str, optional
        The name in messages and checkpoints; by default "table N", counted per session.
    max_bytes : int, optional
        The most bytes of parameters and state on each node, counted in rows that have been changed.
        A call that needs more raises `MemoryError` and changes nothing. Without an initializer, it
        implies ``initializers.Zeros()``. By default, the memory of the machine is the limit.
    numa : {"interleave"}, optional
        Spreads the memory over the NUMA nodes of the machine. By default a page is where the rank
        runs that touches it first.
    wire : {"float32", "bfloat16", "int8"}, optional
        How values of float32 travel between nodes: "bfloat16" halves their bytes, and "int8"
        divides those of deltas by 3.94. An add is then rounded at random, so that the expected
        value is exact, and a get returns values rounded to bfloat16, except ``get(sync=True)``.
        docs/slow-links.md describes the formats and rounds. On one node, it changes nothing.
    **options : float
        Options of the updater, with the names that Keras uses; None means the default.
        In the order of `updater` above: learning_rate (0.01 for "sgd", "momentum", "nesterov",
        "dcasgd" and "dcasgda", 0.001 for the others), momentum (0.9; 0 for "rmsprop"),
        initial_accumulator_value (0.1), rho (0.9 for "rmsprop", 0.95 for the others), beta_1 (0.9),
        beta_2 (0.999), epsilon (1e-7), variance_control (0.04 for "dcasgd", 2 for "dcasgda"),
        learning_rate_power (-0.5), l1_regularization_strength, l2_regularization_strength,
        l2_shrinkage_regularization_strength and beta (0), elastic_force (0.1), outer_epsilon
        (0), weight_decay (0; 0.004 for "adamw"), clipnorm and clipvalue (0, for none).

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. The other ranks get a `MismatchError`.
    MismatchError
        If another rank creates a different table. The message describes both.
    MemoryError
        On all ranks, if there is not enough memory. The session stays usable. A table with an
        initializer may be larger than the memory.
    StateError
        If no session is open.
    OperationTimeout, PeerLostError, AbortedError
        If a rank does not create the table. The message names the rank.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.ArrayTableHandler(3, init_value=[1, 2, 3])
    ...     table.add([10, 10, 10])
    ...     table.get()
    array([11., 12., 13.], dtype=float32)
    >>> with mv.session():
    ...     table = mv.ArrayTableHandler(2, updater="momentum", learning_rate=0.5, momentum=0.5)
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
        *,
        dtype: DTypeLike = "float32",
        updater: str = "add",
        name: str | None = None,
        max_bytes: int | None = None,
        numa: str | None = None,
        wire: str | None = None,
        **options: float | None,
    ) -> None:
        super().__init__(
            lambda: _array_shape(size),
            init_value,
            dtype,
            updater,
            name,
            max_bytes,
            numa,
            wire,
            options,
        )

    def get(self, sync: bool = False, out: Any = None, index: Any = None) -> Any:
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
        IndexError
            If an integer in `index` is out of range.
        TypeError, ValueError
            If `out` is not a writable array of the right dtype and shape, or `index` is not one of
            integers and slices of step 1.
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
        ...     table = mv.ArrayTableHandler(2, init_value=0.5)
        ...     values = np.empty(2, np.float32)
        ...     table.get(out=values) is values
        True

        """
        return self._get(sync, out) if index is None else self._get_part(index, sync, out)

    def add(self, data: ArrayLike, sync: bool = False, index: Any = None) -> None:
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
        IndexError
            If an integer in `index` is out of range.
        TypeError, ValueError
            If `data` has another shape, cannot be cast, or is not finite with
            ``nan_policy="error"`` of `multiverso.init`; or `index` is not one of integers and
            slices of step 1. The table is unchanged.
        UnsupportedError
            If the updater cannot update the part alone. The message says what to do.
        MemoryError
            If the table has an initializer, and there is no memory for the elements that `data`
            changes for the first time. The table is unchanged.
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

    def peek(self, out: Any = None) -> Any:
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
        TypeError, ValueError
            If `out` is not a writable array of the right dtype and shape.
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError
            If a rank that is applying the last round, or a server of another node, does not answer.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.ArrayTableHandler(2)
        ...     table.add([1, 2])
        ...     table.peek()
        array([1., 2.], dtype=float32)

        """
        return self._peek(b"get", None, self._shape, out)

    def get_async(self, out: Any = None) -> Future:
        """Begin a `get` in the background.

        A thread of the library makes the background calls of a table in the order in which they
        were started, while the program continues. Every other call on the table waits for them, so
        a worker's calls on a table always run in the order of the program.

        Parameters
        ----------
        out : array of shape (size,) and the table's dtype or value_dtype, optional
            The array to write the values to. Do not use it until the call has ended.

        Returns
        -------
        multiverso.tables.Future
            Its ``result()`` waits for the call and returns `out`, or a new array.

        Raises
        ------
        TypeError, ValueError, StateError
            As for `get`. All other errors of `get` are raised by the future.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTableHandler(2)
        ...     pushed = table.add_async([1, 2])
        ...     table.get_async().result()
        array([1., 2.], dtype=float32)

        """
        return self._get_async(out)

    def add_async(self, data: ArrayLike) -> Future:
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


class MatrixTableHandler(DenseTable):
    """A table of two dimensions, with operations on rows. The constructor is collective.

    Parameters
    ----------
    num_row, num_col : int
        Numbers of rows and columns, 1 or more.
    init_value : array_like, scalar or Initializer, optional
        The initial values, of shape (num_row, num_col) or (num_row * num_col,); zeros by default.
        Otherwise as for `ArrayTableHandler`.
    dtype, updater, name, max_bytes, numa, wire, **options : optional
        As for `ArrayTableHandler`. The updaters keep their state per element, and "adam" counts
        the updates of each row, so that an add to some rows has no effect on the others.

    Raises
    ------
    TypeError, ValueError, MismatchError, MemoryError, StateError
        As for `ArrayTableHandler`.
    OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTableHandler`.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     matrix = mv.MatrixTableHandler(3, 2)
    ...     matrix.add([[1, 2], [3, 4]], row_ids=[0, 2])
    ...     matrix.get()
    array([[1., 2.],
           [0., 0.],
           [3., 4.]], dtype=float32)

    """

    __slots__ = ("_fresh_gets",)
    _kind = capi.MV_TABLE_MATRIX

    def __init__(
        self,
        num_row: int,
        num_col: int,
        init_value: ArrayLike | Initializer | None = None,
        *,
        dtype: DTypeLike = "float32",
        updater: str = "add",
        name: str | None = None,
        max_bytes: int | None = None,
        numa: str | None = None,
        wire: str | None = None,
        **options: float | None,
    ) -> None:
        super().__init__(
            lambda: _matrix_shape(num_row, num_col),
            init_value,
            dtype,
            updater,
            name,
            max_bytes,
            numa,
            wire,
            options,
        )
        self._fresh_gets = FreshGets()

    @property
    def num_row(self) -> int:
        """The number of rows."""
        return self._shape[0]

    @property
    def num_col(self) -> int:
        """The number of columns."""
        return self._shape[1]

    def get(
        self, row_ids: Any = None, sync: bool = False, out: Any = None, index: Any = None
    ) -> Any:
        """Return the whole table, some rows, or a rectangle.

        The result contains all earlier adds of this worker, and at least the adds of the other
        workers before the last barrier. In sync mode the call waits for as many adds of each other
        worker as this one has made, and the result contains exactly those.

        Parameters
        ----------
        row_ids : array_like of int with shape (n,), optional
            The rows to return, in this order; a row may occur twice. All rows by default.
        sync : bool, optional
            True makes the call collective: all workers call it, each for its own rows, and see the
            same state, which contains every add before the call and none after it.
        out : array of shape (num_row, num_col) or (n, num_col), optional
            The array to write the values to, of the table's `dtype` or `value_dtype`. With an
            `index`, its shape is that of the part.
        index : int, slice or tuple of them, optional
            The part, as NumPy's basic indexing selects it, such as ``np.s_[5:9, :3]``. The step of
            a slice must be 1. It cannot be combined with `row_ids`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of that shape.

        Raises
        ------
        IndexError
            If a row id is negative or too large. The message gives its position and value. If an
            integer in `index` is out of range.
        TypeError, ValueError
            If the ids are not integers in one dimension, `index` is not one of integers and slices
            of step 1, or `out` is not a writable array of the right dtype and shape.
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            With ``sync=True`` or in sync mode, if another worker does not make the call; in a job
            of several nodes, if a server does not answer.

        """
        if index is not None:
            _require_no_row_ids(row_ids)
            return self._get_part(index, sync, out)
        if row_ids is None:
            return self._get(sync, out)
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        shape = (len(ids), self._shape[1])
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        if np.may_share_memory(ids, buffer):  # The library reads `ids` while it writes to `buffer`.
            ids = ids.copy()
        flags = 0 if sync is False else self._sync_flags(sync)
        ids_pin, sink = arrays.pointer(ids), arrays.pin(buffer)
        _run(self._handle, b"get_rows", ids_pin, len(ids), None, sink, buffer.size, flags)
        arrays.copy_out(buffer, target)
        return out

    def peek(self, row_ids: Any = None, out: Any = None) -> Any:
        """Return the table or some rows without taking part in a round, as in `ArrayTableHandler`.

        Parameters
        ----------
        row_ids : array_like of int with shape (n,), optional
            The rows to return, in this order; a row may occur twice. All rows by default.
        out : array of shape (num_row, num_col) or (n, num_col), optional
            The array to write the values to, of the table's `dtype` or `value_dtype`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of that shape.

        Raises
        ------
        IndexError, TypeError, ValueError
            As for `get`.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `ArrayTableHandler.peek`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.MatrixTableHandler(3, 2)
        ...     table.add([[1.0, 2.0]], row_ids=[1])
        ...     table.peek([1, 0])
        array([[1., 2.],
               [0., 0.]], dtype=float32)

        """
        if row_ids is None:
            return self._peek(b"get", None, self._shape, out)
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        return self._peek(b"get_rows", ids, (len(ids), self._shape[1]), out)

    def add(
        self, data: ArrayLike, row_ids: Any = None, sync: bool = False, index: Any = None
    ) -> None:
        """Apply a delta to the whole table, some rows or a rectangle with the table's updater.

        `data` can be reused when this returns.

        Parameters
        ----------
        data : array_like
            The delta, of shape (num_row, num_col) or (n, num_col), or flat with as many elements.
            It is cast to the table's `value_dtype` if NumPy's "same_kind" rule allows that; a
            C-contiguous array of that dtype is not copied.
        row_ids : array_like of int with shape (n,), optional
            The rows that the delta is for; all rows by default. With "add" and "sgd", a row that
            occurs twice gets two updates, one after the other; with "easgd" no row may occur twice;
            with the other updaters such a row gets one update with the sum of its deltas.
        sync : bool, optional
            As for `ArrayTableHandler.add`.
        index : int, slice or tuple of them, optional
            The part to change, as for `get`; `data` has its shape. Updaters that count updates
            ("adam" and others) or have state per row, and 16-bit tables, take only whole rows. So
            do all but "add" in sync mode.

        Raises
        ------
        IndexError
            If a row id is negative or too large. The message gives its position and value. If an
            integer in `index` is out of range.
        UnsupportedError
            If the updater cannot update the part alone. The message says what to do.
        TypeError, ValueError
            If the ids are not integers in one dimension, or `data` has another shape, cannot be
            cast, or is not finite with ``nan_policy="error"``. The table is unchanged after any of
            these errors.
        MemoryError
            If the table has an initializer, and there is no memory for the rows that `data` changes
            for the first time. The message has the numbers. The table is unchanged.
        StateError
            If this rank is not a worker or has finished, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            In sync mode or with staleness, if another worker takes no part in the rounds; in a job
            of several nodes, if a server does not answer.

        """
        if sync is not False:
            checked_sync(sync)
        if index is not None:
            _require_no_row_ids(row_ids)
            self._add_part(data, index)
            return
        if row_ids is None:
            self._fresh_gets.note(None)
            self._add(data)
            return
        ids, delta = self._rows_of(data, row_ids)
        self._fresh_gets.note(ids)
        ids_pin, source = arrays.pointer(ids), arrays.pointer(delta)
        _run(self._handle, b"add_rows", ids_pin, len(ids), source, None, delta.size, 0)

    def add_get(self, data: ArrayLike, out: Any = None) -> Any:
        """Apply a delta to the whole table and return the new values; see `Table.add_get`."""
        self._fresh_gets.note(None)
        return super().add_get(data, out)

    def get_async(self, row_ids: Any = None, out: Any = None, *, fresh: bool = False) -> Future:
        """Begin a `get` in the background.

        A thread of the library makes the background calls of a table in the order in which they
        were started, while the program continues. Every other call on the table waits for them, so
        a worker's calls on a table always run in the order of the program.

        Parameters
        ----------
        row_ids : array_like of int with shape (n,), optional
            The rows to return; all rows by default. They are copied.
        out : array of shape (num_row, num_col) or (n, num_col), optional
            The array to write the values to, of the table's `dtype` or `value_dtype`. Do not use it
            until the call has ended.
        fresh : bool, optional
            A get that you start k steps ahead lacks this worker's adds of those k steps. With
            ``fresh=True``, ``result()`` reads the rows again that `add`, `add_async` or `add_get`
            of this object have changed since; the others are not read twice. In async mode only.

        Returns
        -------
        multiverso.tables.Future
            Its ``result()`` waits for the call and returns `out`, or a new array.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError
            As for `get`. All other errors of `get` are raised by the future.

        """
        require_async_mode(fresh, _session.current().options.mode)
        if row_ids is None and not fresh:
            return self._get_async(out)
        ids = as_ids(
            range(self._shape[0]) if row_ids is None else row_ids, "row_ids", self._shape[0]
        )
        shape = (len(ids), self._shape[1])
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        finish = copier(buffer, target)
        if fresh:
            finish = self._fresh_gets.finisher(ids, out, self.get, finish)
        return self._background.start(b"get_rows", ids, None, buffer, out, finish)

    def add_async(self, data: ArrayLike, row_ids: Any = None) -> Future:
        """Begin an `add` in the background. The arguments are copied.

        The call itself waits only if more than 256 MiB of deltas are waiting to be added.

        Parameters
        ----------
        data, row_ids
            As for `add`.

        Returns
        -------
        multiverso.tables.Future
            As for `ArrayTableHandler.add_async`.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError
            As for `add`. All other errors of `add` are raised by the future.
        OperationTimeout
            If the deltas that are waiting leave no room within the session's timeout.

        """
        if row_ids is None:
            self._fresh_gets.note(None)
            return self._add_async(data)
        ids, delta = self._rows_of(data, row_ids)
        self._fresh_gets.note(ids)
        return self._background.start(b"add_rows", ids, delta, None)

    def _note_rows(self, first: int, count: int) -> None:
        if self._fresh_gets:
            self._fresh_gets.note(np.arange(first, first + count))

    def _rows_of(self, data: Any, row_ids: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        shape = (len(ids), self._shape[1])
        return ids, self._delta_of(data, (shape, (shape[0] * shape[1],)))


def _require_no_row_ids(row_ids: object) -> None:
    if row_ids is not None:
        msg = "row_ids: expected None with an index, received both"
        raise TypeError(msg)


def _array_shape(size: object) -> tuple[int]:
    if isinstance(size, list | tuple) and len(size) == 2:
        msg = f"size: expected an int, received {size!r}; for a matrix, use MatrixTableHandler"
        raise TypeError(msg)
    return (integer(size, "size", 1),)


def _matrix_shape(num_row: object, num_col: object) -> tuple[int, int]:
    rows = integer(num_row, "num_row", 1)
    columns = integer(num_col, "num_col", 1)
    integer(rows * columns, "num_row * num_col", 1)
    return rows, columns
