"""Folders of publications: on a file system, or anywhere that fsspec reaches."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from multiverso._native import files, places
from multiverso._native.files import OpenFile
from multiverso._native.remote import RemoteFolder, bytes_of, not_written
from multiverso.errors import CheckpointIOError, StateError

#: The lock of the job that publishes to a folder.
_LOCK: Final = "publisher.lock"


def folder_of(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of a path, or of an address such as "s3://bucket/folder"."""
    place = places.path_or_address(path, "the folder of publications")
    return (
        RemoteFolder(place, "publications", _MEND)
        if places.is_address(place)
        else LocalFolder(place)
    )


#: What `not_written` says that a publisher can do.
_MEND: Final = "mend that, or publish to another folder: followers keep the last version until then"


class LocalFolder:
    """A folder of a file system, perhaps a network's, with the methods of `RemoteFolder`.

    Files appear and are replaced as a whole, and messages call the folder `name`.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._path = Path(path)

    def lock(self) -> io.FileIO | None:
        """Lock the folder for this job, until the process ends."""
        path = self._path / _LOCK
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            lock = files.lock(path)
        except OSError as error:
            msg = f"{path}: expected a file that this job can lock: {error.strerror or error}"
            failure = CheckpointIOError(msg)
            failure.set_file(str(path), 0, error.errno or 0)
            raise failure from error
        if lock is None:
            msg = f"{self.name}: another job publishes to this folder; give each job its own"
            raise StateError(msg)
        return lock

    def has_lock(self, lock: io.FileIO) -> bool:
        """Return whether a lock still keeps other jobs out: its file may have been removed."""
        return files.leads_to(self._path / _LOCK, lock)

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Write a file beside its place, and rename it when its bytes are on the disk."""
        written = 0
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with files.replacing(self._path / name) as file:
                for part in parts:
                    rest = memoryview(part).cast("B")
                    while rest:
                        count = file.raw.write(rest) or 0
                        written, rest = written + count, rest[count:]
        except OSError as error:
            where = f"{self.name}/{name}"
            raise not_written(where, error, written, bytes_of(parts), _MEND) from error

    def open(self, name: str) -> OpenFile:
        """Open a regular file."""
        return files.open_file(self._path / name)

    def remove(self, name: str) -> None:
        """Remove a file, unless there is none."""
        (self._path / name).unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self._path / name).exists()

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(os.listdir(self._path)) if self._path.is_dir() else []


#: A folder of a file system, or of another place.
Folder: TypeAlias = LocalFolder | RemoteFolder
