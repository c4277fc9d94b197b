"""Files in folders that others may write to, and files that others have written.

Nothing outside of such a folder is touched: a new file gets a name that nobody can foresee, and
only a file that this process creates, or an ordinary file that it locks, is ever opened for
writing. A file to read is an ordinary one, whose size is known before anything of it is read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from multiverso._native.library import checked

#: The names of files that `replacing` writes.
_PARTIAL: Final = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.part", re.DOTALL)
#: The most bytes that are read at once: a file of another machine may be copied in between.
_MOST_AT_ONCE: Final = 16 << 20
#: Looking up the free memory reads files, which takes longer than to read a small one.
_ALWAYS_FITS: Final = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """Write a file beside its place; let it appear there when its bytes are on the disk."""
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    # The mode "x" follows no link, and opens nothing that is already there.
    with open(partial, "xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise


def written_as(name: str) -> str | None:
    """Return the name of the file that `replacing` writes under a name, or None for others."""
    match = _PARTIAL.fullmatch(name)
    return match["name"] if match else None


def _opened(path: str | os.PathLike[str], flags: int) -> FileIO:
    """Open a file as `os.open` does, in an object that closes it when it is no longer used.

    The object is made in one call, because an interrupt could lose a descriptor that is an int.
    """
    try:
        return next(map(FileIO, map(os.open, (path,), (flags | os.O_CLOEXEC,), (0o666,))))
    except IsADirectoryError as error:
        raise OSError(errno.EISDIR, "expected a regular file", os.fspath(path)) from error


def lock(path: Path) -> FileIO | None:
    """Lock a file, created if there is none, until it is closed; None if another has the lock."""
    try:
        file = _opened(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which would lead elsewhere", path) from error
        raise
    try:
        _require_regular(file, path)
        # Unlike a lock of lockf, it lasts when the program copies the folder.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


def leads_to(path: Path, file: FileIO) -> bool:
    """Return whether a path still leads to an open file, which somebody may have removed."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except OSError:
        return False


class OpenFile:
    """A binary file of a known size, read from its beginning on; `name` is for messages."""

    def __init__(self, file: Any, size: int, name: str) -> None:
        self.size = size
        self.name = name
        self._file = file
        self._position = 0

    def take(self, count: int) -> memoryview:
        """Return the next bytes; raise OSError if the file ends before."""
        try:
            content = np.empty(count, np.uint8).data
        except MemoryError as error:  # There is a limit of this process alone.
            raise MemoryError(f"{self.name}: {error}") from error
        filled = 0
        while filled < count:
            received = self._file.readinto(content[filled : filled + _MOST_AT_ONCE])
            if not received:
                reason = f"the file ends at byte {self._position + filled} of {self.size}"
                raise OSError(errno.EIO, reason, self.name)
            filled += received
        self._position += count
        return content

    def require_memory(self, size: int) -> None:
        """Raise MemoryError if so many bytes are not free, for what the file contains."""
        if size > _ALWAYS_FITS:
            checked.MV_CheckIsFree(size, os.fsencode(self.name))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_file(path: str | os.PathLike[str]) -> OpenFile:
    """Open an ordinary file; raise OSError for anything else, without waiting for it."""
    # Opening a pipe or a device in the place of a file would wait.
    file = _opened(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return OpenFile(file, _require_regular(file, path), os.fspath(path))
    except BaseException:
        file.close()
        raise


def _require_regular(file: FileIO, path: str | os.PathLike[str]) -> int:
    """Return the size of a file; raise OSError for a folder, a pipe or a device."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file", os.fspath(path))
    return status.st_size
