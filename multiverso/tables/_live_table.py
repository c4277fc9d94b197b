"""One table of a running session, as another process reads it."""

from __future__ import annotations

from ctypes import byref, c_int64, c_void_p
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso._native import arrays, capi
from multiverso._native.dtypes import DTYPES
from multiverso._native.library import checked, complete, lib
from multiverso._native.node_calls import read_description
from multiverso.tables._ids import as_ids

_FLOAT32: Final = np.dtype("float32")
#: The elements in a block of MV_ReaderCompare.
BLOCK: Final = 65_536
#: The keys of a hash table that one call reads.
_CHUNK: Final = 65_536


class OutdatedError(Exception):
    """The session has published so much since a version that it cannot be read any more."""


class LiveTable:
    """One table of a `View`.

    Attributes
    ----------
    name : str
    shape : tuple of int
        (size,), (num_row, num_col), or of a hash table, (None, num_col).
    dtype : numpy.dtype
        The dtype of results.
    is_hash : bool
        Whether the rows have keys.
    is_live : bool
        Whether `get` returns the current values. Otherwise it returns those of the last version,
        because the session is in sync mode or the table lies on several nodes.
    is_published : bool
        Whether the last version has the table.
    has_rows : bool
        Whether only some rows exist: those of the keys of a hash table, or those that have ever
        changed, of a matrix with an initializer.
    rows : range
        The rows that can be read: all, except that each node of a session on several nodes shows
        only its own rows of a hash table or of a table with an initializer.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.MatrixTable(3, 2, 1, name="w")
    ...     with mv.attach(os.getpid()) as view:
    ...         view.tables["w"].get([0, 2])
    array([[1., 1.],
           [1., 1.]], dtype=float32)

    """

    def __init__(self, handle: capi.MV_Reader, raw: dict[str, Any]) -> None:
        self._handle = handle
        self._id: int = raw["id"]
        self.name: str = raw["name"]
        self.is_hash: bool = raw["kind"] == capi.MV_TABLE_HASH
        self.is_live: bool = raw["is_live"]
        self.is_published: bool = raw["is_published"]
        self._initial: int = raw["initial"]  # what computes initial values, or 0
        self.dtype: np.dtype[Any] = DTYPES.get(raw["dtype"], _FLOAT32)
        self._code: int = raw["dtype"]
        self._num_row, self._num_col = raw["num_row"], raw["num_col"]
        self.rows = range(raw["first_row"], raw["end_row"])
        self.shape: tuple[int | None, ...] = (self._num_row, self._num_col)
        if self.is_hash:
            self.shape = (None, self._num_col)
        elif raw["kind"] == capi.MV_TABLE_ARRAY:
            self.shape = (self._num_row,)

    @property
    def has_rows(self) -> bool:
        """Whether only some rows exist."""
        return self._initial != 0 and len(self.shape) == 2

    def get(self, ids: ArrayLike | None = None, out: Any = None) -> NDArray[Any]:
        """Return the table or some of its rows, while the session continues.

        Each row is complete. Pieces of 64 KiB may be of different moments; `View.cut` returns one.

        Parameters
        ----------
        ids : array_like of int, optional
            The row ids of a matrix, or the keys of a hash table, which requires them. A key without
            a row has its initial values.
        out : ndarray, optional
            A C-contiguous array of the right shape and dtype to write to.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        TypeError, ValueError, IndexError
            If an argument is invalid.
        StateError
            If the session has ended and `is_live` is true, if it has freed the table, or if it has
            published nothing and `is_live` is false.
        OperationTimeout
            If a rank was suspended while it changed the table.

        """
        if ids is None:
            if self.is_hash:
                msg = f"table '{self.name}': expected keys, because its rows have keys"
                raise TypeError(msg)
            numbers, operation, shape = None, b"get", self._row_shape(self._num_row)
        elif len(self.shape) == 1:
            msg = f"table '{self.name}': expected no ids, because an array has no rows"
            raise TypeError(msg)
        else:
            what = "keys" if self.is_hash else "row_ids"
            numbers = as_ids(ids, what, None if self.is_hash else self._num_row)
            operation = b"get_keys" if self.is_hash else b"get_rows"
            shape = self._row_shape(len(numbers))
        buffer, target = arrays.as_output(
            np.empty(shape, self.dtype) if out is None else out, self.dtype, shape
        )
        while not self._run(self._version(), operation, numbers, buffer):
            pass  # The session has published twice meanwhile.
        arrays.copy_out(buffer, target)
        return target

    def __array__(self, *arguments: object, **options: object) -> NoReturn:
        """Raise TypeError: NumPy would otherwise make an array of one object, the table."""
        msg = "LiveTable is not an array: call get(), which returns one"
        raise TypeError(msg)

    def _row_shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if len(self.shape) == 1 else (rows, self._num_col)

    def _version(self) -> int:
        """Return the version to read, or 0 for the current values.

        It is also 0 if there is none. The library then says why the current values cannot be read.
        """
        if self.is_live:
            return 0
        return int(read_description(checked.MV_ReaderDescribe, self._handle)["version"])

    def _run(
        self, version: int, operation: bytes, ids: NDArray[np.int64] | None, out: NDArray[Any]
    ) -> bool:
        """Read into `out`; return False if the version is not complete any more."""
        status = lib.MV_ReaderRun(
            self._handle,
            self._id,
            version,
            operation,
            None if ids is None else arrays.address(ids),
            0 if ids is None else len(ids),
            arrays.address(out),
            out.size,
        )
        if status == capi.MV_OUTDATED:
            return False
        complete(status)
        return True

    def _compare(
        self, version: int, code: int, first: int, before: NDArray[Any], *, finds: bool = False
    ) -> tuple[NDArray[Any], ...]:
        """Copy what differs in a version to `before`, the elements from `first` on, or all of them.

        With `finds`, return the counts of blocks, the places and the values of what differs, as
        MV_ReaderCompare does. `code` is the dtype of `before`. Raise OutdatedError if the version
        is not complete any more.
        """
        # The kernel gives memory to pages only when they are written.
        room = before.size if finds else 0
        counts = np.empty(-(-room // BLOCK), np.uint32)
        places, values = np.empty(room, np.uint16), np.empty(room, before.dtype)
        found = c_int64()
        status = lib.MV_ReaderCompare(
            *(self._handle, self._id, version, code, first, before.size),
            arrays.address(before),
            *(arrays.address(array) if finds else None for array in (counts, places, values)),
            byref(found),
        )
        if status == capi.MV_OUTDATED:
            raise OutdatedError
        complete(status)
        return counts, places[: found.value].copy(), values[: found.value].copy()

    def _memory(self, version: int) -> NDArray[Any] | None:
        """Return a read-only array where the session has the version, or None as `_copy` does."""
        values, keeper = c_void_p(), capi.MV_Memory()
        status = lib.MV_ReaderMemory(self._handle, self._id, version, byref(values), byref(keeper))
        if status == capi.MV_OUTDATED:
            return None
        complete(status)
        shape = self._row_shape(len(self.rows))
        return arrays.memory_at(values.value or 0, shape, self.dtype, keeper, writable=False)

    def _copy(self, version: int) -> Any:
        """Return the table as of a version, or None if the version is not complete any more."""
        if self.is_hash:
            return self._copy_keys(version)
        values = np.empty(self._row_shape(len(self.rows)), self.dtype)
        return values if self._run(version, b"get", None, values) else None

    def _copy_keys(self, version: int) -> tuple[NDArray[np.int64], NDArray[Any]] | None:
        keys = [np.empty(0, np.int64)]
        for first in self.rows[::_CHUNK]:
            ids = np.arange(first, min(first + _CHUNK, self.rows.stop))
            cells = np.empty((len(ids), 2), np.int64)  # the key of each row, and 0 for none
            if not self._run(version, b"cells", ids, cells):
                return None
            keys.append(cells[cells[:, 1] != 0, 0])
        found = np.concatenate(keys)
        rows = np.empty((len(found), self._num_col), self.dtype)
        return (found, rows) if self._run(version, b"get_keys", found, rows) else None

    def __repr__(self) -> str:
        return f"<LiveTable '{self.name}': {self.shape} {self.dtype}>"
