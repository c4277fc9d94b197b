"""The base class of array and matrix tables: the calls on a whole table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from ctypes import byref, c_int32, c_int64, c_void_p
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso import _session, initializers
from multiverso._native import arrays, capi
from multiverso._native.arguments import flag, integer
from multiverso._native.arrays import pin
from multiverso._native.library import checked, undeclared
from multiverso.tables._background import Future
from multiverso.tables._parts import element_of, part_of
from multiverso.tables._shared_arrays import SharedArrays
from multiverso.tables._table import COLLECTIVE, Table, copier

# Globals, because looking up attributes would slow down the calls on small tables.
_ndarray: Final = np.ndarray
_table_get: Final = undeclared("MV_TableGet")
_table_add: Final = undeclared("MV_TableAdd")
_table_add_get: Final = undeclared("MV_TableAddGet")
_NO_FLAGS: Final = c_int32.from_param(0)
#: Integers from -_SMALL on and below _SMALL fit all dtypes.
_SMALL: Final = 2**31


class DenseTable(Table):
    """A table whose elements all have a place in one array.

    `_get`, `_add` and `add_get` start with the fast path: an array that needs no conversion is
    passed directly to the library. The functions of `arrays` convert everything else.
    """

    __slots__ = (
        "_count_argument",
        "_fast_add_shape",
        "_handle_argument",
        "_input_shapes",
        "_scalar",
        "_shape",
        "_shared_arrays",
    )

    def __init__(
        self,
        checked_shape: Callable[[], tuple[int, ...]],
        init_value: object,
        dtype: object,
        updater: object,
        name: object,
        max_bytes: object,
        numa: object,
        wire: object,
        options: dict[str, Any],
    ) -> None:
        """Create the table together with all ranks; `checked_shape` raises for an invalid shape."""

        def configure(raw: capi.MV_TableOptions) -> NDArray[Any] | None:
            nonlocal init_value
            session = _session.current()
            self._shape = checked_shape()
            raw.num_row, raw.num_col = (*self._shape, 1)[:2]
            self._input_shapes = _input_shapes(self._shape)
            # nan_policy="error" must scan every delta, so it disables the fast path of adds.
            self._fast_add_shape = None if self._requires_finite else self._shape
            if init_value is None and max_bytes is not None:
                init_value = initializers.Zeros()
            if isinstance(init_value, initializers.Initializer):
                initializers.set_initializer(raw, init_value, self._dtype)
                self._initializer = init_value
                init_value = None
            # If ranks may be lost, any worker may become the master, so each passes its values.
            return _initial_values(
                init_value, self._dtype, self._input_shapes, session.may_be_master
            )

        super().__init__(configure, dtype, updater, name, max_bytes, numa, wire, options)
        self._shared_arrays: SharedArrays | None = None
        # Arguments that ctypes need not convert in each call.
        self._handle_argument = c_void_p.from_param(self._handle.value)
        self._count_argument = c_int64.from_param(math.prod(self._shape))
        self._scalar: Any = np.ctypeslib.as_ctypes_type(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table: (size,), or (num_row, num_col)."""
        return self._shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    def _sync_flags(self, sync: object) -> c_int32:
        """Return the flags of a get with this `sync`."""
        return COLLECTIVE if checked_sync(sync) else c_int32(0)

    def _get(self, sync: bool, out: Any) -> Any:
        flags = _NO_FLAGS if sync is False else self._sync_flags(sync)
        if (
            type(out) is _ndarray
            and out.dtype is self._dtype
            and out.shape == self._shape
            and out.flags.carray
        ):
            _table_get(self._handle_argument, pin(out), self._count_argument, flags)
            return out
        if out is None:
            fresh = np.empty(self._shape, self._dtype)
            _table_get(self._handle_argument, pin(fresh), self._count_argument, flags)
            return fresh
        buffer, target = self._output(out, self._shape)
        _table_get(self._handle_argument, pin(buffer), self._count_argument, flags)
        arrays.copy_out(buffer, target)
        return out

    def _add(self, data: Any) -> None:
        if (
            type(data) is _ndarray
            and data.dtype is self._dtype
            and data.shape == self._fast_add_shape
            and data.flags.carray
        ):
            _table_add(self._handle_argument, pin(data), self._count_argument)
            return
        delta = self._delta_of(data, self._input_shapes)
        _table_add(self._handle_argument, arrays.pointer(delta), self._count_argument)

    def _get_part(self, index: Any, sync: bool, out: Any) -> Any:
        numbers, shape = part_of(index, self._shape)
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        flags: Any = 0 if sync is False else self._sync_flags(sync)
        checked.MV_TableGetPart(self._handle, *numbers, pin(buffer), flags)
        arrays.copy_out(buffer, target)
        return out

    def _add_part(self, data: Any, index: Any) -> None:
        numbers, shape = part_of(index, self._shape)
        delta = self._delta_of(data, (shape,))
        self._note_rows(numbers[0], numbers[1])
        checked.MV_TableAddPart(self._handle, *numbers, arrays.pointer(delta))

    def _note_rows(self, first: int, count: int) -> None:
        """Record that this object is about to change rows."""

    def fetch_add(self, index: Any, delta: Any = 1) -> Any:
        """Add to one element, and return its value before, as one atomic step.

        So a table is a counter that all workers share: no two calls return the same value. The
        updater must be "add", and the dtype must not have 16 bits. With bounded staleness the call
        counts and waits for nothing. If the element's server dies meanwhile and the session
        continues (``on_peer_lost="continue"``), the call nevertheless adds once.

        Parameters
        ----------
        index : int or pair of int
            The element; an int for an array, a pair for a matrix. A negative number counts from the
            end.
        delta : scalar, optional
            What to add; it is cast as `add` casts its data. Integers wrap around.

        Returns
        -------
        scalar of the table's dtype
            The value before.

        Raises
        ------
        TypeError, ValueError, IndexError
            If an argument is invalid.
        UnsupportedError
            If the table has another updater or 16 bits, or the session is in sync mode.
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError
            In a job of several nodes, if the server does not answer.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     counter = mv.ArrayTableHandler(1, dtype="int64")
        ...     [int(counter.fetch_add(0)) for _ in range(3)]
        [0, 1, 2]

        """
        row, column = element_of(index, self._shape)
        source, before = self._scalar_of(delta, "delta"), self._scalar()
        self._note_rows(row, 1)
        checked.MV_TableFetchAdd(self._handle, row, column, byref(source), byref(before))
        return self._dtype.type(before.value)

    def compare_swap(self, index: Any, expected: Any, new: Any) -> Any:
        """Set one element to `new` if it equals `expected`, and return its value before.

        This is one atomic step, which has changed the element if the result equals `expected`. NaN
        equals nothing. Everything else is as for `fetch_add`.

        Parameters
        ----------
        index : int or pair of int
            The element, as for `fetch_add`.
        expected, new : scalar
            The values; they are cast as `add` casts its data.

        Returns
        -------
        scalar of the table's dtype
            The value before.

        Raises
        ------
        TypeError, ValueError, IndexError, UnsupportedError, StateError
            As for `fetch_add`.
        OperationTimeout, PeerLostError
            As for `fetch_add`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     owner = mv.ArrayTableHandler(10, dtype="int32")
        ...     if owner.compare_swap(3, 0, 7) == 0:
        ...         print("item 3 belongs to 7")
        item 3 belongs to 7

        """
        row, column = element_of(index, self._shape)
        old, source = self._scalar_of(expected, "expected"), self._scalar_of(new, "new")
        before = self._scalar()
        self._note_rows(row, 1)
        checked.MV_TableCompareSwap(
            self._handle, row, column, byref(old), byref(source), byref(before)
        )
        return self._dtype.type(before.value)

    def _scalar_of(self, value: Any, what: str) -> Any:
        """Return a ctypes object with a value that the library can add or store."""
        if type(value) is int and -_SMALL <= value < _SMALL:
            return self._scalar(value)
        return self._scalar.from_buffer_copy(self._delta_of(value, ((),), what))

    def add_get(self, data: ArrayLike, out: Any = None) -> Any:
        """Apply a delta to the whole table and return the new values, in one pass over the memory.

        Parameters
        ----------
        data : array_like of the table's shape, or flat with as many elements
            The delta, as for `add`.
        out : array of the table's shape and dtype, optional
            The array to write the values to; it may be `data` itself.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of the table's shape.

        Raises
        ------
        TypeError, ValueError, StateError
            As for `add` and `get`. The table is unchanged.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `add` and `get`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     mv.ArrayTableHandler(2, dtype="int64").add_get([3, 4])
        array([3, 4])

        """
        if out is None:
            out = np.empty(self._shape, self._dtype)
        if (
            type(data) is _ndarray
            and type(out) is _ndarray
            and data.dtype is self._dtype
            and out.dtype is self._dtype
            and data.shape == self._fast_add_shape
            and out.shape == self._shape
            and data.flags.carray
            and out.flags.carray
        ):
            source = pin(data)
            sink = source if data is out else pin(out)
            try:
                _table_add_get(self._handle_argument, source, sink, self._count_argument)
            except ValueError:
                pass  # The library rejects arrays that overlap.
            else:
                return out
        buffer, target = self._output(out, self._shape)
        delta = self._delta_of(data, self._input_shapes)
        if np.may_share_memory(delta, buffer):
            delta = delta.copy()
        sink = pin(buffer)
        _table_add_get(self._handle_argument, arrays.pointer(delta), sink, self._count_argument)
        arrays.copy_out(buffer, target)
        return out

    def get_changed(self, since: int = 0) -> tuple[NDArray[np.int64], NDArray[Any], int]:
        """Return what has changed since an earlier call, for a copy of the table elsewhere.

        Changes are tracked for pieces of 64 KiB, so the result contains all rows of each piece of
        which at least one row has changed. A change that happens during the call is in its result
        or in that of the next call. In sync mode the call counts as two gets.

        Parameters
        ----------
        since : int, optional
            The version that an earlier call, on any worker, returned. 0 returns all rows; of a
            table with an initializer, those that have ever changed.

        Returns
        -------
        row_ids : numpy.ndarray of int64, shape (n,)
            The rows that may have changed, in ascending order; the elements of an array.
        values : numpy.ndarray of shape (n,) or (n, num_col)
            Their current values, exactly as `get` returns them.
        version : int
            The number to pass to the next call.

        Raises
        ------
        TypeError, ValueError
            If `since` is not an integer of 0 or more.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `get`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.MatrixTableHandler(100_000, 16)
        ...     copy = table.get()
        ...     *_, version = table.get_changed()
        ...     table.add([[1.0] * 16], row_ids=[50_000])
        ...     row_ids, values, version = table.get_changed(version)
        ...     copy[row_ids] = values
        ...     (len(row_ids), 50_000 in row_ids, (copy == table.get()).all())
        (1024, True, np.True_)

        """
        since = integer(since, "since", 0)
        ranges = (c_int64 * (2 * self._description().max_changes))()
        count, version = c_int64(), c_int64()
        checked.MV_TableListChanges(self._handle, since, ranges, byref(count), byref(version))
        pairs = np.frombuffer(ranges, np.int64)[: 2 * count.value].reshape(-1, 2)
        row_ids = np.concatenate([np.empty(0, np.int64), *(np.arange(*pair) for pair in pairs)])
        values = np.empty((len(row_ids), *self._shape[1:]), self._dtype)
        if len(row_ids) == self._shape[0]:
            checked.MV_TableGet(self._handle, arrays.address(values), values.size, 0)
        else:
            checked.MV_TableGetRows(
                self._handle,
                arrays.address(row_ids),
                len(row_ids),
                arrays.address(values),
                values.size,
                0,
            )
        return row_ids, values, version.value

    def _get_async(self, out: Any) -> Future:
        if out is None:
            out = np.empty(self._shape, self._dtype)
        buffer, target = self._output(out, self._shape)
        return self._background.start(b"get", None, None, buffer, out, copier(buffer, target))

    def _add_async(self, data: Any) -> Future:
        delta = self._delta_of(data, self._input_shapes)
        return self._background.start(b"add", None, delta, None)

    def delta_buffer(self) -> NDArray[Any]:
        """Return the array in which this worker writes its next delta for the whole table.

        In sync mode on one node the array lies in memory that the workers share, so `add` and
        `add_get` need not copy a delta that is there. Elsewhere the array is private, and the same
        program gives the same results. From the add on, the array belongs to the table: ask for it
        again before you write the next delta. The array then still has the values that you wrote;
        at first it has zeros. It is the same array each time, and it may outlive the table. In a
        forked child, an array in shared memory has zeros, and what the child writes stays there.

        The call waits until the add of the last delta in the array has been applied, which in sync
        mode needs that add of every worker. So it does not wait after a get or a view.

        Returns
        -------
        numpy.ndarray
            A writable array of the table's shape and dtype.

        Raises
        ------
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            In sync mode, if another worker does not make its add.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.ArrayTableHandler(2)
        ...     for step in range(3):
        ...         delta = table.delta_buffer()
        ...         delta[:] = table.view() + 1
        ...         table.add(delta)
        ...     table.get()
        array([7., 7.], dtype=float32)

        """
        return self._arrays().delta_buffer()

    def view(self, *, live: bool = False) -> NDArray[Any]:
        """Return the values of the table as `get` does, where possible without a copy.

        In sync mode on one node the array is the table's own memory. Elsewhere, and after
        `multiverso.finish`, it is a copy. It is valid until this worker's next call of `add`,
        `add_get`, `view`, `multiverso.finish` or `multiverso.load`; later its values are undefined,
        but you may still read them, also after the end of the table. In a forked child, an array
        in the table's memory has zeros. The call counts and waits as a get.

        Parameters
        ----------
        live : bool, optional
            True returns the table's memory in the other modes, for a table without an initializer
            whose rows are all on this node. The array always shows the current values, so a reader
            may find elements of different moments, or half of another worker's add. The call counts
            and waits for nothing. After the end of the table the array keeps its last values.

        Returns
        -------
        numpy.ndarray
            A read-only array of the table's shape and `value_dtype`; with ``live=True``, of its
            `dtype`.

        Raises
        ------
        StateError
            If this rank is not a worker, or the session has been shut down.
        UnsupportedError
            With ``live=True``, if the memory cannot be shown. The message says what to call.
        OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `get`.

        """
        if flag(live, "live"):
            return self._arrays().live_view(self._stored_dtype)
        return self._arrays().view()

    def _arrays(self) -> SharedArrays:
        if self._shared_arrays is None:

            def get(out: NDArray[Any], handle: capi.MV_Table = self._handle) -> None:
                checked.MV_TableGet(handle, pin(out), out.size, 0)

            self._shared_arrays = SharedArrays(self._handle, self._shape, self._dtype, get)
        return self._shared_arrays

    def prepare_add(self, delta: Any) -> Callable[[], None]:
        """Check `delta` once, and return a function that makes the call ``add(delta)``.

        A call of the function is one call of C, which takes a third of the time of an `add` of a
        few elements. It adds what `delta` contains at that time; everything else is as with `add`,
        such as the modes and the errors. The function keeps the table and the memory of `delta`.

        Parameters
        ----------
        delta : array of the table's shape, or flat with as many elements
            A C-contiguous array of the table's dtype, or an object that shares the memory of one,
            such as a torch CPU tensor. Change its elements in place; do not resize it.

        Returns
        -------
        callable
            A function that takes no arguments and returns None.

        Raises
        ------
        TypeError, ValueError
            If `delta` is not such an array. The message says what was expected.

        Examples
        --------
        >>> import numpy as np
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.ArrayTableHandler(2)
        ...     delta, values = np.empty(2, np.float32), np.empty(2, np.float32)
        ...     push, pull = table.prepare_add(delta), table.prepare_get(values)
        ...     for delta[:] in ([1, 2], [3, 4]):
        ...         push()
        ...     pull()
        array([4., 6.], dtype=float32)

        """
        source = arrays.as_shared(delta, self._dtype, self._input_shapes, "delta")
        return self._prepared("MV_TableAdd", None, source, None)

    def prepare_get(self, out: Any) -> Callable[[], Any]:
        """Check `out` once, and return a function that makes the call ``get(out=out)``.

        Parameters
        ----------
        out : array of the table's shape
            As `delta` of `prepare_add`, and writable.

        Returns
        -------
        callable
            A function as that of `prepare_add`, but it returns `out`.

        Raises
        ------
        TypeError, ValueError
            If `out` is not such an array. The message says what was expected.

        """
        sink = arrays.as_shared(out, self._dtype, (self._shape,), "out", is_output=True)
        return self._prepared("MV_TableGet", out, None, sink, _NO_FLAGS)

    def prepare_add_get(self, delta: Any, out: Any) -> Callable[[], Any]:
        """Check both once, and return a function that makes the call ``add_get(delta, out)``.

        Parameters
        ----------
        delta : array of the table's shape, or flat with as many elements
            As for `prepare_add`.
        out : array of the table's shape
            As for `prepare_get`. It may have the same memory as `delta`, or separate memory.

        Returns
        -------
        callable
            A function as that of `prepare_add`, but it returns `out`.

        Raises
        ------
        TypeError, ValueError
            If one of them is not such an array. The message says what was expected.

        """
        source = arrays.as_shared(delta, self._dtype, self._input_shapes, "delta")
        sink = arrays.as_shared(out, self._dtype, (self._shape,), "out", is_output=True)
        if np.may_share_memory(source, sink) and arrays.address(source) != arrays.address(sink):
            msg = "out: expected the memory of delta or separate memory, received an overlap"
            raise ValueError(msg)
        return self._prepared("MV_TableAddGet", out, source, sink)

    def _prepared(
        self,
        name: str,
        result: object,
        source: NDArray[Any] | None,
        sink: NDArray[Any] | None,
        *flags: object,
    ) -> Callable[[], Any]:
        """Return a function that calls `name` of the library and returns `result`."""
        buffers = [buffer for buffer in (source, sink) if buffer is not None]
        run = functools.partial(
            undeclared(name, result, used=(self, buffers)),
            self._handle_argument,
            *(c_void_p.from_param(arrays.address(buffer)) for buffer in buffers),
            self._count_argument,
            *flags,
        )
        if source is None or not self._requires_finite:
            return run

        def run_if_finite() -> Any:
            arrays.require_finite(source, "delta")
            return run()

        return run_if_finite

    def _size_text(self) -> str:
        return " x ".join(map(str, self._shape))


def checked_sync(sync: object) -> bool:
    """Return `sync` as a bool; raise TypeError if it is something else, such as a part."""
    return flag(sync, "sync", "; for a part of the table, write index=, as in index=np.s_[5:9]")


def _input_shapes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (shape,) if len(shape) == 1 else (shape, (math.prod(shape),))


def _initial_values(
    value: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], is_used: bool
) -> NDArray[Any] | None:
    """Return the initial values for the library; None means zeros, or that they are not used."""
    if value is None:
        return None
    given = arrays.as_array(value, "init_value")
    is_scalar = given.ndim == 0
    allowed = ((),) if is_scalar else shapes
    if not is_used:
        # An unused value is checked too, so that an invalid one raises on the rank that passes it.
        arrays.checked_input(given, dtype, allowed, "init_value")
        return None
    array = arrays.as_input(given, dtype, allowed, "init_value")
    if not is_scalar:
        return array
    # A new table is zero already; passing zeros would touch all of its pages.
    return np.full(shapes[0], array, dtype) if any(array.tobytes()) else None
