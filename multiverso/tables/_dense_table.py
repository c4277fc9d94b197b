"""The base class of array and matrix tables: the calls on a whole table and on parts of it."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int32, c_int64
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso._native import arrays
from multiverso._native.arguments import flag, integer
from multiverso._native.arrays import pin
from multiverso._native.library import checked, undeclared
from multiverso.tables._atomics import AtomicCalls
from multiverso.tables._background import Future
from multiverso.tables._in_place import InPlaceCalls
from multiverso.tables._parts import part_of
from multiverso.tables._table import COLLECTIVE

if TYPE_CHECKING:
    from multiverso.tables._types import Out

# Globals, because looking up attributes would slow down the calls on small tables.
_ndarray: Final = np.ndarray
_table_get: Final = undeclared("MV_TableGet")
_table_add: Final = undeclared("MV_TableAdd")
_table_add_get: Final = undeclared("MV_TableAddGet")
_NO_FLAGS: Final = c_int32.from_param(0)


class DenseTable(AtomicCalls, InPlaceCalls):
    """An array or a matrix, with a fast path for arrays that the library can take as they are."""

    __slots__ = ()

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

    def add_get(self, data: ArrayLike, out: Out | None = None) -> Out:
        """Apply a delta to the whole table and return the new values, in one pass over the memory.

        It raises the errors of [`add`][multiverso.tables.ArrayTable.add] and of `get`; wrong
        arguments leave the table unchanged.

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

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     mv.ArrayTable(2, dtype="int64").add_get([3, 4])
        array([3, 4])

        """
        result: Any = np.empty(self._shape, self._dtype) if out is None else out
        if (
            type(data) is _ndarray
            and type(result) is _ndarray
            and data.dtype is self._dtype
            and result.dtype is self._dtype
            and data.shape == self._fast_add_shape
            and result.shape == self._shape
            and data.flags.carray
            and result.flags.carray
        ):
            source = pin(data)
            sink = source if data is result else pin(result)
            try:
                _table_add_get(self._handle_argument, source, sink, self._count_argument)
            except ValueError:
                # The library rejects arrays that overlap; others have an error of a signal handler.
                if data is result or not np.may_share_memory(data, result):
                    raise
            else:
                return result  # type: ignore[return-value]  # It is `out`, or a new array.
        buffer, target = self._output(result, self._shape)
        delta = self._delta_of(data, self._input_shapes)
        if np.may_share_memory(delta, buffer):
            delta = delta.copy()
        sink = pin(buffer)
        _table_add_get(self._handle_argument, arrays.pointer(delta), sink, self._count_argument)
        arrays.copy_out(buffer, target)
        return result

    def get_changed(self, since: int = 0) -> tuple[NDArray[np.int64], NDArray[Any], int]:
        """Return what has changed since an earlier call, for a copy of the table elsewhere.

        Changes are tracked for each row, and for pieces of 64 KiB of an array, of rows of less than
        16 bytes, and of the rows of other nodes: of such a piece, the result contains all rows. A
        change that happens during the call is in its result or in that of the next call. In sync
        mode the call counts as two gets.

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
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `get`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     table = mv.MatrixTable(100_000, 16)
        ...     copy = table.get()
        ...     *_, version = table.get_changed()
        ...     table.add([[1.0] * 16], row_ids=[50_000])
        ...     row_ids, values, version = table.get_changed(version)
        ...     copy[row_ids] = values
        ...     (len(row_ids), 50_000 in row_ids, (copy == table.get()).all())
        (1, True, np.True_)

        """
        since = integer(since, "since", 0)
        pairs, version = self._list_changes(since)
        row_ids = arrays.numbers_in(pairs)
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
        return row_ids, values, version

    def _list_changes(self, since: int) -> tuple[NDArray[np.int64], int]:
        """Return ranges of rows that have changed since a version, and the version of now."""
        ranges = np.empty((self._description().max_changes, 2), np.int64)
        count, version = c_int64(), c_int64()
        pointer = ranges.ctypes.data_as(POINTER(c_int64))
        checked.MV_TableListChanges(self._handle, since, pointer, byref(count), byref(version))
        return ranges[: count.value].copy(), version.value

    def _get_async(self, out: Any) -> Future[Any]:
        return self._read_in_background(b"get", None, self._shape, out)

    def _add_async(self, data: Any) -> Future[None]:
        delta = self._delta_of(data, self._input_shapes)
        return self._background.start(b"add", None, delta, None)


def checked_sync(sync: object) -> bool:
    """Return `sync` as a bool; raise TypeError if it is something else, such as a part."""
    return flag(sync, "sync", "; for a part of the table, write index=, as in index=np.s_[5:9]")
