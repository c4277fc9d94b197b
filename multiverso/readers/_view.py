"""`View`: the tables of a job as another process reads them, over any store of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arguments
from multiverso.errors import MultiversoError, StateError
from multiverso.readers._tables import ViewTable

#: The values of a table in a cut; of a table of which only some rows exist, ids and rows.
CutTable: TypeAlias = "NDArray[Any] | tuple[NDArray[np.int64], NDArray[Any]]"
#: The ids and the rows that have changed in a table, and the keys that have gone.
Changes: TypeAlias = "tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]"
_Table = TypeVar("_Table", bound=ViewTable)


@dataclass(frozen=True)
class Cut(Mapping[str, CutTable]):
    """Tables as of one publication, by name: copies, or what `View.pinned` shows.

    Attributes
    ----------
    version : int
        The number of the publication.
    step : int
        The argument of `multiverso.publish`.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.ArrayTable(2, [1, 2], name="w")
    ...     version = mv.publish(step=100)
    ...     with mv.attach(os.getpid()) as view, view.pinned(["w"]) as cut:
    ...         table.add([1, 1])
    ...         version = mv.publish(step=200)
    ...         print(cut.step, cut["w"], view.step, view.cut()["w"])
    100 [1. 2.] 200 [2. 3.]

    """

    version: int
    step: int
    _tables: dict[str, CutTable]

    def __getitem__(self, name: str) -> CutTable:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


class Store(Protocol):
    """Where the tables of a view come from: the memory of a session, or a folder.

    `state` is its name, the version and its step. The others are the methods of `View`.
    """

    lock: RLock

    def state(self) -> tuple[str, int, int]: ...
    def tables(self) -> Mapping[str, ViewTable]: ...
    def wait(self, version: int | None, deadline: float) -> int: ...
    def cut(self, names: list[str] | None, deadline: float) -> Cut: ...
    def pinned(self, names: list[str] | None, deadline: float) -> AbstractContextManager[Cut]: ...
    def changes(self, name: str) -> Changes: ...
    def close(self) -> None: ...


class View:
    """The tables of a job, as `multiverso.attach` and `multiverso.follow` return them.

    After `attach`, the tables show the memory of the session. What it has published can be read
    until `close`, also when the session has ended. A child forked from the process that attached
    gets `ForkedError`.

    After `follow`, all tables are as of `version`, and only `wait` changes them. After an error the
    view still has the last version that was complete. One thread may call `wait` while others read:
    they wait only while a publication is applied, not while its files are read and checked.

    Attributes
    ----------
    lock : threading.RLock
        What `wait` holds while it changes the tables of a folder. Hold it to read several tables of
        one version.

    Examples
    --------
    A copy of a table elsewhere that follows what changes:

    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     users = mv.HashTable(1, capacity=100, name="users")
    ...     users.add([[1], [2]], keys=[10, 20])
    ...     version = mv.publish(1)
    ...     view = mv.attach(os.getpid())  # or mv.follow of a folder
    ...     copy = dict(zip(*(part.tolist() for part in view.changed("users"))))
    ...     users.add([[5]], keys=[20])
    ...     users.remove([10])
    ...     version = mv.publish(2)
    ...     version = view.wait(version, timeout=60)
    ...     ids, rows = view.changed("users")
    ...     copy.update(zip(ids.tolist(), rows.tolist()))
    ...     for key in view.removed("users").tolist():
    ...         del copy[key]
    ...     view.close()
    >>> copy
    {20: [7.0]}

    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = store.lock

    @property
    def name(self) -> str:
        """The name of the session, or the folder."""
        return self._store.state()[0]

    @property
    def version(self) -> int:
        """The last version that the session has published, or that of the tables of a folder."""
        return self._store.state()[1]

    @property
    def step(self) -> int:
        """The step of that version."""
        return self._store.state()[2]

    @property
    def tables(self) -> dict[str, ViewTable]:
        """The tables by name, in the order of their creation.

        If several tables have the same name, the later ones are "NAME (table ID)".
        """
        return dict(self._store.tables())

    def wait(self, version: int | None = None, timeout: float = 120.0) -> int:
        """Wait for a version, and bring the tables of a folder to the last one.

        Parameters
        ----------
        version : int, optional
            The version; by default, the one after `version`. If the view already has it, the call
            does not wait.
        timeout : float, optional
            The longest wait in seconds.

        Returns
        -------
        int
            The last version, which may be a later one.

        Raises
        ------
        OperationTimeout
            If the version is not published in time.
        StateError
            After `close`. If the session ends before; at most a second later. Over a folder, in a
            block that holds `lock`, which the call would wait for.
        PublicationError, MemoryError
            If a file in the folder cannot be used, or does not fit the memory.

        """
        wanted = None if version is None else arguments.integer(version, "version", 0)
        return self._store.wait(wanted, _deadline(timeout))

    def cut(self, tables: Iterable[str] | None = None, timeout: float = 120.0) -> Cut:
        """Return copies of tables as of the last publication, or as of the `version` of a folder.

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
            A mapping from names to arrays; of hash tables, and over a folder of all tables of which
            only some rows exist, to pairs of keys, or row ids, and rows.

        Raises
        ------
        OperationTimeout
            If the session does not publish, or so often that no copy can be completed.
        StateError
            If the version has no table of that name, or the session has freed it; if the session
            ended before it published, or had created tables after the last call of this view.

        """
        return self._store.cut(_names(tables), _deadline(timeout))

    def pinned(
        self, tables: Iterable[str] | None = None, timeout: float = 120.0
    ) -> AbstractContextManager[Cut]:
        """Show tables as `cut` copies them, without a copy.

        The arrays lie in memory that the session shares with all its readers on the machine, and
        stay as they are until the end of the block, or `close`, or the end of this process. The
        session publishes to other memory meanwhile, and never waits for a reader. Over a folder,
        they lie in the memory of this process, and the block holds `lock`; values that are stored
        in 16 bits are copied.

        Parameters
        ----------
        tables : iterable of str, optional
            As for `cut`, but all rows of the tables must exist; otherwise it is a ValueError.
        timeout : float, optional
            As for `cut`.

        Returns
        -------
        context manager
            Its value is a `Cut`, a mapping from names to read-only arrays. After the block, they
            remain valid memory, but show other values as soon as a later version takes that memory.

        Raises
        ------
        StateError, OperationTimeout
            As for `cut`. If readers of this session have pinned two other versions.

        """
        return self._store.pinned(_names(tables), _deadline(timeout))

    def changed(self, table: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return what the last `wait` has changed in a table; before the first one, all of it.

        A view of a session copies the table at the first call after each `wait`, and returns what
        differs from the copy before: all, if there is none. So call it after every `wait`. It
        raises the errors of `cut`.

        Returns
        -------
        ids : ndarray of int64
            The keys, the row ids or, of an array, the indices, in ascending order.
        values : ndarray
            Their rows or elements.

        """
        return self._changes(table)[:2]

    def removed(self, table: str) -> NDArray[np.int64]:
        """Return the keys that have lost their rows in the last `wait`, in ascending order.

        A copy that is to be equal removes these. The result is of the same version as `changed`.
        """
        return self._changes(table)[2]

    def _changes(self, table: str) -> Changes:
        with self.lock:
            return self._store.changes(arguments.text(table, "table"))

    def close(self) -> None:
        """Release the memory. No other method may be called afterwards."""
        self._store.close()

    def __repr__(self) -> str:
        try:
            name, version, step = self._store.state()
        except MultiversoError:
            return "<View, closed>"
        return f"<View of {name!r}: version {version}, step {step}>"

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def chosen(
    names: Iterable[str] | None, tables: Mapping[str, _Table], version: int
) -> dict[str, _Table]:
    """Return the tables of these names, or all; raise StateError if a version does not have one."""
    missing = [name for name in names or () if name not in tables]
    if missing:
        found = ", ".join(map(repr, tables)) or "none"
        raise StateError(f"version {version} has no table {missing[0]!r}; its tables: {found}")
    return {name: tables[name] for name in (tables if names is None else names)}


def _names(tables: object) -> list[str] | None:
    if tables is None:
        return None
    return [arguments.text(name, "tables") for name in arguments.several(tables, "tables")]


def seconds(value: object) -> float:
    """Return a timeout, of 0 or more seconds."""
    return max(arguments.finite(value, "timeout", "a finite number of seconds"), 0.0)


def _deadline(timeout: object) -> float:
    return time.monotonic() + seconds(timeout)
