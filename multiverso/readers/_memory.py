"""Views over the memory of a running session, for any process of this user on the machine."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int64, c_void_p
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arguments, arrays, capi
from multiverso._native.dtypes import DTYPES
from multiverso._native.library import checked, complete, lib
from multiverso._native.node_calls import by_name, read_description
from multiverso.errors import OperationTimeout, StateError
from multiverso.readers._rows import RowStore, in_order, unlike
from multiverso.readers._tables import ViewTable
from multiverso.readers._view import Changes, Cut, View, chosen, seconds

_FLOAT32: Final = np.dtype("float32")
_NONE: Final = np.empty(0, np.int64)
#: The elements in a block of MV_ReaderCompare.
BLOCK: Final = 65_536
#: The keys of a hash table that one call reads.
_CHUNK: Final = 65_536
#: The time after which `attach` looks again.
_ATTACH_SECONDS: Final = 0.05
#: The wait after which `attach` logs what it waits for.
_LOG_SECONDS: Final = 10.0
#: How long `View.changed` tries to copy a table of a session that publishes all the time.
_COPY_SECONDS: Final = 120.0
_Result = TypeVar("_Result")
_log = logging.getLogger("multiverso")


@arguments.suggests_names
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
    StateError
        If this user has no such session on this machine, after `timeout` seconds, or several with
        that name.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.ArrayTable(2, [1, 2], name="weights")
    ...     with mv.attach(os.getpid(), timeout=60) as view:
    ...         view.tables["weights"].get()
    array([1., 2.], dtype=float32)

    """
    name, pid = (
        (job.encode(), 0) if isinstance(job, str) else (None, arguments.integer(job, "job", 1))
    )
    awaited = f"multiverso.init(name={job!r})" if name else f"a session of process {pid}"
    start, limit, is_logged = time.monotonic(), seconds(timeout), False
    store = MemoryStore()
    while True:
        try:
            checked.MV_ReaderOpen(name, pid, byref(store.handle))
            return View(store)
        except StateError as error:
            waited = time.monotonic() - start
            if limit == 0:
                raise
            if waited >= limit:
                reason = f"{error.args[0]}; waited {limit:g} s for {awaited}"
                raise StateError(f"{reason} in another process of this user") from None
        if waited >= _LOG_SECONDS and not is_logged:
            is_logged = True
            _log.warning("attach: waits for %s in another process of this user", awaited)
        time.sleep(_ATTACH_SECONDS)


class OutdatedError(Exception):
    """The session has published so much since a version that it cannot be read any more."""


def _complete(status: int) -> None:
    """Raise the error of a call, or OutdatedError."""
    if status == capi.MV_OUTDATED:
        raise OutdatedError
    complete(status)


class MemoryTable(ViewTable):
    """A table in the memory of a session, which `raw` describes."""

    def __init__(self, handle: capi.MV_Reader, raw: dict[str, Any]) -> None:
        shape: tuple[int | None, ...] = (raw["num_row"], raw["num_col"])
        if raw["kind"] == capi.MV_TABLE_HASH:
            shape = (None, raw["num_col"])
        elif raw["kind"] == capi.MV_TABLE_ARRAY:
            shape = (raw["num_row"],)
        # What computes initial values, or 0.
        has_rows = raw["initial"] != 0 and len(shape) == 2
        super().__init__(raw["name"], shape, DTYPES.get(raw["dtype"], _FLOAT32), has_rows)
        self.is_live = raw["is_live"]
        self.is_published = raw["is_published"]
        self.rows = range(raw["first_row"], raw["end_row"])
        self._handle = handle
        self._id: int = raw["id"]
        self._code: int = raw["dtype"]

    def _read(
        self, ids: NDArray[np.int64] | None, out: NDArray[Any], default: float | None
    ) -> None:
        if default is not None and self.has_rows:
            self._find(_NONE)  # which says why there can be none
        operation = b"get" if ids is None else b"get_keys" if self.is_hash else b"get_rows"
        while True:
            try:
                return self._run(0 if self.is_live else self._version(), operation, ids, out)
            except OutdatedError:
                pass  # The session has published twice meanwhile.

    def _version(self) -> int:
        """Return the last version.

        It is 0 if there is none. The library then says why the current values cannot be read.
        """
        return int(read_description(checked.MV_ReaderDescribe, self._handle)["version"])

    def _run(
        self, version: int, operation: bytes, ids: NDArray[np.int64] | None, out: NDArray[Any]
    ) -> None:
        """Read into `out`; raise OutdatedError if the version is not complete any more."""
        status = lib.MV_ReaderRun(
            self._handle,
            self._id,
            version,
            operation,
            None if ids is None else arrays.pointer(ids),
            0 if ids is None else len(ids),
            arrays.pin(out),
            out.size,
        )
        if status:
            _complete(status)

    def _compare(
        self, version: int, code: int, first: int, before: NDArray[Any], *, finds: bool = False
    ) -> tuple[NDArray[Any], ...]:
        """Copy what differs in a version to `before`, the elements from `first` on, or all of them.

        With `finds`, return the counts of blocks, the places and the values of what differs, as
        MV_ReaderCompare does. `code` is the dtype of `before`. Raises OutdatedError as `_run`.
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
        _complete(status)
        return counts, places[: found.value].copy(), values[: found.value].copy()

    def _memory(self, version: int) -> NDArray[Any]:
        """Return a read-only array where the session has the version; raise as `_run` does."""
        values, keeper = c_void_p(), capi.MV_Memory()
        _complete(
            lib.MV_ReaderMemory(self._handle, self._id, version, byref(values), byref(keeper))
        )
        shape = self._row_shape(len(self.rows))
        return arrays.memory_at(values.value or 0, shape, self.dtype, keeper, writable=False)

    def _copy(self, version: int) -> Any:
        """Return the table as of a version, or its keys and rows; raise as `_run` does."""
        if not self.is_hash:
            values = np.empty(self._row_shape(len(self.rows)), self.dtype)
            self._run(version, b"get", None, values)
            return values
        found = [_NONE]
        for first in self.rows[::_CHUNK]:
            ids = np.arange(first, min(first + _CHUNK, self.rows.stop))
            cells = np.empty((len(ids), 2), np.int64)  # the key of each row, and 0 for none
            self._run(version, b"cells", ids, cells)
            found.append(cells[cells[:, 1] != 0, 0])
        keys = np.concatenate(found)
        rows = np.empty((len(keys), self._num_col), self.dtype)
        self._run(version, b"get_keys", keys, rows)
        return keys, rows


class MemoryStore:
    """The memory of a session, which a reader of the library has mapped."""

    def __init__(self) -> None:
        self.handle = capi.MV_Reader()
        self.lock = threading.RLock()
        self._pins: dict[object, int] = {}  # the versions that blocks show
        self._waits = 0
        #: Of tables by name: the waits before the last copy, what was copied, and its changes.
        self._seen: dict[str, tuple[int, Any, Any, Any]] = {}

    def state(self) -> tuple[str, int, int]:
        """Return the name of the session, and the number and the step of its last version."""
        described = read_description(checked.MV_ReaderDescribe, self.handle)
        return str(described["name"]), int(described["version"]), int(described["step"])

    def tables(self) -> dict[str, MemoryTable]:
        """Return the tables by name."""
        described = by_name(read_description(checked.MV_ReaderDescribe, self.handle)["tables"])
        return {name: MemoryTable(self.handle, raw) for name, raw in described.items()}

    def wait(self, version: int | None, deadline: float) -> int:
        """Wait for a version, or the next; return the last one."""
        published, _ = self._await(self.state()[1] + 1 if version is None else version, deadline)
        self._waits += 1
        return published

    def _await(self, version: int, deadline: float) -> tuple[int, int]:
        """Wait for a version until `deadline`; return the last version and its step."""
        published, step = c_int64(), c_int64()
        milliseconds = math.ceil(1000 * max(deadline - time.monotonic(), 0.0))
        checked.MV_ReaderWait(self.handle, version, milliseconds, byref(published), byref(step))
        return published.value, step.value

    def _find(
        self, names: list[str] | None, deadline: float
    ) -> tuple[int, int, dict[str, MemoryTable]]:
        """Return the last version, its step, and its tables of these names, or all."""
        while True:
            version, step = self._await(1, deadline)
            found = {name: table for name, table in self.tables().items() if table.is_published}
            if {*found}.issuperset(names or ()) or self.state()[1] == version:
                return version, step, chosen(names, found, version)

    def _retry(
        self, read: Callable[..., _Result], names: list[str] | None, deadline: float, what: str
    ) -> _Result:
        """Return what `read` makes of what `_find` returns, until that is not outdated."""
        while True:
            found = self._find(names, deadline)
            try:
                return read(*found)
            except OutdatedError:
                if time.monotonic() >= deadline:
                    msg = f"{what}: publish less often, or read fewer tables"
                    raise OperationTimeout(msg) from None

    def cut(self, names: list[str] | None, deadline: float) -> Cut:
        """Return copies of tables of the last version."""
        what = "view.cut: the session published twice during each copy of the tables"
        return self._retry(_copies, names, deadline, what)[0]

    @contextmanager
    def pinned(self, names: list[str] | None, deadline: float) -> Iterator[Cut]:
        """Show tables of the last version where the session has them."""
        pin = object()
        what = "view.pinned: the session published twice before each pin"
        try:
            yield self._retry(partial(self._pin, pin), names, deadline, what)
            self._unpin(pin)
        except BaseException:
            self._unpin(pin)  # again after an interrupt
            raise

    def _pin(self, pin: object, version: int, step: int, tables: dict[str, MemoryTable]) -> Cut:
        self._unpin(pin)
        with self.lock:
            self._pins[pin] = version
            status = lib.MV_ReaderPin(self.handle, version)
        _complete(status)
        return Cut(version, step, {name: table._memory(version) for name, table in tables.items()})

    def _unpin(self, pin: object) -> None:
        """Unpin a version at the end of the last block that shows it; a second call does nothing.

        An interrupt can keep a block from knowing whether it has pinned the version.
        """
        with self.lock:
            version = self._pins.get(pin)
            others = [other for each, other in self._pins.items() if each is not pin]
            # It may have been unpinned already, by `close`.
            while version is not None and version not in others:
                if lib.MV_ReaderUnpin(self.handle, version) != capi.MV_OK:
                    break
            self._pins.pop(pin, None)

    def changes(self, name: str) -> Changes:
        """Return in what a table differs from the copy of the last wait, and keep a new copy."""
        waits, before, copy, changes = self._seen.get(name, (-1, None, None, None))
        if waits != self._waits:
            waits = self._waits
            deadline = time.monotonic() + _COPY_SECONDS
            what = "view.changed: the session published twice during each copy of the table"
            cut, tables = self._retry(_copies, [name], deadline, what)
            changes = _difference(before, copy, tables[name], cut[name])
            self._seen[name] = waits, tables[name], cut[name], changes
        found: Changes = changes
        return found

    def close(self) -> None:
        """Release the memory of the session, and the copies."""
        self._seen.clear()
        lib.MV_ReaderClose(self.handle)


def _copies(
    version: int, step: int, tables: dict[str, MemoryTable]
) -> tuple[Cut, dict[str, MemoryTable]]:
    return Cut(version, step, {name: each._copy(version) for name, each in tables.items()}), tables


def _difference(before: MemoryTable | None, copy: Any, table: MemoryTable, now: Any) -> Changes:
    """Return in what `now`, a copy of a table, differs from an earlier copy, or all of it."""
    is_same = before is not None and before._id == table._id
    if not table.is_hash:
        places = np.flatnonzero(unlike(copy, now) if is_same else np.ones(len(now), bool))
        return places + table.rows.start, now[places], _NONE
    keys, rows = in_order(*now)
    differs, former = np.ones(len(keys), bool), copy[0] if isinstance(copy, tuple) else _NONE
    if is_same:
        differs = RowStore(*in_order(*copy)).differ(keys, rows)
    return keys[differs], rows[differs], np.setdiff1d(np.sort(former), keys, assume_unique=True)
