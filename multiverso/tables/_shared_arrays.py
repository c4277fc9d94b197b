"""The arrays of a table that lie in memory of the library, or in private memory elsewhere."""

from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi
from multiverso._native.library import checked


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
