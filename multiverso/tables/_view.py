"""Reading the tables of a running session from any other process of this user on the machine."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_int64
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arguments, capi
from multiverso._native.library import checked, complete, lib
from multiverso._native.node_calls import by_name, read_description
from multiverso.errors import OperationTimeout, StateError
from multiverso.tables._live_table import LiveTable

__all__ = ["Cut", "LiveTable", "View", "attach"]

#: The time after which `attach` looks again.
_ATTACH_SECONDS: Final = 0.05
#: The wait after which `attach` logs what it waits for.
_LOG_SECONDS: Final = 10.0
_log = logging.getLogger("multiverso")


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
    An evaluator waits for the versions that a training job publishes; here both are one process:

    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.ArrayTable(2, [1, 2], name="weights")
    ...     version = mv.publish(step=100)
    ...     with mv.attach(os.getpid(), timeout=60) as view:
    ...         seen = view.wait(1)
    ...         cut = view.cut()
    ...         print(cut.step, cut["weights"])
    100 [1. 2.]

    """
    name = pid = None
    if isinstance(job, str):
        name = job.encode()
    else:
        pid = arguments.integer(job, "job", 1)
    start, limit = time.monotonic(), _seconds(timeout)
    view = View(capi.MV_Reader())
    is_logged = False
    while True:
        try:
            checked.MV_ReaderOpen(name, pid or 0, byref(view._handle))
        except StateError as error:
            waited = time.monotonic() - start
            awaited = f"multiverso.init(name={job!r})" if name else f"a session of process {pid}"
            if limit == 0:
                raise
            if waited >= _LOG_SECONDS and not is_logged:
                is_logged = True
                _log.warning("attach: waits for %s in another process of this user", awaited)
            if waited >= limit:
                reason = f"{error.args[0]}; waited {limit:g} s for {awaited}"
                raise StateError(f"{reason} in another process of this user") from None
            time.sleep(_ATTACH_SECONDS)
        else:
            return view


class View:
    """The tables of a session, as `attach` returns them.

    What the session has published can be read until the view is closed, also after the session has
    ended. Then reading the current values of a table, and waiting for a later version, raise
    `StateError`, and the message says why the session has ended. All methods and attributes raise
    `StateError` after `close`, and `ForkedError` in a child forked from the process that attached.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):  # in the training job
    ...     table = mv.ArrayTable(2, [1, 2], name="w")
    ...     version = mv.publish(step=100)
    ...     with mv.attach(os.getpid()) as view:  # in any other process
    ...         print(view.wait(1), view.step, view.cut()["w"], list(view.tables))
    1 100 [1. 2.] ['w']

    """

    def __init__(self, handle: capi.MV_Reader) -> None:
        self._handle = handle
        self._pins: dict[object, int] = {}  # the versions that blocks show
        self._pin_lock = threading.RLock()

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
        return {name: LiveTable(self._handle, raw) for name, raw in described.items()}

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
        names = _names(tables)
        deadline = time.monotonic() + _seconds(timeout)
        while True:
            version, step, chosen = self._find(names, deadline)
            copies = {name: table._copy(version) for name, table in chosen.items()}
            if all(copy is not None for copy in copies.values()):
                return Cut(version, step, copies)
            if time.monotonic() >= deadline:
                msg = (
                    f"view.cut: the session published twice during each copy of {len(chosen)} "
                    "tables: publish less often, or read fewer tables"
                )
                raise OperationTimeout(msg)

    @contextmanager
    def pinned(self, tables: Iterable[str] | None = None, timeout: float = 120.0) -> Iterator[Cut]:
        """Show tables as they were when the session last published, without a copy.

        The arrays lie in memory that the session shares with all its readers on the machine. They
        stay as they are until the end of the block, or `close`, or the end of this process, however
        it ends. The session publishes to other memory meanwhile, and never waits for a reader.

        Parameters
        ----------
        tables : iterable of str, optional
            The names of the tables; by default, all that the version has. Of a hash table, or a
            table with an initializer, only some rows exist; `cut` copies these.
        timeout : float, optional
            The longest time in seconds, with the wait for the first version.

        Yields
        ------
        Cut
            A mapping from names to read-only arrays. After the block, they remain valid memory, but
            show other values as soon as the session publishes there.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or only some rows of a table exist.
        OperationTimeout
            If the session does not publish in time.
        StateError
            If readers of this session have pinned two other versions; as in `cut`.

        Examples
        --------
        >>> import os
        >>> import multiverso as mv
        >>> with mv.session(name="job"):
        ...     table = mv.ArrayTable(2, [1, 2], name="w")
        ...     version = mv.publish(step=100)
        ...     with mv.attach(os.getpid()) as view, view.pinned(["w"]) as cut:
        ...         for step in (200, 300, 400):
        ...             table.add([1, 1])
        ...             version = mv.publish(step)
        ...         print(cut.step, cut["w"], view.step, view.cut()["w"])
        100 [1. 2.] 400 [4. 5.]

        """
        names = _names(tables)
        deadline = time.monotonic() + _seconds(timeout)
        while True:
            version, step, chosen = self._find(names, deadline)
            pin = object()
            try:
                with self._pin_lock:
                    self._pins[pin] = version
                    status = lib.MV_ReaderPin(self._handle, version)
                if status != capi.MV_OUTDATED:
                    complete(status)
                    shown = {name: table._memory(version) for name, table in chosen.items()}
                    if all(values is not None for values in shown.values()):
                        yield Cut(version, step, cast("dict[str, CutTable]", shown))
                        self._unpin(pin, version)
                        return
                self._unpin(pin, version)
            except BaseException:
                self._unpin(pin, version)
                raise
            if time.monotonic() >= deadline:
                msg = "view.pinned: the session published twice before each pin: publish less often"
                raise OperationTimeout(msg)

    def _unpin(self, pin: object, version: int) -> None:
        """Unpin a version at the end of the last block that shows it; repeat after an interrupt.

        An interrupt can keep a block from knowing whether it has pinned the version.
        """
        with self._pin_lock:
            self._pins.pop(pin, None)
            # It may have been unpinned already, by `close`.
            while version not in self._pins.values():
                if lib.MV_ReaderUnpin(self._handle, version) != capi.MV_OK:
                    break

    def _find(
        self, names: list[str] | None, deadline: float
    ) -> tuple[int, int, dict[str, LiveTable]]:
        """Return the last version, its step, and its tables of these names, or all."""
        while True:
            version, step = self._await(1, deadline)
            found = {name: table for name, table in self.tables.items() if table.is_published}
            chosen = list(found) if names is None else names
            missing = [name for name in chosen if name not in found]
            if not missing:
                return version, step, {name: found[name] for name in chosen}
            if self.version == version:
                names_found = ", ".join(map(repr, found)) or "none"
                msg = f"version {version} has no table {missing[0]!r}; its tables: {names_found}"
                raise StateError(msg)

    def close(self) -> None:
        """Release the memory of the session. No other method may be called afterwards."""
        lib.MV_ReaderClose(self._handle)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


#: The values of a table in a cut; of a hash table, its keys and their rows.
CutTable: TypeAlias = "NDArray[Any] | tuple[NDArray[np.int64], NDArray[Any]]"


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
    ...     view = mv.attach(os.getpid())
    ...     cut = view.cut(["w"])
    ...     view.close()  # a with statement does this too
    >>> cut.version, cut.step, cut["w"]
    (1, 100, array([1., 2.], dtype=float32))

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


def _names(tables: object) -> list[str] | None:
    if tables is None:
        return None
    return [arguments.text(name, "tables") for name in arguments.several(tables, "tables")]


def _seconds(value: object) -> float:
    return max(arguments.finite(value, "timeout", "a finite number of seconds"), 0.0)
