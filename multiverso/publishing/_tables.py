"""The tables of a follower: their values as of one publication, and what the last wait changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso._native import arguments
from multiverso._native.tensor_files import natural
from multiverso.errors import StateError
from multiverso.publishing._format import DTYPES, element_numbers, ids_of
from multiverso.readers import ViewTable
from multiverso.readers._rows import RowStore, unlike
from multiverso.readers._view import Changes

#: Wider rows, which no file may have, are not made up from a shape alone.
_MOST_COLUMNS: Final = 1 << 24
#: The elements that are compared at once, to need little memory.
_MOST_COMPARED: Final = 1 << 20
_NONE: Final = np.empty(0, np.int64)
#: The dtypes of results, by the names of the dtypes in the files.
_RESULTS: Final[dict[str, np.dtype[Any]]] = {
    **dict.fromkeys(("F32", "F16", "BF16"), np.dtype("float32")),
    **{"F64": np.dtype("float64"), "I32": np.dtype("int32"), "I64": np.dtype("int64")},
}

#: What a file has of a table: its metadata, and all tensors of the file by name.
Part: TypeAlias = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]


class FollowedTable(ViewTable):
    """A table of a followed folder, whose values this process keeps as the files have them."""

    has_rows = False

    def __init__(
        self, key: str, record: Mapping[str, Any], lock: RLock, default: float | None
    ) -> None:
        shape, dtype = record["shape"], _RESULTS[record["stored"]]
        is_hash = self.has_rows and shape[0] is None
        sizes = (None if is_hash else natural(shape[0]), *map(natural, shape[1:]))
        super().__init__(arguments.text(record["table"], "table"), sizes, dtype, self.has_rows)
        is_table = len(shape) == 2 or (len(shape) == 1 and not self.has_rows)
        if not is_table or not 0 < self._num_col <= _MOST_COLUMNS or dtype.name != record["dtype"]:
            raise ValueError(
                f"expected the shape and the dtype of a table, received {shape!r:.100} and "
                f"{record['dtype']!r:.100}"
            )
        self._key = key
        self._stored = record["stored"]
        self._lock = lock
        self._default = default
        self._needs_ids = self.has_rows
        #: Why the table shows nothing any more.
        self._end: str | None = None

    def _require_shown(self) -> None:
        if self._end is not None:
            raise StateError(f"table '{self.name}': {self._end}")

    def _identity(self) -> tuple[object, ...]:
        return self.name, self.shape, self.dtype, self.has_rows, self._stored

    def _row_ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        numbers = super()._row_ids(ids)
        count = self.shape[0]
        # A negative number is a large one without a sign.
        if count is not None and (outside := numbers.view(np.uint64) >= count).any():
            raise IndexError(
                f"table '{self.name}': expected row ids from 0 to {count - 1}, received "
                f"{numbers[outside.argmax()]}"
            )
        return numbers

    def _write(
        self, bits: NDArray[Any], places: NDArray[np.int64] | None, out: NDArray[Any]
    ) -> None:
        """Write stored values, or those at some places, to an array of the table's dtype."""
        if places is not None and bits.dtype == out.dtype:
            # The places are checked, and "clip" spares NumPy a copy.
            np.take(bits, places, 0, out, "clip")
            return
        chosen = bits if places is None else bits[places]
        if self._stored == "BF16":
            np.left_shift(chosen, 16, out=out.view(np.uint32), dtype=np.uint32)
        else:
            np.copyto(out, chosen)

    def _result(self, bits: NDArray[Any], places: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return a copy of stored values in the dtype of results."""
        result = np.empty(self._row_shape(len(bits if places is None else places)), self.dtype)
        self._write(bits, places, result)
        return result

    def _checked_bits(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if values.dtype != DTYPES[self._stored] or values.shape != shape:
            raise ValueError(
                f"expected values of the shape {shape}, received {values.dtype} of {values.shape}"
            )
        return values

    def _is_full(self, files: Sequence[Part]) -> bool:
        """Return whether files have all values, not those that differ."""
        choices = [record["full"] for record, _ in files]
        if choices not in ([True] * len(files), [False] * len(files)):
            raise ValueError(f"expected all values in all files or in none, received {choices!r}")
        return bool(choices[0])

    def _follow(self, former: FollowedTable) -> None:
        """Take the place of a table of the same name and another kind."""

    def _shown(self) -> NDArray[Any]:
        """Return the values, without a copy where they are stored in the dtype of results."""
        msg = f"table '{self.name}': expected a table all of whose rows exist: use View.cut"
        raise ValueError(msg)


class FollowedArray(FollowedTable):
    """A table of a followed folder all of whose values exist."""

    #: None before the first publication.
    _values: NDArray[Any] | None = None
    #: Which rows, or elements of an array, have changed, or None for all.
    _changed: NDArray[np.bool_] | None = None

    def _read(
        self, ids: NDArray[np.int64] | None, out: NDArray[Any], default: float | None
    ) -> None:
        with self._lock:
            self._require_shown()
            assert self._values is not None
            self._write(self._values, ids, out)

    def _copy(self) -> NDArray[Any]:
        return self.get()

    def _shown(self) -> NDArray[Any]:
        assert self._values is not None
        shown = self._values.view() if self._values.dtype == self.dtype else self._copy()
        shown.flags.writeable = False
        return shown

    def _take(self, files: Sequence[Part]) -> Any:
        """Return a change that `_apply` makes; raise an error if the files do not fit the table."""
        is_full = self._is_full(files)
        if not is_full and self._values is None:
            raise ValueError("expected all values before differences from them")
        places, values, end = [], [], 0
        for record, tensors in files:
            first, count = natural(record["first"]), natural(record["count"])
            if count and first != end:
                raise ValueError(f"expected rows from {end} on, received rows from {first} on")
            end += count
            changed = tensors[f"values:{self._key}"]
            if is_full:
                values.append(self._checked_bits(changed, self._row_shape(count)))
                continue
            width = self._num_col
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
            step = max(_MOST_COMPARED // self._num_col, 1)
            for part in (slice(row, row + step) for row in range(0, len(values), step)):
                self._changed[part] |= unlike(self._values[part], values[part])
            self._values = values
            return
        assert self._values is not None
        self._values.reshape(-1)[places] = values
        if self._changed is not None:
            self._changed[places // self._num_col] = True

    def _begin(self) -> None:
        """Forget what has changed."""
        self._changed = np.zeros(len(self.rows), bool)

    def _changes(self) -> Changes:
        assert self._values is not None
        changed = np.ones(len(self.rows), bool) if self._changed is None else self._changed
        numbers = np.flatnonzero(changed)
        return numbers, self._result(self._values, numbers), _NONE


class FollowedRows(FollowedTable):
    """A table of a followed folder of which some rows exist."""

    has_rows = True

    def __init__(
        self, key: str, record: Mapping[str, Any], lock: RLock, default: float | None
    ) -> None:
        super().__init__(key, record, lock, default)
        self._initial = record["initial"]
        if self._initial is not None and type(self._initial) not in (int, float):
            raise ValueError(f"expected a number as the initial value, received {self._initial!r}")
        self._store = RowStore(_NONE, np.empty((0, self._num_col), DTYPES[self._stored]))
        self._changed = self._gone = _NONE
        self._former = _NONE  # keys of the table that this one has replaced

    def _identity(self) -> tuple[object, ...]:
        return *super()._identity(), repr(self._initial)

    def _follow(self, former: FollowedTable) -> None:
        if isinstance(former, FollowedRows):
            self._former = np.union1d(former._former, former._store.keys)
            self._gone = former._gone

    def _find(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        with self._lock:
            self._require_shown()
            return self._store.find(ids)[1]

    def _read(
        self, ids: NDArray[np.int64] | None, out: NDArray[Any], default: float | None
    ) -> None:
        assert ids is not None
        with self._lock:
            self._require_shown()
            places, exists = self._store.find(ids)
            if exists.all():
                self._write(self._store.rows, places, out)
                return
            values = (default, self._default, self._initial)
            value = next((each for each in values if each is not None), None)
            if value is None:
                raise IndexError(
                    f"table '{self.name}': {len(ids) - exists.sum()} of {len(ids)} ids have no "
                    f"row, the first is {ids[exists.argmin()]}; their initial values are random, "
                    "so pass default= to get or to multiverso.follow"
                )
            out[exists] = self._result(self._store.rows, places[exists])
        out[~exists] = value

    def _copy(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self._store.keys.copy(), self._result(self._store.rows, self._store.places)

    def _take(self, files: Sequence[Part]) -> Any:
        """Return a change that `_apply` makes; raise an error if the files do not fit the table."""
        is_full = self._is_full(files)
        keys, rows, removed = [], [], []
        for _, tensors in files:
            numbers = ids_of(tensors[f"keys:{self._key}"], self.shape[0])
            keys.append(numbers)
            shape = (len(numbers), self._num_col)
            rows.append(self._checked_bits(tensors[f"rows:{self._key}"], shape))
            if not is_full:
                removed.append(ids_of(tensors[f"removed:{self._key}"], self.shape[0]))
        joined = np.concatenate(keys)
        if len(np.unique(joined)) != len(joined):
            raise ValueError("expected each key once")
        gone = np.concatenate([_NONE, *removed])
        return joined, rows[0] if len(rows) == 1 else np.concatenate(rows), gone, is_full

    def _apply(self, change: Any) -> None:
        keys, rows, removed, is_full = change
        changed = keys
        if is_full:
            removed = np.setdiff1d(np.union1d(self._store.keys, self._former), keys, True)
            self._former = _NONE
            changed = keys[self._store.differ(keys, rows)]
        self._store.update(keys, rows, removed)
        self._changed = np.setdiff1d(np.union1d(self._changed, changed), removed, True)
        self._gone = np.setdiff1d(np.union1d(self._gone, removed), keys, True)

    def _begin(self) -> None:
        """Forget what has changed."""
        self._changed = self._gone = _NONE

    def _changes(self) -> Changes:
        return self._changed, self.get(self._changed), self._gone
