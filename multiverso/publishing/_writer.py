"""Writes publications to a folder, one after the other, and names them in `latest.json`."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from multiverso.errors import OperationTimeout, StateError
from multiverso.publishing import _format
from multiverso.publishing._folder import PARTIAL, Folder, LocalFolder, folder_of, open_file
from multiverso.publishing._format import Tensor
from multiverso.publishing._latest import LATEST, dump_latest, read_latest

#: How often the master looks for the files of other nodes.
_LOOK_SECONDS: Final = 0.02
#: The lock of the job that publishes to a folder.
_LOCK: Final = "publisher.lock"


class Place(NamedTuple):
    """Whose files a writer writes.

    Attributes
    ----------
    job : str
        The number of the session, which is in the names of its files.
    node, nodes : int
        The node, and their number. The first one names the publications.
    timeout : float
        How long it waits for the files of the others, in seconds.

    """

    job: str
    node: int
    nodes: int
    timeout: float


class Writer:
    """Writes the publications of one node to a folder.

    The nodes number the publications alike, because each counts all of them, also those that
    failed. A failed one is followed by a full one, since its number is never used again. Only if
    another job publishes to the folder, which a local one prevents, do the numbers differ.

    Parameters
    ----------
    path : str
        The folder.
    place : Place
        Whose files these are.

    Raises
    ------
    StateError
        If another job publishes to the folder.
    PublicationError, OSError
        If the folder cannot be used.

    """

    def __init__(self, path: str, place: Place) -> None:
        self._folder = folder_of(path)
        self._place = place
        self._lock = _locked(self._folder) if place.node == 0 else None
        latest = read_latest(self._folder)
        #: The publications in the folder: the last full one, and its differences.
        self._chain: list[dict[str, Any]] = latest["publications"] if latest else []
        #: Chains before it, whose files are still there.
        self._earlier: list[list[dict[str, Any]]] = []
        self._number: int = self._chain[-1]["version"] if latest else 0  # of the last publication
        self._since_full = 0
        if place.node == 0:
            self._find_expired()

    @property
    def name(self) -> str:
        """The folder."""
        return self._folder.name

    @property
    def place(self) -> Place:
        """Whose files it writes."""
        return self._place

    def count(self) -> None:
        """Count a publication, before anything of it can fail."""
        self._number += 1

    def restart(self) -> None:
        """Let the next publication be full."""
        self._since_full = 0

    def next_is_full(self, full_every: int) -> bool:
        """Return whether the next publication is full, if every so many ones are."""
        return self._since_full % full_every == 0

    def write(
        self,
        step: int,
        is_full: bool,
        records: list[dict[str, Any]],
        tensors: dict[str, Tensor],
        keep: int,
    ) -> None:
        """Write the publication that was counted last, and remove the files that are not needed.

        The last `keep` publications stay.
        """
        number = self._number
        node, nodes = self._place.node, self._place.nodes
        metadata = {
            "format": _format.FORMAT,
            "job": self._place.job,
            "version": number,
            "step": step,
            "base": 0 if is_full else number - 1,
            "node": node,
            "nodes": nodes,
            "tables": records,
        }
        names = [self._file(number, is_full, node) for node in range(nodes)]
        self._folder.write(names[node], _format.encode(metadata, tensors))
        if node == 0:
            self._announce({"version": number, "step": step, "files": names}, is_full)
            # A file that cannot be removed, perhaps for lack of rights, is tried again later.
            with contextlib.suppress(Exception):
                self._expire(keep)
        self._since_full = 1 if is_full else self._since_full + 1

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()

    def _file(self, number: int, is_full: bool, node: int) -> str:
        # The master waits for files of the same kind, so that nodes never mix full ones and others.
        kind = "-full" if is_full else ""
        part = f"-{node + 1}of{self._place.nodes}" if self._place.nodes > 1 else ""
        return f"{number:08d}-{self._place.job}{kind}{part}.safetensors"

    def _announce(self, entry: dict[str, Any], is_full: bool) -> None:
        """Name a publication in the folder, when the files of all nodes are there."""
        deadline = time.monotonic() + self._place.timeout
        for name in entry["files"][1:]:
            while not self._folder.exists(name):
                if time.monotonic() > deadline:
                    msg = f"{self.name}: waited {self._place.timeout:g} s for {name}"
                    raise OperationTimeout(msg)
                time.sleep(_LOOK_SECONDS)
        latest = read_latest(self._folder)
        if (latest["publications"] if latest else []) != self._chain:
            msg = f"{self.name}: another job has published there, or removed files, meanwhile"
            # The next publication begins with what is there now.
            self._chain = latest["publications"] if latest else []
            self._number = max(self._number, self._chain[-1]["version"] if latest else 0)
            raise StateError(msg)
        chain = [entry] if is_full else [*self._chain, entry]
        named = {"format": _format.FORMAT, "job": self._place.job, "publications": chain}
        self._folder.write(LATEST, [dump_latest(named)])
        if is_full and self._chain:
            self._earlier.append(self._chain)
        self._chain = chain

    def _expire(self, keep: int) -> None:
        while self._earlier:
            later = sum(map(len, self._earlier[1:])) + len(self._chain)
            if later < keep:
                return
            for expired in self._earlier[0]:
                for name in expired["files"]:
                    self._folder.remove(name)
            del self._earlier[0]

    def _find_expired(self) -> None:
        """Find what earlier jobs have left in the folder, if they were killed."""
        current = {name for entry in self._chain for name in entry["files"]}
        left = []
        for name in self._folder.names():
            if name.startswith(".") and name.endswith(PARTIAL):
                self._folder.remove(name)
            elif _format.NAME.fullmatch(name) and name not in current:
                left.append(name)
        if left:
            self._earlier.append([{"files": left}])


def _locked(folder: Folder) -> io.FileIO | None:
    """Lock a folder for this job, until the process ends; object stores have no locks."""
    if not isinstance(folder, LocalFolder):
        return None
    Path(folder.name).mkdir(parents=True, exist_ok=True)
    lock = open_file(Path(folder.name, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        # Unlike a lock of lockf, it lasts when the program copies the folder.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        msg = f"{folder.name}: another job publishes to this folder; give each job its own"
        raise StateError(msg) from None
    return lock
