"""Hash tables: rows of parameters that are named by keys."""

from __future__ import annotations

import functools
import numbers
import re
from collections.abc import Iterator
from ctypes import POINTER, c_int64, cast
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from multiverso import _session, api, initializers
from multiverso._native import arrays, capi
from multiverso._native.arguments import choice, finite, flag, integer
from multiverso._native.library import checked
from multiverso.initializers import Initializer
from multiverso.tables._background import FreshGets, Future, require_async_mode
from multiverso.tables._changes import CELL, Changes
from multiverso.tables._ids import as_ids
from multiverso.tables._table import COLLECTIVE, Table, copier

_run: Final = checked.MV_TableRun
_EVICT: Final = {"lru": capi.MV_EVICT_LRU, "lfu": capi.MV_EVICT_LFU}
_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_ROWS_PER_STRIPE: Final = 512


class HashTableHandler(Table):
    """A table with a row for each key. The constructor is collective: all ranks create the table.

    A key is any int64. It has a row from its first `get` or `add` on; until then it has the initial
    values. The memory grows with the keys, up to the capacity.

    Parameters
    ----------
    num_col : int
        The number of columns; at most 512 KiB of values.
    capacity : int or str, optional
        The most keys, or the most bytes of parameters and state on each node, such as "40GB". With
        several nodes, each has room for its share of the keys and some more.
    init_value : scalar or Initializer, optional
        The initial values: the same for all elements, or a function of the key, as one of
        `multiverso.initializers` is. Zeros by default.
    key_dtype : {"int64"}, optional
        The type of the keys. `hash_keys` makes keys of texts.
    dtype : {"float32", "float64", "int32", "int64", "float16", "bfloat16"}, optional
        The type in which the parameters are stored, as for `ArrayTableHandler`.
    updater : str, optional
        As for `MatrixTableHandler`.
    evict : {"lru", "lfu"}, optional
        What happens if a key needs a row and the table is full. By default the call raises
        `MemoryError` and changes nothing. With "lru", a key that has not been used for long loses
        its row, with its state; with "lfu", one that has been used rarely. The key is chosen among
        64, in the place where the new one needs a row.
    admit : int, optional
        A key gets a row at its `admit`-th get; 1 by default, at most 255. Earlier gets return the
        initial values, and adds to a key without a row have no effect. The counts are estimates,
        which are rarely too large, and old gets count less.
    ttl : float, optional
        A key that has not been used for so many seconds loses its row; accurate to 1/8 s.
    initializer : Initializer, optional
        The former name of `init_value`.
    name, max_bytes, numa, wire, **options : optional
        As for `ArrayTableHandler`.

    Raises
    ------
    TypeError, ValueError, MismatchError, MemoryError, StateError
        As for `ArrayTableHandler`. In sync mode, `evict`, `admit` and `ttl` are a `ValueError`,
        because they depend on the order of the workers' calls.
    OperationTimeout, PeerLostError, AbortedError
        As for `ArrayTableHandler`.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.HashTableHandler(2, capacity=1000)
    ...     table.add([[1, 2], [3, 4]], keys=[7_000_000_000, -5])
    ...     table.get([-5, 12])
    ...     len(table)
    array([[3., 4.],
           [0., 0.]], dtype=float32)
    3

    """

    __slots__ = ("_fresh_gets", "_num_col")
    _kind = capi.MV_TABLE_HASH

    def __init__(
        self,
        num_col: int,
        capacity: int | str | None = None,
        init_value: float | Initializer | None = None,
        *,
        key_dtype: DTypeLike = "int64",
        dtype: DTypeLike = "float32",
        updater: str = "add",
        evict: str | None = None,
        admit: int | None = None,
        ttl: float | None = None,
        initializer: Initializer | None = None,
        name: str | None = None,
        max_bytes: int | None = None,
        numa: str | None = None,
        wire: str | None = None,
        **options: float | None,
    ) -> None:
        def configure(raw: capi.MV_TableOptions) -> None:
            self._num_col = raw.num_col = integer(num_col, "num_col", 1)
            if np.dtype(key_dtype) != np.int64:
                msg = f"key_dtype: expected int64, received {key_dtype!r}; see hash_keys for texts"
                raise TypeError(msg)
            if isinstance(capacity, str):
                raw.max_bytes = min(raw.max_bytes or 2**62, _bytes_of(capacity))
            elif capacity is not None:
                raw.capacity = integer(capacity, "capacity", 1)
            elif max_bytes is None:
                msg = "capacity: expected a number of keys or a size such as '4GB', received None"
                raise ValueError(msg)
            if evict is not None:
                raw.evict = _EVICT[choice(evict, "evict", _EVICT)]
            raw.admit = 0 if admit is None else integer(admit, "admit", 1)
            raw.ttl = 0.0 if ttl is None else finite(ttl, "ttl")
            if ttl is not None and raw.ttl <= 0:
                msg = f"ttl: expected more than 0 seconds, received {ttl}"
                raise ValueError(msg)
            if init_value is not None and initializer is not None:
                msg = "initializer: expected None with init_value, received both"
                raise TypeError(msg)
            initial = _initializer(initializer if init_value is None else init_value)
            initializers.set_initializer(raw, initial, self._dtype)
            self._initializer = initial

        super().__init__(configure, dtype, updater, name, max_bytes, numa, wire, options)
        self._fresh_gets = FreshGets()

    @property
    def num_col(self) -> int:
        """The number of columns."""
        return self._num_col

    def get(self, keys: Any, insert: bool = True, sync: bool = False, out: Any = None) -> Any:
        """Return the rows of keys, and give a row to the keys that have none.

        Like the get of a matrix, the result contains all earlier adds of this worker, and at least
        the adds of the other workers before the last barrier; in sync mode the call waits for the
        round.

        Parameters
        ----------
        keys : array_like of int with shape (n,)
            The keys, any int64; a key may occur twice.
        insert : bool, optional
            With False, keys without a row keep having none, and nothing changes: for evaluation.
        sync : bool, optional
            True makes the call collective, as for `MatrixTableHandler.get`.
        out : array of shape (n, num_col), optional
            The array to write the values to, of the table's `dtype` or `value_dtype`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of that shape.

        Raises
        ------
        IndexError, TypeError, ValueError
            If the keys are not integers of 64 bits in one dimension, or `out` is not a writable
            array of the right dtype and shape.
        MemoryError
            If the table is full. The message has the numbers, and the table is unchanged.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `MatrixTableHandler.get`.

        """
        ids = as_ids(keys, "keys")
        shape = (len(ids), self._num_col)
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        if np.may_share_memory(ids, buffer):  # The library reads `ids` while it writes to `buffer`.
            ids = ids.copy()
        operation = _operation(insert)
        flags = COLLECTIVE if sync is not False and flag(sync, "sync") else 0
        keys_pin, sink = arrays.pointer(ids), arrays.pin(buffer)
        _run(self._handle, operation, keys_pin, len(ids), None, sink, buffer.size, flags)
        arrays.copy_out(buffer, target)
        return out

    def peek(self, keys: Any, out: Any = None) -> Any:
        """Return the rows of keys without taking part in a round, as a matrix does.

        Keys without a row keep having none, and are returned with their initial values.

        Parameters
        ----------
        keys : array_like of int with shape (n,)
            The keys, any int64; a key may occur twice.
        out : array of shape (n, num_col), optional
            The array to write the values to, of the table's `dtype` or `value_dtype`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of that shape.

        Raises
        ------
        IndexError, TypeError, ValueError
            As for `get`.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `ArrayTableHandler.peek`.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.HashTableHandler(2, capacity=10)
        ...     table.add([[1.0, 2.0]], keys=[7])
        ...     (table.peek([7, 8]), len(table))
        (array([[1., 2.],
               [0., 0.]], dtype=float32), 1)

        """
        ids = as_ids(keys, "keys")
        return self._peek(b"get_keys", ids, (len(ids), self._num_col), out)

    def add(self, data: ArrayLike, keys: Any, sync: bool = False) -> None:
        """Apply a delta to the rows of keys with the table's updater.

        Keys without a row get one first, unless the table has `admit`.

        Parameters
        ----------
        data : array_like of shape (n, num_col)
            The delta, or flat with as many elements, as for `MatrixTableHandler.add`.
        keys : array_like of int with shape (n,)
            The keys. A key may occur twice, as a row in `MatrixTableHandler.add`.
        sync : bool, optional
            As for `ArrayTableHandler.add`.

        Raises
        ------
        IndexError, TypeError, ValueError
            If the keys are not integers of 64 bits in one dimension, or `data` is invalid. The
            table is unchanged.
        MemoryError
            If the table is full. The message has the numbers, and no row has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `MatrixTableHandler.add`.

        """
        if sync is not False:
            flag(sync, "sync")
        ids, delta = self._rows_of(data, keys)
        self._fresh_gets.note(ids)
        keys_pin, source = arrays.pointer(ids), arrays.pointer(delta)
        _run(self._handle, b"add_keys", keys_pin, len(ids), source, None, delta.size, 0)

    def get_async(
        self, keys: Any, out: Any = None, *, insert: bool = True, fresh: bool = False
    ) -> Future:
        """Begin a `get` in the background, as `MatrixTableHandler.get_async` does.

        Parameters
        ----------
        keys, out, insert
            As for `get`. The keys are copied; do not use `out` until the call has ended.
        fresh : bool, optional
            As for `MatrixTableHandler.get_async`.

        Returns
        -------
        multiverso.tables.Future
            Its ``result()`` waits for the call and returns `out`, or a new array.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError
            As for `get`. All other errors of `get` are raised by the future.

        """
        require_async_mode(fresh, _session.current().options.mode)
        operation = _operation(insert)
        ids = as_ids(keys, "keys")
        shape = (len(ids), self._num_col)
        if out is None:
            out = np.empty(shape, self._dtype)
        buffer, target = self._output(out, shape)
        finish = copier(buffer, target)
        if fresh:
            finish = self._fresh_gets.finisher(
                ids, out, functools.partial(self.get, insert=insert), finish
            )
        return self._background.start(operation, ids, None, buffer, out, finish)

    def add_async(self, data: ArrayLike, keys: Any) -> Future:
        """Begin an `add` in the background, as `MatrixTableHandler.add_async` does.

        Parameters
        ----------
        data, keys
            As for `add`. They are copied.

        Returns
        -------
        multiverso.tables.Future
            As for `ArrayTableHandler.add_async`.

        Raises
        ------
        IndexError, TypeError, ValueError, StateError, OperationTimeout
            As for `MatrixTableHandler.add_async`.

        """
        ids, delta = self._rows_of(data, keys)
        self._fresh_gets.note(ids)
        return self._background.start(b"add_keys", ids, delta, None)

    def contains(self, keys: Any) -> NDArray[np.bool_]:
        """Return which keys have a row, as an array of bool with shape (n,). Changes nothing.

        Raises
        ------
        IndexError, TypeError, ValueError
            If the keys are not integers of 64 bits in one dimension.
        StateError, OperationTimeout, PeerLostError
            As for `get`.

        """
        ids = as_ids(keys, "keys")
        rows = np.empty(len(ids), np.int64)
        rows_pin = arrays.pin(rows)
        _run(self._handle, b"find_keys", arrays.pointer(ids), len(ids), None, rows_pin, len(ids), 0)
        return rows >= 0

    def __contains__(self, key: object) -> bool:
        return bool(self.contains([key])[0])

    def remove(self, keys: Any) -> None:
        """Take the rows of keys away, with their state. Keys without a row are ignored.

        An add of another worker at the same time is made before the removal or after it. In sync
        mode all workers make this call, each with its own keys.

        Raises
        ------
        IndexError, TypeError, ValueError
            If the keys are not integers of 64 bits in one dimension.
        StateError, OperationTimeout, PeerLostError
            As for `get`; in sync mode also AbortedError and MismatchError.

        """
        ids = as_ids(keys, "keys")
        is_round = _session.current().options.mode == capi.MV_MODE_SYNC
        if is_round:
            self.get([], insert=False)  # Waits for the adds of the workers.
            api.barrier()
        _run(self._handle, b"remove_keys", arrays.pointer(ids), len(ids), None, None, 0, 0)
        if is_round:
            api.barrier()

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
            gets that were left without one (``rejections``), ``evictions``, ``expirations`` and
            ``removals``.

        """
        counts = (c_int64 * capi.MV_KEY_COUNTS)()
        checked.MV_TableKeyCounts(self._handle, cast(counts, POINTER(c_int64)))
        return dict(zip(capi.KEY_COUNTS, counts, strict=True))

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
        for _, cells in self._cells(chunk):
            keys = cells["key"][cells["is_used"] != 0]
            # In sync mode all workers make equally many gets.
            values = self.get(keys, insert=False)
            for i in range(0, len(keys), chunk):
                yield keys[i : i + chunk], values[i : i + chunk]

    def changes(self) -> Changes:
        """Return an object that reads what changes in the table, for a copy of it elsewhere."""
        return Changes(self)

    def _cells(self, chunk: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the first row of parts of the table, and the cells of their rows."""
        step = max(integer(chunk, "chunk", 1) // _ROWS_PER_STRIPE, 1) * _ROWS_PER_STRIPE
        num_row = self._description().num_row
        for first in range(0, num_row, step):
            rows = np.arange(first, min(first + step, num_row))
            cells = np.empty(len(rows), CELL)
            rows_pin, sink = arrays.pointer(rows), arrays.pin(cells)
            _run(self._handle, b"cells", rows_pin, len(rows), None, sink, 2 * len(rows), 0)
            yield first, cells

    def _rows_of(self, data: Any, keys: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
        ids = as_ids(keys, "keys")
        shape = (len(ids), self._num_col)
        return ids, self._delta_of(data, (shape, (shape[0] * shape[1],)))

    def _size_text(self) -> str:
        return f"rows of {self._num_col}"


def _initializer(init_value: Any) -> Initializer:
    """Return the initializer that a user has passed, or one of a number."""
    if isinstance(init_value, Initializer):
        return init_value
    if init_value is None:
        return initializers.Zeros()
    is_number = isinstance(init_value, numbers.Real)
    if not is_number:
        msg = (
            f"init_value: expected a number or one of multiverso.initializers, received "
            f"{type(init_value).__name__}"
        )
        raise TypeError(msg)
    return initializers.Constant(init_value)


def _operation(insert: object) -> bytes:
    """Return the operation of a get that gives keys a row, or does not."""
    return b"fetch_keys" if insert is True or flag(insert, "insert") else b"get_keys"


def _bytes_of(size: str) -> int:
    """Return the bytes of a size such as "40GB" or "512MiB"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\s*", size)
    if match is None or not float(match[1]):
        msg = f"capacity: expected a number of keys or a size such as '4GB', received {size!r}"
        raise ValueError(msg)
    unit = _UNITS[match[2] + "B"]
    return int(float(match[1]) * (1024 ** (1 + "KMGT".index(match[2])) if match[3] else unit))
