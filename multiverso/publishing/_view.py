"""The reader's side: follows a folder of publications from any machine that sees it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arguments
from multiverso._native.threads import Thread
from multiverso.errors import OperationTimeout, PublicationError, StateError
from multiverso.publishing import _format
from multiverso.publishing._folder import folder_of
from multiverso.publishing._latest import read_latest
from multiverso.publishing._reading import prepare, read
from multiverso.publishing._tables import FollowedTable
from multiverso.tables._view import Cut, _seconds

#: How often a wait looks for a later publication.
_LOOK_SECONDS: Final = 0.05
#: How often a look tries again because files have expired meanwhile.
_TRIES: Final = 5


def follow(
    path: str | os.PathLike[str], *, timeout: float = 0.0, default: float | None = None
) -> FollowedView:
    """Follow the publications that a job writes to a folder, from any machine that sees it.

    The process needs no MPI, no session and no connection to the job. It holds one copy of the
    tables, which `FollowedView.wait` brings to a later version.

    Parameters
    ----------
    path : path
        The folder that the job passes to `multiverso.publish`; with the package fsspec, also an
        address such as "s3://bucket/folder".
    timeout : float, optional
        Seconds to wait for the first publication.
    default : float, optional
        What the elements of a row that does not exist are, such as that of a key the job has not
        seen; by default the initial value. If that is random, `FollowedRows.get` raises IndexError.

    Returns
    -------
    FollowedView
        The tables as of the last publication. It is a context manager: the end of its block calls
        `FollowedView.close`.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    StateError
        If there is no publication after `timeout` seconds.
    PublicationError
        If a file is missing, damaged, or from somewhere else.
    MemoryError
        If there is not enough memory for the tables, before they are read.
    ImportError
        If the address needs fsspec, which is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> folder = tempfile.mkdtemp()
    >>> with mv.session(name="job"):
    ...     table = mv.ArrayTable(3, name="weights")
    ...     table.add([1, 2, 3])
    ...     mv.publish(step=100, to=folder)
    1
    >>> with mv.follow(folder) as view:
    ...     view.step, view.tables["weights"].get()
    (100, array([1., 2., 3.], dtype=float32))

    """
    view = FollowedView(path, None if default is None else arguments.finite(default, "default"))
    deadline = time.monotonic() + _seconds(timeout)
    while not view._advance(1, deadline):
        if time.monotonic() >= deadline:
            msg = f"{view.name}: nothing has been published there; waited {_seconds(timeout):g} s"
            raise StateError(msg)
        time.sleep(_LOOK_SECONDS)
    return view


class FollowedView:
    """The tables of a followed folder, as `follow` returns them.

    `wait` changes the tables; between two waits, all of them are as of `version`. After an error
    the view still has the last version that was complete.

    One thread may call `wait` while others read. They wait only while a publication is applied, not
    while its files are read and checked.

    Attributes
    ----------
    lock : threading.RLock
        What `wait` holds while it changes the tables. Hold it to read several tables of one
        version.

    Examples
    --------
    A copy of a table elsewhere, such as an index for search, that follows what changes:

    >>> import tempfile
    >>> import multiverso as mv
    >>> folder = tempfile.mkdtemp()
    >>> with mv.session(name="job"):
    ...     users = mv.HashTable(1, capacity=100, name="users")
    ...     users.add([[1], [2]], keys=[10, 20])
    ...     version = mv.publish(1, to=folder)
    ...     view = mv.follow(folder, timeout=60)
    ...     copy = dict(zip(*(part.tolist() for part in view.changed("users"))))
    ...     users.add([[5]], keys=[20])
    ...     users.remove([10])
    ...     version = mv.publish(2, to=folder)
    ...     version = view.wait(timeout=60)
    ...     ids, rows = view.changed("users")
    ...     copy.update(zip(ids.tolist(), rows.tolist()))
    ...     for key in view.removed("users").tolist():
    ...         del copy[key]
    ...     view.close()
    >>> copy
    {20: [7.0]}

    """

    def __init__(self, path: str | os.PathLike[str], default: float | None = None) -> None:
        self._folder = folder_of(path)
        self._default = default
        self.lock = threading.RLock()
        self._turn = threading.RLock()  # of one wait at a time
        self._application: Thread | None = None  # which changes the tables
        self._fault: BaseException | None = None  # of that thread
        self._tables: dict[str, Any] = {}
        #: Those that have gone in the last `wait`. A later table of the same name tells their keys.
        self._gone: dict[str, Any] = {}
        self._version = self._step = 0
        self._files: list[str] = []  # of that version
        #: Whether the last `wait` has failed after a part of its changes.
        self._is_between = False
        self._is_closed = False

    @property
    def name(self) -> str:
        """The folder."""
        return self._folder.name

    @property
    def version(self) -> int:
        """The version of the tables: the number of the publication in the folder."""
        return self._version

    @property
    def step(self) -> int:
        """The step of that version."""
        return self._step

    @property
    def tables(self) -> dict[str, FollowedTable]:
        """The tables by name, in the order of their creation."""
        self._require_open()
        return dict(self._tables)

    def wait(self, version: int | None = None, timeout: float = 120.0) -> int:
        """Wait for a version, and bring the tables to the last one.

        Parameters
        ----------
        version : int, optional
            The version; by default, the one after the present one. If the view already has it, the
            call does nothing.
        timeout : float, optional
            The longest wait in seconds.

        Returns
        -------
        int
            The version of the tables, which may be a later one.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        OperationTimeout
            If the version is not published in time.
        PublicationError
            If a file is missing, damaged, or from somewhere else.
        MemoryError
            If there is not enough memory for a publication, before it is read.
        StateError
            After `close`, and in a block that holds `lock`, which it would wait for.

        """
        self._require_open()
        if self.lock._is_owned():  # type: ignore[attr-defined]
            msg = (
                f"{self.name}: expected a wait without view.lock, which it takes, received one with"
            )
            raise StateError(msg)
        wanted = self._version + 1
        if version is not None:
            wanted = arguments.integer(version, "version", 0)
        deadline = time.monotonic() + _seconds(timeout)
        while not self._advance(wanted, deadline):
            self._require_open()
            if time.monotonic() >= deadline:
                msg = f"{self.name}: waited for version {wanted}, the last one is {self._version}"
                raise OperationTimeout(msg)
            time.sleep(_LOOK_SECONDS)
        return self._version

    def cut(self, tables: Iterable[str] | None = None, timeout: float = 120.0) -> Cut:
        """Return copies of tables as of `version`.

        Parameters
        ----------
        tables : iterable of str, optional
            The names of the tables; by default, all.
        timeout : float, optional
            Has no effect: the view has the tables. It is there for programs that can also `attach`.

        Returns
        -------
        Cut
            A mapping from names to arrays; of tables of which only some rows exist, to pairs of
            keys, or row ids, and rows.

        Raises
        ------
        StateError
            If there is no table of that name; after `close`.

        """
        self._require_open()
        _seconds(timeout)
        names = self._tables if tables is None else arguments.several(tables, "tables")
        with self.lock:
            copies = {name: self._table(name)._copy() for name in names}
            return Cut(self._version, self._step, copies)

    def changed(self, table: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return what the last `wait`, or `follow`, has changed in a table.

        Parameters
        ----------
        table : str
            The name of the table.

        Returns
        -------
        ids : ndarray of int64
            The keys, the row ids or, of an array, the indices, in ascending order.
        values : ndarray
            Their rows or elements.

        Raises
        ------
        StateError
            If there is no table of that name; after `close`.

        """
        with self.lock:
            changes: tuple[NDArray[np.int64], NDArray[Any]] = self._table(table)._changes()
            return changes

    def removed(self, table: str) -> NDArray[np.int64]:
        """Return the keys that have lost their rows in the last `wait`, in ascending order.

        A copy that is to be equal removes these, such as the keys that the job has evicted.

        Raises
        ------
        StateError
            If there is no table of that name; after `close`.

        """
        with self.lock:
            keys: NDArray[np.int64] = self._table(table)._removed()
            return keys

    def close(self) -> None:
        """Release the memory. No other method may be called afterwards."""
        self._is_closed = True
        with self.lock:
            for table in self._tables.values():
                table._end = "the view has been closed"
            self._tables = self._gone = {}

    def __enter__(self) -> FollowedView:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            msg = f"{self.name}: the view has been closed"
            raise StateError(msg)

    def _table(self, name: object) -> Any:
        self._require_open()
        key = arguments.text(name, "table")
        if key not in self._tables:
            names = ", ".join(map(repr, self._tables)) or "none"
            msg = f"version {self._version} has no table {key!r}; its tables: {names}"
            raise StateError(msg)
        return self._tables[key]

    def _advance(self, wanted: int, deadline: float) -> bool:
        """Bring the tables to the last version, if that is at least the wanted one."""
        # Another thread may wait with a later deadline. Each one tries at least once.
        try:
            if not self._turn.acquire(timeout=max(deadline - time.monotonic(), _LOOK_SECONDS)):
                return self._version >= wanted
            is_there = self._version >= wanted or self._read_latest(wanted)
            self._turn.release()
        except BaseException as error:  # perhaps of an interrupt before or after the turn
            with contextlib.suppress(RuntimeError):
                self._turn.release()
            if isinstance(error, PublicationError):
                self._require_open()  # which would be the reason
            raise
        return is_there

    def _read_latest(self, wanted: int) -> bool:
        missing = None
        for _ in range(_TRIES):
            chain = read_latest(self._folder)
            if not chain or chain[-1]["version"] < wanted:
                return False
            try:
                self._apply_chain(chain)
            except FileNotFoundError as error:
                # The job removes the files of a chain that later ones have replaced.
                if chain == missing:
                    path = str(error.filename or error)
                    raise _format.damaged(path, "a publication's file is missing") from error
                missing = chain
            else:
                return True
        return False

    def _apply_chain(self, chain: list[dict[str, Any]]) -> None:
        """Apply the publications of a chain that the tables do not have yet, in their order."""
        if self._application is not None:
            self._application.join()  # An interrupt has left it.
        names = [entry["files"] for entry in chain]
        mine = names.index(self._files) if self._files in names else -1
        for entry in chain[mine + 1 :]:
            before = self._files
            files = read(self._folder, entry, is_full=entry is chain[0])
            where = f"{self.name}/{entry['files'][0]}"
            tables, changes = prepare(self._tables, files, self.lock, self._default, where)
            # Ctrl-C only reaches the main thread, so no interrupt leaves a half of the changes.
            self._application = Thread(self._apply, before, entry, tables, changes)
            self._application.start()
            self._application.join()
            self._application = None
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
        self._is_between = False

    def _apply(
        self,
        before: list[str],
        entry: dict[str, Any],
        tables: dict[str, Any],
        changes: dict[str, Any],
    ) -> None:
        """Apply a publication to the tables as of the files `before`."""
        with self.lock:
            if self._is_closed or self._files != before:
                return
            self._files = []  # After an error, a full publication comes next.
            try:
                if not self._is_between:
                    for table in self._tables.values():
                        table._begin()
                    self._gone = {}
                self._is_between = True
                formers = self._gone | self._tables
                for key, change in changes.items():
                    if (former := formers.get(key)) not in (None, tables[key]):
                        tables[key]._follow(former)
                    tables[key]._apply(change)
            except BaseException as error:
                self._fault = error
                return
            for key, table in self._tables.items():
                if tables.get(key) is not table:
                    table._end = (
                        f"since version {entry['version']}, view.tables has another or none"
                    )
            self._gone = {key: table for key, table in formers.items() if key not in tables}
            self._tables = tables
            self._version, self._step = entry["version"], entry["step"]
            self._files = entry["files"]
