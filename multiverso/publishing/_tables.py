"""The tables of a follower: their values as of one publication, and what the last wait changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso._native import arguments, arrays
from multiverso._native.tensor_files import natural
from multiverso.errors import StateError
from multiverso.publishing._format import DTYPES, element_numbers, ids_of, result_of
from multiverso.publishing._row_store import RowStore
from multiverso.tables._ids import as_ids

#: Wider rows, which no file may have, are not made up from a shape alone.
_MOST_COLUMNS: Final = 1 << 24
#: The elements that are compared at once, to need little memory.
_MOST_COMPARED: Final = 1 << 20
_NONE: Final = np.empty(0, np.int64)
#: The dtypes of results, by name.
_RESULTS: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name) for name in ("float32", "float64", "int32", "int64")
}


#: What a file has of a table: its metadata, and all tensors of the file by name.
Part: TypeAlias = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]


class FollowedTable:
    """One table of a followed folder, as of the version of its view.

    It is a `FollowedArray` or a `FollowedRows`, which have the method `get`.

    Attributes
    ----------
    name : str
    shape : tuple of int
        (size,), (num_row, num_col), or of a hash table, (None, num_col).
    dtype : numpy.dtype
        The dtype of results.
    is_hash, is_live, is_published : bool
        As of `LiveTable`. A followed table is never live.
    has_rows : bool
        Whether only some rows exist: those of the keys of a hash table, or those that have ever
        changed, of a table with an initializer.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with mv.session(name="job"):
    ...         table = mv.MatrixTable(2, 3, name="m")
    ...         version = mv.publish(to=folder)
    ...     with mv.follow(folder) as view:
    ...         table = view.tables["m"]
    ...         table.name, table.shape, table.dtype.name, table.is_hash
    ('m', (2, 3), 'float32', False)

    """

    is_live = False
    is_published = True

    def __init__(self, record: Mapping[str, Any], has_rows: bool, lock: RLock) -> None:
        self._lock = lock
        self.name = arguments.text(record["table"], "table")
        shape = record["shape"]
        self.is_hash = len(shape) == 2 and shape[0] is None
        self.shape = tuple(None if size is None else natural(size) for size in shape)
        if len(shape) not in (1, 2) or (None in shape and not self.is_hash):
            raise ValueError(f"expected the shape of a table, received {shape!r:.100}")
        self._columns = natural(shape[1]) if len(shape) == 2 else 1
        if not 0 < self._columns <= _MOST_COLUMNS:
            raise ValueError(f"expected the shape of a table, received {shape!r:.100}")
        self.dtype: np.dtype[Any] = _RESULTS[record["dtype"]]
        self.has_rows = has_rows
        self._stored = record["stored"]
        #: Why the table shows nothing any more.
        self._end: str | None = None
        if not has_rows and None in self.shape or has_rows and len(shape) != 2:
            raise ValueError(f"expected the tensors of a table of the shape {shape!r:.100}")

    def _require_shown(self) -> None:
        if self._end is not None:
            raise StateError(f"table '{self.name}': {self._end}")

    def _identity(self) -> tuple[object, ...]:
        return self.name, self.shape, self.dtype, self.has_rows, self._stored

    def _result(self, bits: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of stored values in the dtype of results."""
        return result_of(self._stored, bits).astype(self.dtype, copy=False)

    def _checked_bits(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if values.dtype != DTYPES[self._stored] or values.shape != shape:
            raise ValueError(
                f"expected values of the shape {shape}, received {values.dtype} of {values.shape}"
            )
        return values

    def _row_ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return keys, or the row ids of a matrix, which must be rows of it."""
        count = self.shape[0]
        numbers = as_ids(ids, "keys" if self.is_hash else "row_ids", count)
        if count is not None and len(outside := numbers[(numbers < 0) | (numbers >= count)]):
            msg = (
                f"table '{self.name}': expected row ids from 0 to {count - 1}, received "
                f"{outside[0]}"
            )
            raise IndexError(msg)
        return numbers

    def _copy(self) -> Any:
        raise NotImplementedError

    def _follow(self, former: FollowedTable) -> None:
        """Take the place of a table of the same name and another kind."""

    def _take(self, files: Sequence[Part]) -> Any:
        """Return a change that `_apply` makes; raise an error if the files do not fit the table."""
        raise NotImplementedError

    def _is_full(self, files: Sequence[Part]) -> bool:
        """Return whether files have all values, not those that differ."""
        choices = [record["full"] for record, _ in files]
        if choices not in ([True] * len(files), [False] * len(files)):
            raise ValueError(f"expected all values in all files or in none, received {choices!r}")
        return bool(choices[0])

    def __repr__(self) -> str:
        return f"<FollowedTable '{self.name}': {self.shape} {self.dtype}>"


class FollowedArray(FollowedTable):
    """A table all of whose values exist.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with mv.session(name="job"):
    ...         table = mv.MatrixTable(4, 2, name="m")
    ...         table.add([[1, 2]], row_ids=[3])
    ...         version = mv.publish(to=folder)
    ...     with mv.follow(folder) as view:
    ...         view.tables["m"].get([3, 0])
    array([[1., 2.],
           [0., 0.]], dtype=float32)

    """

    def __init__(self, key: str, record: Mapping[str, Any], lock: RLock) -> None:
        super().__init__(record, False, lock)
        self._key = key
        self._values: NDArray[Any] | None = None
        #: Which rows, or elements of an array, have changed, or None for all.
        self._changed: NDArray[np.bool_] | None = None

    def get(self, ids: ArrayLike | None = None, out: Any = None) -> NDArray[Any]:
        """Return the table or some of its rows.

        Parameters
        ----------
        ids : array_like of int, optional
            The row ids of a matrix.
        out : ndarray, optional
            An array of the right shape and dtype to write to.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        TypeError, ValueError, IndexError
            If an argument is invalid.

        """
        if ids is not None and len(self.shape) == 1:
            msg = f"table '{self.name}': expected no ids, because an array has no rows"
            raise TypeError(msg)
        numbers = slice(None) if ids is None else self._row_ids(ids)
        with self._lock:
            self._require_shown()
            assert self._values is not None
            values = self._result(self._values[numbers])
        return _into(out, values)

    def _copy(self) -> NDArray[Any]:
        return self.get()

    def _take(self, files: Sequence[Part]) -> Any:
        is_full = self._is_full(files)
        if not is_full and self._values is None:
            raise ValueError("expected all values before differences from them")
        columns = (self._columns,) * (len(self.shape) - 1)
        places, values, end = [], [], 0
        for record, tensors in files:
            first, count = natural(record["first"]), natural(record["count"])
            if count and first != end:
                raise ValueError(f"expected rows from {end} on, received rows from {first} on")
            end += count
            changed = tensors[f"values:{self._key}"]
            if is_full:
                values.append(self._checked_bits(changed, (count, *columns)))
                continue
            width = self._columns
            numbers = element_numbers(
                tensors[f"counts:{self._key}"], tensors[f"places:{self._key}"], count * width
            )
            places.append(first * width + numbers)
            values.append(self._checked_bits(changed, numbers.shape))
        if end != self.shape[0]:
            raise ValueError(f"expected {self.shape[0]} rows, received {end}")
        joined = values[0] if len(values) == 1 else np.concatenate(values)
        return (None if is_full else np.concatenate(places)), joined

    def _apply(self, change: Any) -> None:
        places, values = change
        if places is None:
            if self._values is None or self._changed is None:
                self._values, self._changed = values, None
                return
            bits = np.dtype(f"u{values.itemsize}")
            step = max(_MOST_COMPARED // self._columns, 1)
            for part in (slice(row, row + step) for row in range(0, len(values), step)):
                differs = self._values[part].view(bits) != values[part].view(bits)
                self._changed[part] |= differs.reshape(len(differs), -1).any(axis=1)
            self._values = values
            return
        assert self._values is not None
        self._values.reshape(-1)[places] = values
        if self._changed is not None:
            self._changed[places // self._columns] = True

    def _begin(self) -> None:
        """Forget what has changed."""
        self._changed = np.zeros(self.shape[0] or 0, bool)

    def _changes(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        assert self._values is not None
        if self._changed is None:
            numbers = np.arange(self.shape[0] or 0)
        else:
            numbers = np.flatnonzero(self._changed)
        return numbers, self._result(self._values[numbers])

    def _removed(self) -> NDArray[np.int64]:
        return np.empty(0, np.int64)


class FollowedRows(FollowedTable):
    """A table of which some rows exist.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with mv.session(name="job"):
    ...         table = mv.HashTable(2, capacity=100, name="users")
    ...         table.add([[1, 2]], keys=[7_000_000_000])
    ...         version = mv.publish(to=folder)
    ...     with mv.follow(folder) as view:
    ...         users = view.tables["users"]
    ...         users.contains([7_000_000_000, 5]), users.get([7_000_000_000])
    (array([ True, False]), array([[1., 2.]], dtype=float32))

    """

    def __init__(
        self, key: str, record: Mapping[str, Any], lock: RLock, default: float | None
    ) -> None:
        super().__init__(record, True, lock)
        self._key = key
        self._default = default
        self._initial = record["initial"]
        if self._initial is not None and type(self._initial) not in (int, float):
            raise ValueError(f"expected a number as the initial value, received {self._initial!r}")
        self._store = RowStore(np.empty((0, self._columns), DTYPES[self._stored]))
        self._changed = self._gone = _NONE
        self._former = _NONE  # keys of the table that this one has replaced

    def _identity(self) -> tuple[object, ...]:
        return *super()._identity(), repr(self._initial)

    def _follow(self, former: FollowedTable) -> None:
        if isinstance(former, FollowedRows):
            self._former = np.union1d(former._former, former._store.keys)
            self._gone = former._gone

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each of the keys, or of the row ids, has a row."""
        with self._lock:
            self._require_shown()
            return self._store.find(self._row_ids(ids))[1]

    def get(
        self, ids: ArrayLike | None = None, out: Any = None, *, default: float | None = None
    ) -> NDArray[Any]:
        """Return the rows of keys, or of row ids.

        Parameters
        ----------
        ids : array_like of int
            The keys of a hash table, or the row ids of a table with an initializer.
        out : ndarray, optional
            An array of the right shape and dtype to write to.
        default : float, optional
            The value of the elements of rows that do not exist; by default that of `follow`, or
            the initial value.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        IndexError
            If an id is not a row of the table. If a row does not exist, and its initial values are
            random, without `default`.
        TypeError, ValueError
            If an argument is invalid.

        """
        if ids is None:
            msg = f"table '{self.name}': expected ids, because only some rows exist"
            raise TypeError(msg)
        numbers = self._row_ids(ids)
        rows = np.empty((len(numbers), self._columns), self.dtype)
        with self._lock:
            self._require_shown()
            places, exists = self._store.find(numbers)
            rows[exists] = self._result(self._store.rows[places[exists]])
        if not exists.all():
            values = (default, self._default, self._initial)
            value = next((each for each in values if each is not None), None)
            if value is None:
                msg = (
                    f"table '{self.name}': {len(numbers) - exists.sum()} of {len(numbers)} ids "
                    f"have no row, the first is {numbers[exists.argmin()]}; their initial values "
                    "are random, so pass default= to get or to multiverso.follow"
                )
                raise IndexError(msg)
            rows[~exists] = value
        return _into(out, rows)

    def _copy(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self._store.keys.copy(), self._result(self._store.rows[self._store.places])

    def _take(self, files: Sequence[Part]) -> Any:
        is_full = self._is_full(files)
        keys, rows, removed = [], [], []
        for _, tensors in files:
            numbers = ids_of(tensors[f"keys:{self._key}"], self.shape[0])
            keys.append(numbers)
            shape = (len(numbers), self._columns)
            rows.append(self._checked_bits(tensors[f"rows:{self._key}"], shape))
            if not is_full:
                removed.append(ids_of(tensors[f"removed:{self._key}"], self.shape[0]))
        joined = np.concatenate(keys)
        if len(np.unique(joined)) != len(joined):
            raise ValueError("expected each key once")
        gone = np.concatenate([np.empty(0, np.int64), *removed])
        return joined, rows[0] if len(rows) == 1 else np.concatenate(rows), gone, is_full

    def _apply(self, change: Any) -> None:
        keys, rows, removed, is_full = change
        changed = keys
        if is_full:
            removed = np.setdiff1d(np.union1d(self._store.keys, self._former), keys)
            self._former = _NONE
            places, exists = self._store.find(keys)
            bits = np.dtype(f"u{rows.itemsize}")
            before = self._store.rows[places[exists]].view(bits)
            exists[exists] = (before == rows[exists].view(bits)).all(axis=1)
            changed = keys[~exists]
        self._store.update(keys, rows, removed)
        self._changed = np.setdiff1d(np.union1d(self._changed, changed), removed)
        self._gone = np.setdiff1d(np.union1d(self._gone, removed), keys)

    def _begin(self) -> None:
        """Forget what has changed."""
        self._changed = self._gone = _NONE

    def _changes(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self._changed, self.get(self._changed)

    def _removed(self) -> NDArray[np.int64]:
        return self._gone


def _into(out: Any, values: NDArray[Any]) -> NDArray[Any]:
    if out is None:
        return values
    buffer, target = arrays.as_output(out, values.dtype, values.shape)
    np.copyto(buffer, values)
    arrays.copy_out(buffer, target)
    return target


def table_of(
    key: str,
    record: Mapping[str, Any],
    tensors: Iterable[str],
    lock: RLock,
    default: float | None,
) -> Any:
    """Return an empty table for a record of a publication."""
    if f"keys:{key}" in tensors:
        return FollowedRows(key, record, lock, default)
    return FollowedArray(key, record, lock)
