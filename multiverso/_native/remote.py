"""Folders at addresses that fsspec opens, and the thread that writes to a folder meanwhile.

Publications and checkpoints are sent in the same way: a call of the program gives a job to the
thread of a `Sender`, and what fails there is raised by the next call. A file that names the others
is written after them, so that readers find all of them or none.
"""

import contextlib
import errno
import functools
import io
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from multiverso._extras import needs
from multiverso._native.files import OpenFile
from multiverso._native.threads import End, OrderedThread
from multiverso.errors import CheckpointIOError, OperationTimeout

#: What is fetched of a file at first: all of `latest.json`, which is replaced while it is read.
_FIRST_BYTES: Final = (1 << 20) + 1


def not_written(where: str, error: OSError, written: int, total: int, mend: str) -> Exception:
    """Return the error that a file could not be written, of which so many bytes were."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        mend = mend.replace("mend that", "free room there")
    progress = f"{error.strerror or error}, after {written} of {total} bytes"
    failure = CheckpointIOError(f"{where}: cannot write: {progress}; {mend}")
    failure.set_file(where, written, error.errno or 0)
    return failure


def bytes_of(parts: Sequence[Any]) -> int:
    """Return the bytes of objects with memory together."""
    return sum(memoryview(part).nbytes for part in parts)


class _Fetched:
    """A file that requests of its own fetch, beginning with the bytes `first`.

    An open file of fsspec may change while it is read: that of "memory://" has one position for all
    readers, and others read a part of the file that has replaced the one they opened.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], first: bytes) -> None:
        self._fetch, self._rest, self._end = fetch, memoryview(first), len(first)

    def readinto(self, buffer: memoryview) -> int:
        """Write the next bytes to a buffer, as many as one request has fetched."""
        if not self._rest:
            self._rest = memoryview(self._fetch(self._end, self._end + len(buffer)))
            self._end += len(self._rest)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        """Do nothing: no request is open."""


class RemoteFolder:
    """A folder at an address that fsspec opens, where storing a file replaces it as a whole."""

    def __init__(self, address: str, what: str, mend: str = "mend that, or save again") -> None:
        with needs(f"{what} at {address}", fsspec="fsspec"):
            import fsspec
        self.name, self._mend = address, mend
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
            where = f"{self.name}/{name}"
            raise not_written(where, error, 0, bytes_of(parts), self._mend) from error

    def open(self, name: str) -> OpenFile:
        """Open a file, of which the store says the size."""
        self._files.invalidate_cache()
        found = self._files.info(self._at(name))
        if found["type"] != "file" or type(found["size"]) is not int:
            raise OSError(f"expected a file of a known size, received {found!r:.200}")
        fetch = functools.partial(self._files.cat_file, self._at(name))
        first = fetch(0, _FIRST_BYTES)
        # A file that came as a whole may have replaced the one that the store has just described.
        size = len(first) if len(first) < _FIRST_BYTES else found["size"]
        return OpenFile(_Fetched(fetch, first), size, f"{self.name}/{name}")

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
        return self.folders().get("", [])

    def folders(self) -> dict[str, list[str]]:
        """Return the names of the files in each folder of this one, and in itself as ""."""
        self._files.invalidate_cache()
        found: dict[str, list[str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._files.find(self._path, maxdepth=2):
                below = path.removeprefix(self._path).lstrip("/")
                folder, _, name = below.rpartition("/")
                found.setdefault(folder, []).append(name)
        return found

    def send(self, source: Path, folder: str, last: str) -> None:
        """Store the files of a folder of this machine, the one named `last` after the others."""
        names = sorted(os.listdir(source), key=lambda name: (name == last, name))
        sizes = [(source / name).stat().st_size for name in names]
        for number, name in enumerate(names):
            place = f"{folder}/{name}"
            try:
                self._files.makedirs(self._at(folder), exist_ok=True)
                self._files.put_file(str(source / name), self._at(place))
            except OSError as error:
                where, sent = f"{self.name}/{place}", sum(sizes[:number])
                raise not_written(where, error, sent, sum(sizes), self._mend) from error

    def fetch(self, folder: str, names: Sequence[str], target: Path) -> None:
        """Copy files of a folder to one of this machine."""
        target.mkdir(parents=True)
        for name in names:
            place = f"{folder}/{name}".lstrip("/")
            self._files.get_file(self._at(place), str(target / name))

    def remove_folder(self, folder: str, names: Sequence[str], first: str) -> None:
        """Remove the files of a folder, the one named `first` before the others."""
        for name in sorted(names, key=lambda name: (name != first, name)):
            self.remove(f"{folder}/{name}")
        with contextlib.suppress(OSError, NotImplementedError):  # Most stores have no folders.
            self._files.rmdir(self._at(folder))


class Job:
    """What the thread of a `Sender` is to do, and its end."""

    def __init__(self) -> None:
        self.end = End()

    def do(self) -> None:
        """Do it."""
        raise NotImplementedError

    def run(self) -> None:
        """Do it, unless it has been done."""
        if self.end.has_come:
            return
        try:
            self.do()
        except BaseException as error:
            self.end.set(error)
        else:
            self.end.set()


class Sender:
    """Does jobs in a thread, one after the other; `what` and its limit of seconds are for errors.

    The thread keeps nothing alive but its jobs, and ends with this object, also if the session
    fails. The interpreter does not wait for it.
    """

    def __init__(self, what: str, timeout: float | None) -> None:
        self._what, self._timeout = what, timeout
        #: Those that are not known to have ended.
        self.jobs: list[Any] = []
        #: What a job has raised, and no call of the program yet.
        self.failure: BaseException | None = None
        self._thread = OrderedThread()
        weakref.finalize(self, self._thread.end)
        self._thread.start()  # If that fails, nothing has been given to it.

    def put(self, job: Job) -> None:
        """Give a job to the thread; a second time, after an interrupt, has no effect."""
        if all(job is not one for one in self.jobs):
            self.jobs.append(job)
        self._thread.put(job.run)

    def wait(self) -> None:
        """Wait for the first job, and keep its failure for the next call of the program."""
        end = self.jobs[0].end
        if not end.wait(self._timeout):
            limit = f"{self._timeout:g} s; timeout= sets the limit"
            raise OperationTimeout(f"{self._what} took longer than {limit}")
        self.failure = end.error or self.failure
        del self.jobs[0]

    def check(self, *, waits: bool = False) -> None:
        """Raise what jobs that have ended, or after a wait all of them, have raised."""
        while self.jobs and (waits or self.jobs[0].end.has_come):
            self.wait()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def end(self) -> None:
        """Let the thread end after its last job."""
        self._thread.end()
