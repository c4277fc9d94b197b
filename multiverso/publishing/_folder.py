"""Folders of publications: on a file system, or anywhere that fsspec reaches."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from multiverso._extras import needs
from multiverso._native import files, places
from multiverso._native.files import OpenFile
from multiverso.errors import CheckpointIOError, StateError

#: The lock of the job that publishes to a folder.
_LOCK: Final = "publisher.lock"


class Folder(Protocol):
    """A folder whose files appear and are replaced as a whole; messages call it `name`."""

    name: str

    def lock(self) -> io.FileIO | None:
        """Lock the folder for this job; return the descriptor of its lock, or None without one."""

    def has_lock(self, lock: io.FileIO) -> bool:
        """Return whether a lock still keeps other jobs out: its file may have been removed."""

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Write a file of these parts, each an object with memory; replace an existing one."""

    def open(self, name: str) -> OpenFile:
        """Open a file to read it, or raise an OSError."""

    def remove(self, name: str) -> None:
        """Remove a file, unless there is none."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""

    def names(self) -> list[str]:
        """Return the names of all files."""


def folder_of(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of a path, or of an address such as "s3://bucket/folder"."""
    place = places.path_or_address(path, "the folder of publications")
    return RemoteFolder(place) if places.is_address(place) else LocalFolder(place)


def _not_written(where: str, error: OSError, written: int, parts: Sequence[Any]) -> Exception:
    """Return the error that a file could not be written, of which so many bytes were."""
    total = sum(memoryview(part).nbytes for part in parts)
    mend = "mend that"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        mend = "free room there"
    failure = CheckpointIOError(
        f"{where}: cannot write: {error.strerror or error}, after {written} of {total} bytes; "
        f"{mend}, or publish to another folder: followers keep the last version until then"
    )
    failure.set_file(where, written, error.errno or 0)
    return failure


class LocalFolder:
    """A folder of a file system, perhaps a network's."""

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
            raise _not_written(f"{self.name}/{name}", error, written, parts) from error

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


class RemoteFolder:
    """A folder at an address that fsspec opens, where storing a file replaces it as a whole."""

    def __init__(self, address: str) -> None:
        with needs(f"publications at {address}", fsspec="fsspec"):
            import fsspec
        self.name = address
        self._files, self._path = fsspec.url_to_fs(address)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def lock(self) -> io.FileIO | None:
        """Return None, because object stores have no locks."""
        return None

    def has_lock(self, lock: io.FileIO) -> bool:
        """Return True: no file stands for the lock."""
        return True

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Store a file."""
        try:
            self._files.makedirs(self._path, exist_ok=True)
            self._files.pipe_file(self._at(name), b"".join(parts))
        except OSError as error:
            raise _not_written(f"{self.name}/{name}", error, 0, parts) from error

    def open(self, name: str) -> OpenFile:
        """Open a file, of which the store says the size."""
        self._files.invalidate_cache()
        found = self._files.info(self._at(name))
        if found["type"] != "file" or type(found["size"]) is not int:
            raise OSError(f"expected a file of a known size, received {found!r:.200}")
        file = self._files.open(self._at(name), "rb")
        return OpenFile(file, found["size"], f"{self.name}/{name}")

    def remove(self, name: str) -> None:
        """Remove a file, unless there is none."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._at(name))

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        self._files.invalidate_cache()
        return bool(self._files.exists(self._at(name)))

    def names(self) -> list[str]:
        """Return the names of all files."""
        self._files.invalidate_cache()
        try:
            return [path.rpartition("/")[2] for path in self._files.ls(self._path, detail=False)]
        except FileNotFoundError:
            return []
