"""The reader's side: follows a folder of publications from any machine that sees it."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from multiverso._native import arguments
from multiverso._native.tensor_files import BAD
from multiverso._native.threads import Thread
from multiverso.errors import OperationTimeout, PublicationError, StateError
from multiverso.publishing import _format
from multiverso.publishing._folder import Folder, folder_of
from multiverso.publishing._format import read_latest
from multiverso.publishing._tables import FollowedArray, FollowedRows
from multiverso.readers import Cut, View
from multiverso.readers._view import Changes, chosen, seconds

#: How often a wait looks for a later publication: an eighth of the time that it has waited, within
#: these bounds.
_LOOK_SECONDS: Final = 0.05
_LONGEST_LOOK_SECONDS: Final = 0.25
#: How often a look tries again because files have expired meanwhile.
_TRIES: Final = 5


@arguments.suggests_names
def follow(
    path: str | os.PathLike[str], *, timeout: float = 0.0, default: float | None = None
) -> View:
    """Follow the publications that a job writes to a folder, from any machine that sees it.

    The process needs no MPI, no session and no connection to the job. It holds one copy of the
    tables, which `View.wait` brings to a later version.

    Parameters
    ----------
    path : path
        The folder that the job passes to `multiverso.publish`; with the package fsspec, also an
        address such as "s3://bucket/folder".
    timeout : float, optional
        Seconds to wait for the first publication.
    default : float, optional
        What the elements of a row that does not exist are, such as that of a key the job has not
        seen; by default the initial value. If that is random, `ViewTable.get` raises IndexError.

    Returns
    -------
    View
        The tables as of the last publication. It is a context manager: the end of its block calls
        `View.close`.

    Raises
    ------
    StateError
        If there is no publication after `timeout` seconds.
    PublicationError, MemoryError
        As for `View.wait`.

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
    store = FolderStore(path, None if default is None else arguments.finite(default, "default"))
    limit = seconds(timeout)
    try:
        store.wait(1, time.monotonic() + limit)
    except OperationTimeout:
        msg = f"{store.name}: nothing has been published there; waited {limit:g} s"
        raise StateError(msg) from None
    return View(store)


class FolderStore:
    """The tables of a folder as of a version, which `wait` brings to a later one.

    `lock` is held while the tables change. `default` is that of `follow`.
    """

    def __init__(self, path: str | os.PathLike[str], default: float | None = None) -> None:
        self._folder = folder_of(path)
        self.name = self._folder.name
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

    def state(self) -> tuple[str, int, int]:
        """Return the folder, and the version of the tables with its step."""
        return self.name, self._version, self._step

    def tables(self, names: list[str] | None = None) -> dict[str, Any]:
        """Return tables by name."""
        self._require_open()
        return chosen(names, self._tables, self._version)

    def wait(self, version: int | None, deadline: float) -> int:
        """Bring the tables to the last version, when it is the wanted one or a later one."""
        self._require_open()
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise StateError(
                f"{self.name}: expected a wait without view.lock, which it takes, received one with"
            )
        wanted = self._version + 1 if version is None else version
        began = time.monotonic()
        while not self._advance(wanted, deadline):
            self._require_open()
            now = time.monotonic()
            if now >= deadline:
                msg = f"{self.name}: waited for version {wanted}, the last one is {self._version}"
                raise OperationTimeout(msg)
            nap = min(max((now - began) / 8, _LOOK_SECONDS), _LONGEST_LOOK_SECONDS)
            time.sleep(min(nap, deadline - now))
        return self._version

    def cut(self, names: list[str] | None, deadline: float) -> Cut:
        """Return copies of tables; there is nothing to wait for."""
        with self.lock:
            copies = {name: table._copy() for name, table in self.tables(names).items()}
            return Cut(self._version, self._step, copies)

    @contextlib.contextmanager
    def pinned(self, names: list[str] | None, deadline: float) -> Iterator[Cut]:
        """Show tables, and keep them from changing."""
        with self.lock:
            shown = {name: table._shown() for name, table in self.tables(names).items()}
            yield Cut(self._version, self._step, shown)

    def changes(self, name: str) -> Changes:
        """Return what the last `wait`, or `follow`, has changed in a table."""
        changes: Changes = self.tables([name])[name]._changes()
        return changes

    def close(self) -> None:
        """Release the memory."""
        self._is_closed = True
        with self.lock:
            for table in self._tables.values():
                table._end = "the view has been closed"
            self._tables = self._gone = {}

    def _require_open(self) -> None:
        if self._is_closed:
            raise StateError(f"{self.name}: the view has been closed")

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
            files = _read(self._folder, entry, is_full=entry is chain[0])
            where = f"{self.name}/{entry['files'][0]}"
            tables, changes = _prepare(self._tables, files, self.lock, self._default, where)
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


def _read(folder: Folder, entry: Mapping[str, Any], *, is_full: bool) -> list[_format.File]:
    """Return the files of a publication, in the order of the nodes.

    Raises FileNotFoundError if one is missing, perhaps because it has expired; PublicationError if
    one is not as it was written, or belongs to another publication; and MemoryError before it reads
    a file for which there is not enough memory.
    """
    files = []
    for node, name in enumerate(entry["files"]):
        expected = {
            "format": _format.FORMAT,
            "version": entry["version"],
            "step": entry["step"],
            "base": 0 if is_full else entry["version"] - 1,
            "node": node,
            "nodes": len(entry["files"]),
        }
        where = f"{folder.name}/{name}"
        try:
            with folder.open(name) as file:
                files.append(_format.decode(file, expected))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _format.damaged(where, error.strerror or error) from error
        except BAD as error:
            raise _format.damaged(where, error) from error
    return files


def _prepare(
    present: Mapping[str, Any],
    files: list[_format.File],
    lock: threading.RLock,
    default: float | None,
    where: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables after a publication, and what to apply to each; check everything.

    `present` are the tables before it, and new ones get `lock` and `default`. Raises
    PublicationError, which names the file `where`, if its files do not fit each other or the
    tables.
    """
    try:
        by_name = [{record["name"]: record for record in f.metadata["tables"]} for f in files]
        if any(records.keys() != by_name[0].keys() for records in by_name):
            raise ValueError("expected the same tables in the files of all nodes")
        tables: dict[str, Any] = {}
        changes = {}
        for key, record in by_name[0].items():
            kind = FollowedRows if f"keys:{key}" in files[0].tensors else FollowedArray
            new = kind(key, record, lock, default)
            table = present.get(key)
            if table is None or table._identity() != new._identity():
                table = new
            parts = [
                (records[key], file.tensors) for records, file in zip(by_name, files, strict=True)
            ]
            changes[key] = table._take(parts)
            tables[key] = table
    except BAD as error:
        raise _format.damaged(where, error) from error
    return tables, changes
