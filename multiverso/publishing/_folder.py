"""Folders of publications: on a file system, or anywhere that fsspec reaches."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from multiverso._extras import needs
from multiverso._native import arguments

#: The end of the names of files that are being written.
PARTIAL: Final = ".part"


class Folder(Protocol):
    """A folder whose files appear and are replaced as a whole.

    Attributes
    ----------
    name : str
        The folder in messages.

    """

    name: str

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Write a file of these parts, each an object with memory; replace an existing one."""

    def read(self, name: str, limit: int) -> bytearray:
        """Return the content of a file of at most `limit` bytes, or raise an OSError."""

    def remove(self, name: str) -> None:
        """Remove a file, unless there is none."""

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""

    def names(self) -> list[str]:
        """Return the names of all files."""


def folder_of(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of a path, or of an address such as "s3://bucket/folder"."""
    text = arguments.text(os.fspath(path), "the folder of publications")
    if text.startswith("file://"):
        return LocalFolder(urlsplit(text).path)
    return RemoteFolder(text) if "://" in text else LocalFolder(text)


def open_file(path: Path, flags: int) -> io.FileIO:
    """Open a file as `os.open` does, in an object that closes it when it is no longer used.

    The object is made in one call, because an interrupt could lose a descriptor that is an int.
    """
    return next(map(io.FileIO, map(os.open, (path,), (flags,), (0o666,))))


def _require_size(size: int, limit: int) -> None:
    if size > limit:
        raise OSError(f"expected a file of at most {limit} bytes, received {size}")


class LocalFolder:
    """A folder of a file system, perhaps a network's."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._path = Path(path)

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Write a file beside its place, and rename it when its bytes are on the disk."""
        self._path.mkdir(parents=True, exist_ok=True)
        partial = self._path / f".{name}.{os.getpid()}{PARTIAL}"
        try:
            with open(partial, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    def read(self, name: str, limit: int) -> bytearray:
        """Return the content of a regular file."""
        # Opening a pipe or a device in the place of a file would block.
        with open_file(self._path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) as file:
            descriptor = file.fileno()
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("expected a regular file")
            _require_size(status.st_size, limit)
            content = bytearray(status.st_size)
            view, count = memoryview(content), 0
            while count < len(content) and (received := os.readv(descriptor, [view[count:]])):
                count += received
            view.release()
            del content[count:]
            return content

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

    def write(self, name: str, parts: Sequence[Any]) -> None:
        """Store a file."""
        self._files.makedirs(self._path, exist_ok=True)
        self._files.pipe_file(self._at(name), b"".join(parts))

    def read(self, name: str, limit: int) -> bytearray:
        """Return the content of a file."""
        self._files.invalidate_cache()
        _require_size(self._files.size(self._at(name)), limit)
        return bytearray(self._files.cat_file(self._at(name)))

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
