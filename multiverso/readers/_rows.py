"""Rows by key: which of them differ from those before, and a store of which some change."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_NONE: Final = np.empty(0, np.int64)


def in_order(keys: NDArray[np.int64], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return keys in ascending order, and their rows."""
    order = np.argsort(keys)
    return keys[order], rows[order]


def unlike(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows, or elements of an array, differ bit by bit."""
    bits = np.dtype(f"u{rows.itemsize}")
    differs: NDArray[np.bool_] = np.not_equal(rows.view(bits), others.view(bits))
    return differs if rows.ndim == 1 else np.logical_or.reduce(differs, axis=1)


class RowStore:
    """Rows by key, of which some change at a time."""

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[Any]) -> None:
        self.rows = rows
        #: The keys in ascending order, and the places of their rows in `rows`, of which some are
        #: free.
        self.keys, self.places, self._free = keys, np.arange(len(keys)), _NONE

    def find(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the places of the rows of keys, and which of the keys have one."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        ranks = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.places[ranks], self.keys[ranks] == keys

    def differ(self, keys: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows are new, or differ bit by bit from those here."""
        places, exists = self.find(keys)
        differs = ~exists
        differs[exists] = unlike(self.rows[places[exists]], rows[exists])
        return differs

    def update(
        self, keys: NDArray[np.int64], rows: NDArray[Any], removed: NDArray[np.int64]
    ) -> None:
        """Remove rows, and set or add others; all keys are different."""
        if len(removed):
            stays = ~np.isin(self.keys, removed)
            self._free = np.concatenate([self._free, self.places[~stays]])
            self.keys, self.places = self.keys[stays], self.places[stays]
        places, exists = self.find(keys)
        self.rows[places[exists]] = rows[exists]
        if exists.all():
            return
        keys, rows = keys[~exists], rows[~exists]
        order = np.argsort(keys)
        keys, rows = keys[order], rows[order]
        if (short := len(keys) - len(self._free)) > 0:
            used = len(self.rows)
            # Growing by an eighth at least keeps the copies rare.
            grown = np.empty((used + max(short, used // 8), *self.rows.shape[1:]), self.rows.dtype)
            grown[:used] = self.rows
            self._free = np.concatenate([self._free, np.arange(used, len(grown))])
            self.rows = grown
        taken, self._free = np.split(self._free, [len(keys)])
        self.rows[taken] = rows
        ranks = np.searchsorted(self.keys, keys)
        self.places = np.insert(self.places, ranks, taken)
        self.keys = np.insert(self.keys, ranks, keys)
