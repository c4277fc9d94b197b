"""Writes publications to a folder, one after the other, and names them in `latest.json`."""

import logging
import math
import time
from typing import Any, Final, NamedTuple

from multiverso._native.files import written_as
from multiverso.errors import OperationTimeout, StateError
from multiverso.publishing import _format
from multiverso.publishing._folder import folder_of
from multiverso.publishing._format import LATEST, MOST_BYTES, Tensor, dump_latest, read_latest

_log = logging.getLogger(__name__)
#: More than the bytes of a file's name, or of the rest of a publication, in `latest.json`.
_MOST_ENTRY_BYTES: Final = 100
#: How often the master looks for the files of other nodes.
_LOOK_SECONDS: Final = 0.02


class Place(NamedTuple):
    """Whose files a writer writes."""

    job: str  # the number of the session, which is in the names of its files
    node: int  # The first one names the publications.
    nodes: int
    timeout: float | None  # seconds to wait for the files of the others; None for no limit


class Writer:
    """Writes the publications of one node to the folder `path`, which messages call `name`.

    `place` says whose they are.

    The nodes number the publications alike, because each counts all of them, also those that
    failed. A failed one is followed by a full one, since its number is never used again. Only if
    another job publishes to the folder, which a local one prevents with a StateError, do the
    numbers differ.
    """

    def __init__(self, path: str, place: Place) -> None:
        self._folder = folder_of(path)
        self.name, self.place = self._folder.name, place
        #: The publications in the folder: the last full one, and its differences.
        self._chain: list[dict[str, Any]] = []
        #: Chains before it, whose files are still there.
        self._earlier: list[list[dict[str, Any]]] = []
        #: Files that no publication needs, and those of them that could not be removed.
        self._unneeded: list[str] = []
        self._stuck: set[str] = set()
        self._number = 0  # of the last publication
        self._since_full = 0
        self._lock = self._folder.lock() if place.node == 0 else None
        try:
            self._chain = read_latest(self._folder)
            self._number = self._chain[-1]["version"] if self._chain else 0
            if place.node == 0:
                self._find_expired()
        except BaseException:
            self.close()
            raise

    def count(self) -> None:
        """Count a publication, before anything of it can fail."""
        self._number += 1

    def restart(self) -> None:
        """Let the next publication be full."""
        self._since_full = 0

    def next_is_full(self, full_every: int) -> bool:
        """Return whether the next publication is full, if every so many ones are."""
        # All nodes must find the same, so this is the most that they need in `latest.json`.
        most = MOST_BYTES // (_MOST_ENTRY_BYTES * (1 + self.place.nodes))
        return self._since_full % min(full_every, max(most, 1)) == 0

    def write(
        self,
        step: int,
        is_full: bool,
        records: list[dict[str, Any]],
        tensors: dict[str, Tensor],
        keep: int,
    ) -> None:
        """Write the publication counted last, and remove all files but those of the last `keep`."""
        number = self._number
        node, nodes = self.place.node, self.place.nodes
        metadata = {
            "format": _format.FORMAT,
            "job": self.place.job,
            "version": number,
            "step": step,
            "base": 0 if is_full else number - 1,
            "node": node,
            "nodes": nodes,
            "tables": records,
        }
        names = [self._file(number, is_full, node) for node in range(nodes)]
        self._keep_lock()
        try:
            self._folder.write(names[node], _format.encode(metadata, tensors))
            if node == 0:
                self._announce({"version": number, "step": step, "files": names}, is_full)
        except BaseException:
            if node == 0:
                self._discard(names)
            raise
        if node == 0:
            self._expire(keep)
            self._remove_unneeded()
        self._since_full = 1 if is_full else self._since_full + 1

    def close(self) -> None:
        """Release the folder."""
        self._has_lock()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _has_lock(self) -> bool:
        """Return whether this job's lock keeps others out; cleaners of /tmp may remove it."""
        has_lock = self._lock is None or self._folder.has_lock(self._lock)
        if not has_lock:
            msg = (
                "%s: the file of this job's lock has been removed, so that another job may have "
                "published there; choose a folder that nothing cleans"
            )
            _log.warning(msg, self.name)
        return has_lock

    def _keep_lock(self) -> None:
        """Lock the folder again if the lock has gone; raise StateError if another job has it."""
        if self._lock is not None and not self._has_lock():
            renewed = self._folder.lock()
            self._lock.close()
            self._lock = renewed

    def _file(self, number: int, is_full: bool, node: int) -> str:
        # The master waits for files of the same kind, so that nodes never mix full ones and others.
        kind = "-full" if is_full else ""
        part = f"-{node + 1}of{self.place.nodes}" if self.place.nodes > 1 else ""
        return f"{number:08d}-{self.place.job}{kind}{part}.safetensors"

    def _announce(self, entry: dict[str, Any], is_full: bool) -> None:
        """Name a publication in the folder, when the files of all nodes are there."""
        limit = math.inf if self.place.timeout is None else self.place.timeout
        deadline = time.monotonic() + limit
        for name in entry["files"][1:]:
            while not self._folder.exists(name):
                if time.monotonic() > deadline:
                    msg = f"{self.name}: waited {limit:g} s for {name}; timeout= sets the limit"
                    raise OperationTimeout(msg)
                time.sleep(_LOOK_SECONDS)
        found = read_latest(self._folder)
        present = set(self._folder.names())
        # A follower that comes late reads the whole chain.
        is_whole = is_full or all(present.issuperset(one["files"]) for one in self._chain)
        if found != self._chain or not is_whole:
            msg = f"{self.name}: another job has published there, or removed files, meanwhile"
            # The next publication begins with what is there now.
            self._chain = found
            self._number = max(self._number, found[-1]["version"] if found else 0)
            raise StateError(msg)
        chain = [entry] if is_full else [*self._chain, entry]
        named = {"format": _format.FORMAT, "job": self.place.job, "publications": chain}
        self._folder.write(LATEST, [dump_latest(named)])
        if is_full and self._chain:
            self._earlier.append(self._chain)
        self._chain = chain

    def _expire(self, keep: int) -> None:
        """Find the files of chains that are older than the last `keep` publications."""
        while self._earlier:
            later = sum(map(len, self._earlier[1:])) + len(self._chain)
            if later < keep:
                return
            self._unneeded += (name for entry in self._earlier.pop(0) for name in entry["files"])

    def _discard(self, names: list[str]) -> None:
        """Remove the files of a publication that failed, which would fill the disk in time."""
        try:
            named = {name for entry in read_latest(self._folder) for name in entry["files"]}
        except Exception:
            return  # It is not known which files the readers have heard of.
        self._unneeded += (name for name in names if name not in named)
        self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        """Remove files; one that cannot be removed keeps no other, and is tried again later."""
        left = []
        for name in self._unneeded:
            try:
                self._folder.remove(name)
            except Exception as error:
                left.append(name)
                if name not in self._stuck:
                    self._stuck.add(name)
                    _log.warning("%s/%s stays in the folder: %s", self.name, name, error)
        self._unneeded = left

    def _find_expired(self) -> None:
        """Find what earlier jobs have left in the folder, if they were killed."""
        current = {name for entry in self._chain for name in entry["files"]}
        left = []
        for name in self._folder.names():
            partial_of = written_as(name)
            if partial_of is not None and (partial_of == LATEST or _is_publication(partial_of)):
                self._unneeded.append(name)
            elif _is_publication(name) and name not in current:
                left.append(name)
        self._remove_unneeded()
        if left:
            self._earlier.append([{"files": left}])


def _is_publication(name: str) -> bool:
    return _format.NAME.fullmatch(name) is not None
