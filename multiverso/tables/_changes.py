"""What has changed in a hash table, for a copy of it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from multiverso.tables._key_calls import KeyCalls

#: What the library says about a row: a key, another number after each change, 0 if it is free.
CELL: Final = np.dtype([("key", "<i8"), ("changes", "<u4"), ("is_used", "<u4")])


class Changes:
    """Reads what has changed in a hash table since the last call, while the table changes.

    Apply what `read` yields to a copy, such as one that serves predictions: store the rows of the
    keys, and delete the removed keys. A change that happens during a call is in its result or in
    that of the next call. The object takes 26 bytes for each key that the table may have.

    Parameters
    ----------
    table : HashTable
        The table.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.HashTable(1, capacity=100)
    ...     table.add([[1], [2], [3]], keys=[10, 20, 30])
    ...     changes = table.changes()
    ...     copy = {}
    ...     for step in range(2):
    ...         for keys, rows, removed in changes.read():
    ...             copy.update(zip(keys.tolist(), rows.tolist()))
    ...             for key in removed.tolist():
    ...                 del copy[key]
    ...         table.add([[5]], keys=[20])
    ...         table.remove([30])
    ...     sorted(copy.items())
    [(10, [1.0]), (20, [7.0])]

    """

    def __init__(self, table: KeyCalls) -> None:
        self._table = table
        self._seen: dict[int, NDArray[Any]] = {}  # the cells of parts of the table
        # Keys that have lost the rows of `_seen` and had got others when the last call ended.
        self._moved = np.empty(0, np.int64)

    def read(
        self, chunk: int = 65_536
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Yield what has changed since the last call; at first, all keys.

        In sync mode all workers call it, with the same `chunk`.

        Parameters
        ----------
        chunk : int, optional
            The most keys at a time.

        Yields
        ------
        tuple of ndarray
            Keys that got a row or whose rows have changed, of shape (n,); their rows, of shape (n,
            num_col); and keys that have lost their rows, which come last, with an empty n.

        Raises
        ------
        TypeError, ValueError
            If `chunk` is not an integer of 1 or more, or another one than in the last call.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `HashTable.get`.

        """
        none = np.empty(0, np.int64)
        gone = [none]
        is_seen = np.zeros(len(self._moved), bool)
        parts = list(self._seen)
        for first, cells in self._table._cells(chunk):
            before = self._seen.get(first, np.zeros(len(cells), CELL))
            if len(before) != len(cells) or (parts and first not in self._seen):
                msg = f"chunk: expected the same as in the last call, received {chunk}"
                raise ValueError(msg)
            differs = cells != before
            keys = cells["key"][differs & (cells["is_used"] != 0)]
            has_lost = (before["is_used"] != 0) & (
                (cells["is_used"] == 0) | (cells["key"] != before["key"])
            )
            gone.append(before["key"][has_lost])
            if len(self._moved):
                is_seen |= np.isin(self._moved, cells["key"][cells["is_used"] != 0])
            rows = self._table.get(keys, insert=False)
            self._seen[first] = cells
            for i in range(0, len(keys), chunk):
                yield keys[i : i + chunk], rows[i : i + chunk], none
        # A key that has got another row meanwhile is not removed, but may be before the next call.
        candidates = np.unique(np.concatenate([*gone, self._moved[~is_seen]]))
        has_row = self._table.contains(candidates)
        removed, self._moved = candidates[~has_row], candidates[has_row]
        for i in range(0, len(removed), chunk):
            yield (
                none,
                np.empty((0, self._table.num_col), self._table.value_dtype),
                (removed[i : i + chunk]),
            )
