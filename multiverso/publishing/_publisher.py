"""The job's side: writes what the session publishes to folders, in a thread of a rank per node."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import initializers
from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso.errors import OperationTimeout, StateError
from multiverso.publishing import _format
from multiverso.publishing._encoding import (
    NAMES,
    DenseEncoder,
    Encoder,
    RowsEncoder,
)
from multiverso.publishing._folder import LATEST, Folder, LocalFolder, folder_of
from multiverso.tables import MatrixTable, attach
from multiverso.tables._live_table import LiveTable, OutdatedError
from multiverso.tables._view import View

if TYPE_CHECKING:
    from multiverso._session import Session

#: How often the master looks for the files of other nodes.
_LOOK_SECONDS: Final = 0.02
#: The lock of the job that publishes to a folder.
_LOCK: Final = "publisher.lock"


class Options:
    """What the program wants of a publication; see `multiverso.publish`."""

    def __init__(self, rounds: bool, full_every: int, keep: int) -> None:
        self.rounds, self.full_every, self.keep = rounds, full_every, keep


class Publisher:
    """Writes the versions of a session to a folder, in their order.

    Every node's first rank has one, and writes the rows of its node. The master's writes the file
    that names the publications, after the others.

    Parameters
    ----------
    session : Session
        The session.
    path : str
        The folder.

    Raises
    ------
    StateError
        If another job publishes to the folder.
    PublicationError, OSError
        If the folder cannot be used.

    """

    def __init__(self, session: Session, path: str) -> None:
        self.path = path
        self.last_version = 0  # of the session
        self._folder = folder_of(path)
        self._node, self._nodes = session.node, session.num_nodes
        self._timeout = session.options.timeout
        described = read_description(checked.MV_SessionStats, session.handle)
        self._job = f"{described['session']:016x}"
        self._lock = _locked(self._folder) if self._node == 0 else None
        latest = _read_latest(self._folder)
        #: The publications in the folder, the last full one and its differences being the last.
        self._chain: list[dict[str, Any]] = latest["publications"] if latest else []
        self._earlier: list[list[dict[str, Any]]] = []  # chains whose files are still there
        self._number = self._chain[-1]["version"] if latest else 0  # of the last publication
        self._since_full = 0
        self._has_failed = False
        self._failure: BaseException | None = None  # which no call has raised yet
        self._encoders: dict[str, Encoder] = {}
        self._seen: dict[int, int] = {}  # versions of lazy tables, for their lists of changes
        self._view: View | None = None
        #: The versions that are being written, in their order.
        self._jobs: list[tuple[int, Future[None]]] = []
        self._queue: SimpleQueue[Any] = SimpleQueue()
        # The interpreter does not wait for this thread if the session ends with an error.
        threading.Thread(target=self._run, name="multiverso-publisher", daemon=True).start()

    def make_room(self) -> None:
        """Wait until all versions before the session's last one have been written.

        The session keeps two versions, and the next call replaces the one before the last.
        """
        while self._jobs and self._jobs[0][0] < self.last_version:
            self._wait()

    def prepare(self, session: Session) -> dict[int, int]:
        """Raise what earlier publications have raised; return the versions of the lazy tables."""
        while self._jobs and self._jobs[0][1].done():
            self._wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._has_failed and self._nodes > 1:  # Other nodes do not know, and go on.
            msg = f"{self._folder.name}: an earlier publication failed on this node"
            raise StateError(msg)
        return {key: self._changed(key, table)[1] for key, table in _lazy(session).items()}

    def start(
        self, session: Session, version: int, step: int, seen: dict[int, int], options: Options
    ) -> None:
        """Write a version, which the session has just published, in the background."""
        if self._view is None:
            self._view = attach(os.getpid())
        found = {name: live for name, live in self._view.tables.items() if live.is_published}
        tables = _tables(session)
        for name, live in found.items():
            self._make_encoder(name, live, tables.get(live._id), options)
        # What changes during this call is listed again in the next one, from `seen` on.
        ranges = {key: self._changed(key, table)[0] for key, table in _lazy(session).items()}
        self._seen = seen
        job: Future[None] = Future()
        self._jobs.append((version, job))
        self._queue.put((job, version, step, found, ranges, options))

    def close(self) -> None:
        """Wait for the last publication, and release the folder."""
        try:
            while self._jobs:
                self._wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self._queue.put(None)
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _changed(self, key: int, table: MatrixTable) -> tuple[NDArray[np.int64], int]:
        return table._list_changes(self._seen.get(key, 0))

    def _wait(self) -> None:
        """Wait for the first job; keep its failure for the next call with this folder."""
        job = self._jobs[0][1]
        try:
            self._failure = job.exception(self._timeout) or self._failure
        except TimeoutError:
            msg = f"a publication to {self._folder.name} took longer than {self._timeout:g} s"
            raise OperationTimeout(msg) from None
        del self._jobs[0]

    def _run(self) -> None:
        """Write what `start` puts into the queue, until `close`."""
        while (item := self._queue.get()) is not None:
            job, *arguments = item
            try:
                self._write(*arguments)
            except BaseException as error:
                # Parts of the copies are newer than what was written, so the next one is full.
                self._since_full = 0
                self._has_failed = True
                job.set_exception(error)
            else:
                job.set_result(None)

    def _write(
        self,
        version: int,
        step: int,
        found: dict[str, LiveTable],
        ranges: dict[int, NDArray[np.int64]],
        options: Options,
    ) -> None:
        for name, live in found.items():
            if isinstance(encoder := self._encoders[name], RowsEncoder) and live._id in ranges:
                encoder.candidates.append(ranges[live._id])
        number = self._number + 1
        is_full = self._since_full % options.full_every == 0
        records, tensors = [], {}
        for name, live in found.items():
            try:
                record, encoded = self._encoders[name].encode(live, version, is_full)
            except OutdatedError:
                msg = f"{self._folder.name}: the session has published more since {version}"
                raise StateError(msg) from None
            records.append(record)
            tensors.update(encoded)
        metadata = {
            "format": _format.FORMAT,
            "job": self._job,
            "version": number,
            "step": step,
            "base": 0 if is_full else number - 1,
            "node": self._node,
            "nodes": self._nodes,
            "tables": records,
        }
        names = [self._file(number, node) for node in range(self._nodes)]
        self._folder.write(names[self._node], _format.encode(metadata, tensors))
        if self._node == 0:
            self._announce({"version": number, "step": step, "files": names}, is_full, options)
        self._number = number
        self._since_full = 1 if is_full else self._since_full + 1

    def _make_encoder(self, name: str, live: LiveTable, table: Any, options: Options) -> None:
        if name in self._encoders:
            return
        stored = NAMES[live._code]
        if options.rounds and stored == "F32":
            stored = "BF16"
        if live.is_hash or _is_lazy(table):
            self._encoders[name] = RowsEncoder(name, stored, _initial(table))
        else:
            self._encoders[name] = DenseEncoder(name, stored, self._node, self._nodes)

    def _file(self, number: int, node: int) -> str:
        part = f"-{node + 1}of{self._nodes}" if self._nodes > 1 else ""
        return f"{number:08d}-{self._job}{part}.safetensors"

    def _announce(self, entry: dict[str, Any], is_full: bool, options: Options) -> None:
        """Name a publication in the folder, when the files of all nodes are there."""
        deadline = time.monotonic() + self._timeout
        for name in entry["files"][1:]:
            while not self._folder.exists(name):
                if time.monotonic() > deadline:
                    msg = f"{self._folder.name}: waited {self._timeout:g} s for {name}"
                    raise OperationTimeout(msg)
                time.sleep(_LOOK_SECONDS)
        latest = _read_latest(self._folder)
        if latest and latest["job"] != self._job and latest["publications"] != self._chain:
            msg = f"{self._folder.name}: another job has published there meanwhile"
            raise StateError(msg)
        if is_full and self._chain:
            self._earlier.append(self._chain)
            self._chain = []
        self._chain.append(entry)
        latest = {"format": _format.FORMAT, "job": self._job, "publications": self._chain}
        self._folder.write(LATEST, [_format.dump_latest(latest)])
        self._expire(options.keep)

    def _expire(self, keep: int) -> None:
        """Remove the files of chains that none of the last `keep` publications needs."""
        while self._earlier:
            later = sum(map(len, self._earlier[1:])) + len(self._chain)
            if later < keep:
                return
            for expired in self._earlier[0]:
                for name in expired["files"]:
                    self._folder.remove(name)
            del self._earlier[0]


def _tables(session: Session) -> dict[int, Any]:
    """Return the open tables of a session by their numbers, of those with one name the last."""
    found = (reference() for reference, _ in session.named.values())
    return {table._description().id: table for table in found if table is not None}


def _is_lazy(table: Any) -> bool:
    return isinstance(table, MatrixTable) and table.initializer is not None


def _lazy(session: Session) -> dict[int, MatrixTable]:
    return {key: table for key, table in _tables(session).items() if _is_lazy(table)}


def _initial(table: Any) -> float | None:
    """Return the initial value of each element, or None if there is not one for all."""
    match getattr(table, "initializer", None):
        case initializers.Zeros():
            return 0.0
        case initializers.Constant(value=value):
            return float(value)
    return None


def _locked(folder: Folder) -> int | None:
    """Lock a folder for this job, until the process ends; object stores have no locks."""
    if not isinstance(folder, LocalFolder):
        return None
    Path(folder.name).mkdir(parents=True, exist_ok=True)
    lock = os.open(Path(folder.name, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        msg = f"{folder.name}: another job publishes to this folder; give each job its own"
        raise StateError(msg) from None
    return lock


def _read_latest(folder: Folder) -> dict[str, Any] | None:
    try:
        content = folder.read(LATEST)
    except FileNotFoundError:
        return None
    return _format.load_latest(bytes(content), f"{folder.name}/{LATEST}")
