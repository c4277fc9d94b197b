"""Tables of two dimensions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso import _session
from multiverso._native import capi
from multiverso._native.ids import as_ids
from multiverso.initializers import Initializer
from multiverso.tables._background import FreshGets, Future, require_async_mode
from multiverso.tables._dense_table import DenseTable, checked_sync
from multiverso.tables._options import document_options
from multiverso.tables._parts import require_no_row_ids
from multiverso.tables._shaped_table import input_shapes, matrix_shape

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.tables._options import TableOptions
    from multiverso.tables._types import Index, Out


@document_options
class MatrixTable(DenseTable):
    """A table of two dimensions, with operations on rows. The constructor is collective.

    It raises the errors of [`ArrayTable`][multiverso.tables.ArrayTable].

    Parameters
    ----------
    num_row, num_col : int
        Numbers of rows and columns, 1 or more.
    init_value : array_like, scalar or Initializer, optional
        The initial values, of shape (num_row, num_col) or (num_row * num_col,); zeros by default.
        Otherwise as for `ArrayTable`.
    dtype, updater, name, max_bytes, backing, numa, wire, **options : optional
        As for `multiverso.tables.TableOptions`. `help` of the class shows them here.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     matrix = mv.MatrixTable(3, 2)
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
        **options: Unpack[TableOptions],
    ) -> None:
        super().__init__(lambda: matrix_shape(num_row, num_col), init_value, options)
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
        self,
        row_ids: ArrayLike | None = None,
        sync: bool = False,
        out: Out | None = None,
        index: Index | None = None,
    ) -> Out:
        """Return the whole table, some rows, or a rectangle.

        Which adds the result contains, and what the call waits for, is as for `ArrayTable.get`.

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
        TypeError, ValueError, IndexError
            If the ids are not integers in one dimension, `index` is not one of integers and slices
            of step 1, one of them is out of range, or `out` is not a writable array of the right
            dtype and shape.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `ArrayTable.get`.

        """
        if index is not None:
            require_no_row_ids(row_ids)
            return self._get_part(index, sync, out)
        if row_ids is None:
            return self._get(sync, out)
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        flags = 0 if sync is False else self._sync_flags(sync)
        return self._read(b"get_rows", ids, (len(ids), self._shape[1]), out, flags)

    def peek(self, row_ids: ArrayLike | None = None, out: Out | None = None) -> Out:
        """Return the table or some rows without taking part in a round, as in `ArrayTable`.

        It raises the errors of [`ArrayTable.peek`][multiverso.tables.ArrayTable.peek], and for
        wrong arguments those of `get`.

        Parameters
        ----------
        row_ids, out : optional
            As for `get`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of shape (num_row, num_col) or (n, num_col).

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.MatrixTable(3, 2)
        ...     table.add([[1.0, 2.0]], row_ids=[1])
        ...     table.peek([1, 0])
        array([[1., 2.],
               [0., 0.]], dtype=float32)

        """
        if row_ids is None:
            return self._read(b"get", None, self._shape, out, capi.MV_PEEK)
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        return self._read(b"get_rows", ids, (len(ids), self._shape[1]), out, capi.MV_PEEK)

    def add(
        self,
        data: ArrayLike,
        row_ids: ArrayLike | None = None,
        sync: bool = False,
        index: Index | None = None,
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
            As for `ArrayTable.add`.
        index : int, slice or tuple of them, optional
            The part to change, as for `get`; `data` has its shape. Updaters that count updates
            ("adam" and others) or have state per row, and 16-bit tables, take only whole rows. So
            do all but "add" in sync mode.

        Raises
        ------
        TypeError, ValueError, IndexError, UnsupportedError
            As for `get` and `ArrayTable.add`. The table is unchanged after any of these errors.
        MemoryError
            If the table has an initializer, and there is no memory for the rows that `data` changes
            for the first time. The message has the numbers. The table is unchanged.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `ArrayTable.add`.

        """
        if sync is not False:
            checked_sync(sync)
        if index is not None:
            require_no_row_ids(row_ids)
            self._add_part(data, index)
            return
        if row_ids is None:
            self._fresh_gets.note(None)
            self._add(data)
            return
        ids, delta = self._rows_of(data, row_ids)
        self._write(b"add_rows", ids, delta)

    def add_get(self, data: ArrayLike, out: Out | None = None) -> Out:
        """Apply a delta to the whole table and return the new values; see `ArrayTable.add_get`."""
        self._fresh_gets.note(None)
        return super().add_get(data, out)

    def get_async(
        self, row_ids: ArrayLike | None = None, out: Out | None = None, *, fresh: bool = False
    ) -> Future[Out]:
        """Begin a `get` in the background.

        The order of the calls and the errors are those of
        [`ArrayTable.get_async`][multiverso.tables.ArrayTable.get_async].

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

        """
        require_async_mode(fresh, _session.current().options.mode_name)
        if row_ids is None and not fresh:
            return self._get_async(out)
        ids = as_ids(
            range(self._shape[0]) if row_ids is None else row_ids, "row_ids", self._shape[0]
        )
        finisher = functools.partial(self._fresh_gets.finisher, get=self.get) if fresh else None
        shape = (len(ids), self._shape[1])
        return self._read_in_background(b"get_rows", ids, shape, out, finisher)

    def add_async(self, data: ArrayLike, row_ids: ArrayLike | None = None) -> Future[None]:
        """Begin an `add` in the background, with its arguments, which are copied.

        When the call waits, its result and its errors are as for
        [`ArrayTable.add_async`][multiverso.tables.ArrayTable.add_async].
        """
        if row_ids is None:
            self._fresh_gets.note(None)
            return self._add_async(data)
        ids, delta = self._rows_of(data, row_ids)
        return self._background.start(b"add_rows", ids, delta, None)

    def _prepared(self, name: str, result: object, source: Any, *rest: Any) -> Callable[[], Any]:
        run = super()._prepared(name, result, source, *rest)
        if source is None:
            return run

        def run_noted() -> Any:
            self._fresh_gets.note(None)
            return run()

        return run_noted

    def _note_rows(self, first: int, count: int) -> None:
        if self._fresh_gets:
            self._fresh_gets.note(np.arange(first, first + count))

    def _rows_of(self, data: Any, row_ids: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the ids and the delta of an add, which is about to be made."""
        ids = as_ids(row_ids, "row_ids", self._shape[0])
        delta = self._delta_of(data, input_shapes((len(ids), self._shape[1])))
        self._fresh_gets.note(ids)
        return ids, delta
