"""Hash tables: rows of parameters that are named by keys."""

from __future__ import annotations

import functools
import numbers
import re
from collections.abc import Iterator
from ctypes import POINTER, c_int64, cast
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from multiverso import _session, initializers
from multiverso._native import arrays, capi
from multiverso._native.arguments import choice, flag, integer
from multiverso._native.hints import Hint
from multiverso._native.ids import as_ids
from multiverso._native.library import checked
from multiverso.initializers import Initializer
from multiverso.tables._background import FreshGets, Future, require_async_mode
from multiverso.tables._options import document_options
from multiverso.tables._shaped_table import input_shapes
from multiverso.tables._table import COLLECTIVE, Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.tables._options import TableOptions
    from multiverso.tables._types import Out

_run: Final = checked.MV_TableRun
_ROWS_PER_STRIPE: Final = 512
_EVICT: Final = {"lru": capi.MV_EVICT_LRU, "lfu": capi.MV_EVICT_LFU}
_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@document_options
class HashTable(Table):
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
    evict : {"lru", "lfu"}, optional
        What happens if a key needs a row and the table is full. By default the call raises
        `MemoryError` and changes nothing. With "lru", a key that has not been used for long loses
        its row, with its state; with "lfu", one that has been used rarely. The key is chosen among
        64, in the place where the new one needs a row.
    admit : int, optional
        A key gets a row at its `admit`-th get; 1 by default, at most 255. Earlier gets return the
        initial values, and adds to a key without a row have no effect. The counts are estimates,
        which are rarely too large, and old gets count less.
    initializer : Initializer, optional
        The former name of `init_value`.
    dtype, updater, name, max_bytes, backing, numa, wire, **options : optional
        As for `multiverso.tables.TableOptions`. `help` of the class shows them here.

    Raises
    ------
    TypeError, ValueError, MismatchError, MemoryError, StateError, OperationTimeout, PeerLostError
        As for `ArrayTable`. In sync mode, `evict` and `admit` are a `ValueError`, because they
        depend on the order of the workers' calls.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     table = mv.HashTable(2, capacity=1000)
    ...     table.add([[1, 2], [3, 4]], keys=[7_000_000_000, -5])
    ...     table.get([-5, 12])
    ...     len(table)
    ...     [(keys.shape, rows.shape) for keys, rows in table.items()]
    array([[3., 4.],
           [0., 0.]], dtype=float32)
    3
    [((3,), (3, 2))]

    """

    __slots__ = ("_fresh_gets", "_num_col")
    _kind = capi.MV_TABLE_HASH
    _num_col: int

    def __init__(
        self,
        num_col: int,
        capacity: int | str | None = None,
        init_value: float | Initializer | None = None,
        *,
        key_dtype: DTypeLike = "int64",
        evict: str | None = None,
        admit: int | None = None,
        initializer: Initializer | None = None,
        **options: Unpack[TableOptions],
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
            elif options.get("max_bytes") is None:
                msg = "capacity: expected a number of keys or a size such as '4GB', received None"
                raise ValueError(msg)
            if evict is not None:
                raw.evict = _EVICT[choice(evict, "evict", _EVICT)]
            raw.admit = 0 if admit is None else integer(admit, "admit", 1)
            if init_value is not None and initializer is not None:
                raise TypeError("initializer: expected None with init_value, received both")
            initial = _initializer(initializer if init_value is None else init_value)
            initializers.set_initializer(raw, initial, self._dtype)
            self._initializer = initial

        super().__init__(configure, options)
        self._fresh_gets = FreshGets()

    @property
    def num_col(self) -> int:
        """The number of columns."""
        return self._num_col

    def get(
        self, keys: ArrayLike, insert: bool = True, sync: bool = False, out: Out | None = None
    ) -> Out:
        """Return the rows of keys, and give a row to the keys that have none.

        Which adds the result contains, and what the call waits for, is as for `ArrayTable.get`.

        Parameters
        ----------
        keys : array_like of int with shape (n,)
            The keys, any int64; a key may occur twice.
        insert : bool, optional
            With False, keys without a row keep having none, and nothing changes: for evaluation.
        sync : bool, optional
            True makes the call collective, as for `MatrixTable.get`.
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
            As for `MatrixTable.get`.

        """
        ids = as_ids(keys, "keys")
        flags = COLLECTIVE if sync is not False and flag(sync, "sync") else 0
        return self._read(_operation(insert), ids, (len(ids), self._num_col), out, flags)

    def peek(self, keys: ArrayLike, out: Out | None = None) -> Out:
        """Return the rows of keys without taking part in a round, as a matrix does.

        Keys without a row keep having none, and are returned with their initial values.

        It raises the errors of [`ArrayTable.peek`][multiverso.tables.ArrayTable.peek], and for
        wrong arguments those of `get`.

        Parameters
        ----------
        keys, out
            As for `get`.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array of shape (n, num_col).

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(sync=True):
        ...     table = mv.HashTable(2, capacity=10)
        ...     table.add([[1.0, 2.0]], keys=[7])
        ...     (table.peek([7, 8]), len(table))
        (array([[1., 2.],
               [0., 0.]], dtype=float32), 1)

        """
        ids = as_ids(keys, "keys")
        return self._read(b"get_keys", ids, (len(ids), self._num_col), out, capi.MV_PEEK)

    def add(self, data: ArrayLike, keys: ArrayLike, sync: bool = False) -> None:
        """Apply a delta to the rows of keys with the table's updater.

        Keys without a row get one first, unless the table has `admit`.

        Parameters
        ----------
        data : array_like of shape (n, num_col)
            The delta, or flat with as many elements, as for `MatrixTable.add`.
        keys : array_like of int with shape (n,)
            The keys. A key may occur twice, as a row in `MatrixTable.add`.
        sync : bool, optional
            As for `ArrayTable.add`.

        Raises
        ------
        IndexError, TypeError, ValueError
            If the keys are not integers of 64 bits in one dimension, or `data` is invalid. The
            table is unchanged.
        MemoryError
            If the table is full. The message has the numbers, and no row has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError, MismatchError
            As for `MatrixTable.add`.

        """
        if sync is not False:
            flag(sync, "sync")
        ids, delta = self._rows_of(data, keys)
        self._write(b"add_keys", ids, delta)

    def get_async(
        self,
        keys: ArrayLike,
        out: Out | None = None,
        *,
        insert: bool = True,
        fresh: bool = False,
    ) -> Future[Out]:
        """Begin a `get` in the background, with its arguments, which raise its errors.

        `fresh` and the result are as for
        [`MatrixTable.get_async`][multiverso.tables.MatrixTable.get_async]. The keys are copied; do
        not use `out` until the call has ended.
        """
        operation, ids = _operation(insert), as_ids(keys, "keys")
        require_async_mode(fresh, _session.current().options.mode_name)
        get = functools.partial(self.get, insert=insert)
        finisher = functools.partial(self._fresh_gets.finisher, get=get) if fresh else None
        shape = (len(ids), self._num_col)
        return self._read_in_background(operation, ids, shape, out, finisher)

    def add_async(self, data: ArrayLike, keys: ArrayLike) -> Future[None]:
        """Begin an `add` in the background, with its arguments, which are copied.

        When the call waits, its result and its errors are as for
        [`ArrayTable.add_async`][multiverso.tables.ArrayTable.add_async].
        """
        ids, delta = self._rows_of(data, keys)
        return self._background.start(b"add_keys", ids, delta, None)

    def contains(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """Return which keys have a row, as an array of bool with shape (n,). Changes nothing.

        It raises the errors of [`get`][multiverso.tables.HashTable.get] except `MemoryError`.
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

        It raises the errors of [`get`][multiverso.tables.HashTable.get] except `MemoryError`.
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

    def _rows_of(self, data: Any, keys: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the ids and the delta of an add, which is about to be made."""
        ids = as_ids(keys, "keys")
        delta = self._delta_of(data, input_shapes((len(ids), self._num_col)))
        self._fresh_gets.note(ids)
        return ids, delta

    def _size_text(self) -> str:
        return f"rows of {self._num_col}"

    if not TYPE_CHECKING:  # A type checker finds that these do not exist.
        changes = Hint(
            "publish the table with mv.publish(to=FOLDER), and read what has changed with changed "
            "and removed of mv.follow(FOLDER)"
        )


def _initializer(init_value: Any) -> Initializer:
    """Return the initializer that a user has passed, or one of a number."""
    if isinstance(init_value, Initializer):
        return init_value
    if init_value is None:
        return initializers.Zeros()
    is_number = isinstance(init_value, numbers.Real)
    if not is_number:
        raise TypeError(
            f"init_value: expected a number or one of multiverso.initializers, received "
            f"{type(init_value).__name__}"
        )
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
