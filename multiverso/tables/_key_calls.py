"""The calls on the keys of a hash table: which there are, and what has happened to them."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import POINTER, c_int64, cast
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso import _session
from multiverso._native import arrays, capi
from multiverso._native.arguments import integer
from multiverso._native.hints import Hint
from multiverso._native.ids import as_ids
from multiverso._native.library import checked
from multiverso.tables._table import Table

_run: Final = checked.MV_TableRun
_ROWS_PER_STRIPE: Final = 512


class KeyCalls(Table):
    """A table with a row for each key, of which a subclass gets and changes the values."""

    __slots__ = ("_num_col",)
    _num_col: int

    @property
    def num_col(self) -> int:
        """The number of columns."""
        return self._num_col

    def get(self, keys: ArrayLike, insert: bool = True) -> Any:
        """Return the rows of keys."""
        raise NotImplementedError

    def contains(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """Return which keys have a row, as an array of bool with shape (n,). Changes nothing.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError, OperationTimeout, PeerLostError
            As for `get`.

        """
        ids = as_ids(keys, "keys")
        rows = np.empty(len(ids), np.int64)
        rows_pin = arrays.pin(rows)
        _run(self._handle, b"find_keys", arrays.pointer(ids), len(ids), None, rows_pin, len(ids), 0)
        return rows >= 0

    def __contains__(self, key: object) -> bool:
        keys: Any = [key]
        return bool(self.contains(keys)[0])

    def remove(self, keys: ArrayLike) -> None:
        """Take the rows of keys away, with their state. Keys without a row are ignored.

        An add of another worker at the same time is made before the removal or after it. In sync
        mode all workers make this call, each with its own keys.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError, OperationTimeout, PeerLostError
            As for `get`; in sync mode also AbortedError and MismatchError.

        """
        ids = as_ids(keys, "keys")
        session = _session.current()
        is_round = session.options.mode == capi.MV_MODE_SYNC
        if is_round:
            self.get([], insert=False)  # Waits for the adds of the workers.
            session.aggregate(np.zeros(1))  # A barrier would also wait for ranks that only serve.
        _run(self._handle, b"remove_keys", arrays.pointer(ids), len(ids), None, None, 0, 0)
        if is_round:
            session.aggregate(np.zeros(1))

    def __len__(self) -> int:
        """Return the number of keys with a row, on all nodes."""
        return self.stats()["keys"]

    def __bool__(self) -> bool:
        return True

    def stats(self) -> dict[str, int]:
        """Return what has happened to the keys, on all nodes and by all workers.

        Returns
        -------
        dict
            The keys with a row now (``keys``), and since the table was created: keys of gets with a
            row (``hits``) and without (``misses``), keys that got a row (``admissions``), keys of
            gets that were left without one (``rejections``), ``evictions`` and ``removals``. With
            `backing`, also ``pages_read`` and ``pages_written``, as of the other
            tables: `ArrayTable.stats`.

        """
        counts = (c_int64 * capi.MV_KEY_COUNTS)()
        checked.MV_TableKeyCounts(self._handle, cast(counts, POINTER(c_int64)))
        of_keys = dict(zip(capi.KEY_COUNTS, counts, strict=True))
        return of_keys if self._disk_pages is None else {**of_keys, **super().stats()}

    def items(self, chunk: int = 65_536) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield the keys that have rows, in arrays of shape (n,), and their rows, (n, num_col).

        The rows of a chunk are read when it is its turn. Keys that get or lose a row meanwhile may
        be left out, and one that loses its row and gets another may come twice. In sync mode all
        workers call it, with the same `chunk`.

        Parameters
        ----------
        chunk : int, optional
            The most keys at a time.

        Raises
        ------
        TypeError, ValueError
            If `chunk` is not an integer of 1 or more.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `get`.

        """
        step = max(integer(chunk, "chunk", 1) // _ROWS_PER_STRIPE, 1) * _ROWS_PER_STRIPE
        num_row = self._description().num_row
        for first in range(0, num_row, step):
            rows = np.arange(first, min(first + step, num_row))
            cells = np.empty((len(rows), 2), np.int64)  # the key of each row, and 0 for none
            rows_pin, sink = arrays.pointer(rows), arrays.pin(cells)
            _run(self._handle, b"cells", rows_pin, len(rows), None, sink, cells.size, 0)
            keys = cells[cells[:, 1] != 0, 0]
            # In sync mode all workers make equally many gets.
            values = self.get(keys, insert=False)
            for i in range(0, len(keys), chunk):
                yield keys[i : i + chunk], values[i : i + chunk]

    if not TYPE_CHECKING:  # A type checker finds that these do not exist.
        changes = Hint(
            "publish the table with mv.publish(to=FOLDER), and read what has changed with changed "
            "and removed of mv.follow(FOLDER)"
        )
        to_parquet = Hint(
            "write what items() yields with pyarrow, as the section on keys of docs/embeddings.md "
            "shows"
        )
