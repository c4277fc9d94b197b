"""Reading the tables of a running session from any other process of this user on the machine."""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from ctypes import byref, c_int64
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arguments, arrays, capi
from multiverso._native.dtypes import DTYPES
from multiverso._native.library import checked, complete, lib
from multiverso._native.node_calls import by_name, read_description
from multiverso.errors import OperationTimeout, StateError
from multiverso.tables._changes import CELL
from multiverso.tables._ids import as_ids

__all__ = ["Cut", "LiveTable", "View", "attach"]

#: The time after which `attach` looks again.
_ATTACH_SECONDS: Final = 0.05
#: The wait after which `attach` logs what it waits for.
_LOG_SECONDS: Final = 10.0
_log = logging.getLogger("multiverso")
_FLOAT32: Final = np.dtype("float32")
#: The keys of a hash table that one call reads.
_CHUNK: Final = 65_536


def attach(job: str | int, *, timeout: float = 0.0) -> View:
    """Attach to a session of another process on this machine, in order to read its tables.

    This process needs no MPI, no launcher and no session. It cannot change anything, and no rank of
    the session ever waits for it. It keeps nothing of the session alive except memory, until
    `View.close`.

    Parameters
    ----------
    job : str or int
        The name that the session's ranks passed to `multiverso.init`, or the process id of one of
        them.
    timeout : float, optional
        Seconds to wait until a rank has opened such a session; not for a publication, for which
        `View.wait` waits. After ten seconds, a warning in the log says what the call waits for.

    Returns
    -------
    View
        A context manager: the end of its block calls `View.close`.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    StateError
        If this user has no such session on this machine, after `timeout` seconds, or several with
        that name.

    Examples
    --------
    An evaluator waits for the versions that a training job publishes::

        with mv.attach("train", timeout=60) as view:
            version = 0
            while True:
                version = view.wait(version + 1)
                cut = view.cut()
                print(cut.step, evaluate(cut["weights"]))

    """
    name = pid = None
    if isinstance(job, str):
        name = job.encode()
    else:
        pid = arguments.integer(job, "job", 1)
    start, limit = time.monotonic(), _seconds(timeout)
    handle = capi.MV_Reader()
    is_logged = False
    while True:
        try:
            checked.MV_ReaderOpen(name, pid or 0, byref(handle))
        except StateError as error:
            waited = time.monotonic() - start
            awaited = f"multiverso.init(name={job!r})" if name else f"a session of process {pid}"
            if limit == 0:
                raise
            if waited >= _LOG_SECONDS and not is_logged:
                is_logged = True
                _log.warning("attach: waits for %s in another process of this user", awaited)
            if waited >= limit:
                msg = f"{error}; waited {limit:g} s for {awaited} in another process of this user"
                raise StateError(msg) from None
            time.sleep(_ATTACH_SECONDS)
        else:
            return View(handle)


class View:
    """The tables of a session, as `attach` returns them.

    What the session has published can be read until the view is closed, also after the session has
    ended. Then reading the current values of a table, and waiting for a later version, raise
    `StateError`, and the message says why the session has ended. All methods and attributes raise
    `StateError` after `close`, and `ForkedError` in a child forked from the process that attached.
    """

    def __init__(self, handle: capi.MV_Reader) -> None:
        self._handle = handle
        # The finalizer must not refer to `self`, so it has a copy of the handle.
        self._close = weakref.finalize(self, lib.MV_ReaderClose, capi.MV_Reader(handle.value))

    def _describe(self) -> Any:
        return read_description(checked.MV_ReaderDescribe, self._handle)

    @property
    def name(self) -> str:
        """The name of the session."""
        return str(self._describe()["name"])

    @property
    def version(self) -> int:
        """The last version that the session has published, or 0."""
        return int(self._describe()["version"])

    @property
    def step(self) -> int:
        """The step of the last version."""
        return int(self._describe()["step"])

    @property
    def tables(self) -> dict[str, LiveTable]:
        """The tables by name, in the order of their creation.

        If several tables have the same name, the later ones are "NAME (table ID)".
        """
        described = by_name(self._describe()["tables"])
        return {name: LiveTable(self, raw) for name, raw in described.items()}

    def wait(self, version: int | None = None, timeout: float = 120.0) -> int:
        """Wait until the session has published a version.

        Parameters
        ----------
        version : int, optional
            The version; by default, the one after the last.
        timeout : float, optional
            The longest wait in seconds.

        Returns
        -------
        int
            The last version, which may be a later one.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        OperationTimeout
            If the session does not publish it in time.
        StateError
            If the session ends before it has published the version; at most a second later.

        """
        wanted = self.version + 1 if version is None else arguments.integer(version, "version", 0)
        return self._await(wanted, time.monotonic() + _seconds(timeout))[0]

    def _await(self, version: int, deadline: float) -> tuple[int, int]:
        """Wait for a version until `deadline`; return the last version and its step."""
        published, step = c_int64(), c_int64()
        milliseconds = math.ceil(1000 * max(deadline - time.monotonic(), 0.0))
        checked.MV_ReaderWait(self._handle, version, milliseconds, byref(published), byref(step))
        return published.value, step.value

    def cut(self, tables: Iterable[str] | None = None, timeout: float = 120.0) -> Cut:
        """Return copies of tables as they were when the session last published.

        If the session publishes twice during the copy, the copy begins again.

        Parameters
        ----------
        tables : iterable of str, optional
            The names of the tables; by default, all that the version has.
        timeout : float, optional
            The longest time in seconds, with the wait for the first version.

        Returns
        -------
        Cut
            A mapping from names to arrays; of hash tables, to pairs of keys and rows.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        OperationTimeout
            If the session does not publish, or so often that no copy can be completed.
        StateError
            If the session has no table of that name in the version, or has freed it; if it ended
            before it published, or had created tables after the last call of this view.

        """
        names = (
            None
            if tables is None
            else [arguments.text(name, "tables") for name in arguments.several(tables, "tables")]
        )
        deadline = time.monotonic() + _seconds(timeout)
        while True:
            version, step = self._await(1, deadline)
            found = {name: table for name, table in self.tables.items() if table.is_published}
            chosen = list(found) if names is None else names
            if missing := [name for name in chosen if name not in found]:
                if self.version > version:
                    continue
                names_found = ", ".join(map(repr, found)) or "none"
                msg = f"version {version} has no table {missing[0]!r}; its tables: {names_found}"
                raise StateError(msg)
            copies = {name: found[name]._copy(version) for name in chosen}
            if all(copy is not None for copy in copies.values()):
                return Cut(version, step, copies)
            if time.monotonic() >= deadline:
                msg = (
                    f"view.cut: the session published twice during each copy of {len(chosen)} "
                    "tables: publish less often, or read fewer tables"
                )
                raise OperationTimeout(msg)

    def close(self) -> None:
        """Release the memory of the session. No other method may be called afterwards."""
        self._close()

    def __enter__(self) -> View:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Cut(Mapping[str, Any]):
    """Copies of tables as of one publication, by name.

    Attributes
    ----------
    version : int
        The number of the publication.
    step : int
        The argument of `multiverso.publish`.

    """

    version: int
    step: int
    _tables: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


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
    rows : range
        The rows that can be read: all, except that each node of a session on several nodes shows
        only its own rows of a hash table or of a table with an initializer.

    """

    def __init__(self, view: View, raw: dict[str, Any]) -> None:
        self._view = view
        self._id: int = raw["id"]
        self.name: str = raw["name"]
        self.is_hash: bool = raw["kind"] == capi.MV_TABLE_HASH
        self.is_live: bool = raw["is_live"]
        self.is_published: bool = raw["is_published"]
        self.dtype: np.dtype[Any] = DTYPES.get(raw["dtype"], _FLOAT32)
        self._num_row, self._num_col = raw["num_row"], raw["num_col"]
        self.rows = range(raw["first_row"], raw["end_row"])
        self.shape: tuple[int | None, ...] = (self._num_row, self._num_col)
        if self.is_hash:
            self.shape = (None, self._num_col)
        elif raw["kind"] == capi.MV_TABLE_ARRAY:
            self.shape = (self._num_row,)

    def get(self, ids: Any = None, out: Any = None) -> NDArray[Any]:
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
        """Return the version to read, or 0 for the current values."""
        if self.is_live:
            return 0
        if version := self._view.version:
            return version
        msg = (
            f"table '{self.name}': the session has published nothing, and its current values "
            "cannot be read, because it is in sync mode or the table lies on several nodes"
        )
        raise StateError(msg)

    def _run(
        self, version: int, operation: bytes, ids: NDArray[np.int64] | None, out: NDArray[Any]
    ) -> bool:
        """Read into `out`; return False if the version is not complete any more."""
        # The library counts in elements of a table, or in numbers.
        count = out.nbytes // 8 if out.dtype == CELL else out.size
        status = lib.MV_ReaderRun(
            self._view._handle,
            self._id,
            version,
            operation,
            None if ids is None else arrays.address(ids),
            0 if ids is None else len(ids),
            arrays.address(out),
            count,
        )
        if status == capi.MV_OUTDATED:
            return False
        complete(status)
        return True

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
            cells = np.empty(len(ids), CELL)
            if not self._run(version, b"cells", ids, cells):
                return None
            keys.append(cells["key"][cells["is_used"] != 0])
        found = np.concatenate(keys)
        rows = np.empty((len(found), self._num_col), self.dtype)
        return (found, rows) if self._run(version, b"get_keys", found, rows) else None

    def __repr__(self) -> str:
        return f"<LiveTable '{self.name}': {self.shape} {self.dtype}>"


def _seconds(value: object) -> float:
    return max(arguments.finite(value, "timeout", "a finite number of seconds"), 0.0)
