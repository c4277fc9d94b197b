"""Calls on memory that the program and a table share, and calls that are checked once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from ctypes import byref, c_int32, c_void_p
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi
from multiverso._native.arguments import flag
from multiverso._native.arrays import pin
from multiverso._native.library import checked, undeclared
from multiverso.tables._shaped_table import ShapedTable

if TYPE_CHECKING:
    from multiverso.tables._types import ArrayMemory, Out

_NO_FLAGS: Final = c_int32.from_param(0)


class InPlaceCalls(ShapedTable):
    """The calls of a table that leave out copies or checks."""

    __slots__ = ("_shared_arrays",)

    def __init__(self, *arguments: Any) -> None:
        """Create the table, as `ShapedTable` does."""
        super().__init__(*arguments)
        self._shared_arrays: SharedArrays | None = None

    def delta_buffer(self) -> NDArray[Any]:
        """Return the array in which this worker writes its next delta for the whole table.

        In sync mode on one node the array lies in memory that the workers share, so `add` and
        `add_get` need not copy a delta that is there. Elsewhere the array is private, and the same
        program gives the same results. From the add on, the array belongs to the table: ask for it
        again before you write the next delta. It is the same array each time, with the values that
        you wrote, at first zeros. In a forked child, what the child writes stays there.

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
        ...     table = mv.ArrayTable(2)
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
        UnsupportedError
            With ``live=True``, if the memory cannot be shown. The message says what to call.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
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

    def prepare_add(self, delta: ArrayMemory) -> Callable[[], None]:
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
        ...     table = mv.ArrayTable(2)
        ...     delta, values = np.empty(2, np.float32), np.empty(2, np.float32)
        ...     push, pull = table.prepare_add(delta), table.prepare_get(values)
        ...     for delta[:] in ([1, 2], [3, 4]):
        ...         push()
        ...     pull()
        array([4., 6.], dtype=float32)

        """
        source = arrays.as_shared(delta, self._dtype, self._input_shapes, "delta")
        return self._prepared("MV_TableAdd", None, source, None)

    def prepare_get(self, out: Out) -> Callable[[], Out]:
        """Check `out` once, and return a function that makes the call ``get(out=out)``.

        Parameters
        ----------
        out : array of the table's shape
            As `delta` of `prepare_add`, whose errors this call has, and writable.

        Returns
        -------
        callable
            A function as that of `prepare_add`, but it returns `out`.

        """
        sink = arrays.as_shared(out, self._dtype, (self._shape,), "out", is_output=True)
        return self._prepared("MV_TableGet", out, None, sink, _NO_FLAGS)

    def prepare_add_get(self, delta: ArrayMemory, out: Out) -> Callable[[], Out]:
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


class SharedArrays:
    """The delta buffer and the view of a table, arrays of `shape` and `dtype`.

    An array in the table's memory keeps that memory mapped, so the array outlives the table. `get`
    writes the table's values to an array, for a view in private memory.
    """

    __slots__ = ("_delta", "_dtype", "_get", "_keeper", "_private", "_shape", "_table", "_view")

    def __init__(
        self,
        table: capi.MV_Table,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        get: Callable[[NDArray[Any]], None],
    ) -> None:
        self._table = table
        self._shape = shape
        self._dtype = dtype
        self._get = get
        self._keeper: capi.MV_Memory | None = None  # keeps the memory mapped
        self._delta: NDArray[Any] | None = None
        self._view: NDArray[Any] | None = None
        self._private: NDArray[Any] | None = None  # receives the values where there is no view

    def delta_buffer(self) -> NDArray[Any]:
        """Return the array for the next delta; wait until it is free."""
        address = c_void_p()
        checked.MV_TableDeltaBuffer(self._table, byref(address))
        if self._delta is None:
            if address.value is None:
                self._delta = np.zeros(self._shape, self._dtype)
            else:
                self._delta = self._array_at(address.value, self._dtype)
        return self._delta

    def view(self) -> NDArray[Any]:
        """Return a read-only array of the values that a get returns."""
        address = c_void_p()
        checked.MV_TableView(self._table, byref(address))
        if address.value is None:
            if self._private is None:
                self._private = np.empty(self._shape, self._dtype)
            self._get(self._private)
            return _read_only(self._private)
        if self._view is None:
            self._view = _read_only(self._array_at(address.value, self._dtype))
        return self._view

    def live_view(self, stored_dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a read-only array of the table's memory, which other ranks change."""
        address = c_void_p()
        checked.MV_TableMemory(self._table, byref(address))
        assert address.value is not None  # for mypy
        return _read_only(self._array_at(address.value, stored_dtype))

    def _array_at(self, address: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        if self._keeper is None:
            keeper = capi.MV_Memory()
            checked.MV_TableKeepMemory(self._table, byref(keeper))
            self._keeper = keeper
        return arrays.memory_at(address, self._shape, dtype, self._keeper)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
