"""What a node writes of each table: all values, or those that differ from the last publication.

Each encoder keeps a copy of what it has written, and compares the next version with it bit by bit.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays, capi
from multiverso._native.library import checked
from multiverso.publishing._format import DTYPES, Tensor, result_of
from multiverso.readers._memory import BLOCK, MemoryTable
from multiverso.readers._rows import RowStore, in_order, unlike

#: The name of a dtype in the format, by its code in the C API.
NAMES: Final = {
    capi.MV_FLOAT32: "F32",
    capi.MV_FLOAT64: "F64",
    capi.MV_INT32: "I32",
    capi.MV_INT64: "I64",
    capi.MV_FLOAT16: "F16",
    capi.MV_BFLOAT16: "BF16",
}
CODES: Final = {name: code for code, name in NAMES.items()}
#: The rows that are read at once.
_CHUNK: Final = 65_536

#: The metadata of a table in a file, and its tensors.
Encoded: TypeAlias = tuple[dict[str, Any], dict[str, Tensor]]


class Encoder:
    """Base of the encoders of one table on one node; `stored` is the dtype in the format."""

    def __init__(self, stored: str) -> None:
        self.stored = stored

    def encode(self, name: str, live: MemoryTable, version: int, is_full: bool) -> Encoded:
        """Return what to write of a version; raise OutdatedError if the session has it no more."""
        raise NotImplementedError

    def _record(
        self, name: str, live: MemoryTable, is_full: bool, **entries: object
    ) -> dict[str, Any]:
        return {
            "name": name,
            "table": live.name,
            "shape": list(live.shape),
            "dtype": live.dtype.name,
            "stored": self.stored,
            "full": is_full,
            **entries,
        }

    def _bits(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the table as the format stores them."""
        if self.stored == "BF16":
            rounded = np.empty(values.shape, np.uint16)
            address = arrays.address(values)
            checked.MV_RoundToBfloat16(address, arrays.address(rounded), values.size)
            return rounded
        return values.astype(DTYPES[self.stored], copy=False)


class DenseEncoder(Encoder):
    """A table all of whose values exist. Each node writes a share of the rows, or elements."""

    def __init__(self, stored: str, node: int, nodes: int) -> None:
        super().__init__(stored)
        self._node, self._nodes = node, nodes
        self._before: NDArray[Any] | None = None

    def encode(self, name: str, live: MemoryTable, version: int, is_full: bool) -> Encoded:
        """Return all values of the share, or which differ."""
        rows = live.shape[0] or 0
        first, end = (rows * node // self._nodes for node in (self._node, self._node + 1))
        before = None if is_full else self._before
        record = self._record(name, live, before is None, first=first, count=end - first)
        if before is None:
            columns = (live._num_col,) * (len(live.shape) - 1)
            values = np.empty((end - first, *columns), DTYPES[self.stored])
            live._compare(version, CODES[self.stored], first * live._num_col, values)
            self._before = values
            return record, {f"values:{name}": Tensor(self.stored, values)}
        counts, places, values = live._compare(
            version, CODES[self.stored], first * live._num_col, before, finds=True
        )
        return record, {
            f"counts:{name}": Tensor("U32", counts),
            f"places:{name}": Tensor("U16", places),
            f"values:{name}": Tensor(self.stored, values),
        }


class CopyEncoder(DenseEncoder):
    """A part of an array with an initializer, copied since it may not be in memory."""

    def encode(self, name: str, live: MemoryTable, version: int, is_full: bool) -> Encoded:
        """Return all values of this node, or which differ."""
        before = None if is_full else self._before
        record = self._record(
            name, live, before is None, first=live.rows.start, count=len(live.rows)
        )
        self._before = values = self._bits(live._copy(version))
        if before is None:
            return record, {f"values:{name}": Tensor(self.stored, values)}
        differs = np.flatnonzero(unlike(values, before))
        counts = np.bincount(differs // BLOCK, minlength=-(-values.size // BLOCK))
        return record, {
            f"counts:{name}": Tensor("U32", counts.astype(np.uint32)),
            f"places:{name}": Tensor("U16", (differs % BLOCK).astype(np.uint16)),
            f"values:{name}": Tensor(self.stored, values[differs]),
        }


def dense_encoder(table: Any) -> type[DenseEncoder]:
    """Return the encoder of an array, or of a matrix all of whose rows exist."""
    return CopyEncoder if getattr(table, "initializer", None) is not None else DenseEncoder


class RowsEncoder(Encoder):
    """The rows of this node that exist; the elements of all others are `initial`, if not None."""

    def __init__(self, stored: str, dtype: np.dtype[Any], initial: float | None) -> None:
        super().__init__(stored)
        #: The initial value as it is stored, which may be rounded.
        self._initial = None if initial is None else self._bits(np.full(1, initial, dtype))
        self._store: RowStore | None = None
        #: Lists of ranges of rows, without keys, that may have changed since the last publication.
        self.candidates: list[NDArray[np.int64]] = []

    def encode(self, name: str, live: MemoryTable, version: int, is_full: bool) -> Encoded:
        """Return all rows, or the changed rows and the keys that have lost theirs."""
        is_full = is_full or self._store is None
        if live.is_hash:
            keys, values = in_order(*live._copy(version))
        else:
            # A publication that failed has left its lists, whose rows are looked at again.
            keys, values = _some_rows(live, version, self.candidates)
            self.candidates.clear()
        rows = self._bits(values)
        if self._initial is not None and not live.is_hash:
            # Memory comes in areas, whose other rows are initial.
            differs = unlike(rows, self._initial)
            if self._store is not None:
                differs |= self._store.find(keys)[1]
            keys, rows = keys[differs], rows[differs]
        changed, removed = np.ones(len(keys), bool), keys[:0]
        if self._store is None:
            self._store = RowStore(keys, rows)
        else:
            changed = self._store.differ(keys, rows)
            if live.is_hash:
                removed = np.setdiff1d(self._store.keys, keys, True)
            self._store.update(keys, rows, removed)
        initial = None if self._initial is None else result_of(self.stored, self._initial).item()
        record = self._record(name, live, is_full, initial=initial)
        if is_full:
            stored = self._store.rows[self._store.places]
            return record, self._tensors(name, self._store.keys, stored, None)
        return record, self._tensors(name, keys[changed], rows[changed], removed)

    def _tensors(
        self, name: str, keys: NDArray[Any], rows: NDArray[Any], removed: NDArray[Any] | None
    ) -> dict[str, Tensor]:
        tensors = {f"keys:{name}": Tensor("I64", keys)}
        tensors[f"rows:{name}"] = Tensor(self.stored, rows)
        if removed is not None:
            tensors[f"removed:{name}"] = Tensor("I64", removed)
        return tensors


def _some_rows(
    live: MemoryTable, version: int, lists: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the rows in lists of ranges of row numbers, as far as they are rows of this node."""
    ranges = np.concatenate([np.empty((0, 2), np.int64), *lists])
    clipped = np.clip(ranges, live.rows.start, live.rows.stop)
    numbers = np.unique(arrays.numbers_in(clipped))
    rows = np.empty((len(numbers), live._num_col), live.dtype)
    for first in range(0, len(numbers), _CHUNK):
        part = slice(first, first + _CHUNK)
        live._run(version, b"get_rows", numbers[part], rows[part])
    return numbers, rows
