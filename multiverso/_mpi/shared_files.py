"""Removes the files in /dev/shm that MPI leaves there when a rank is killed.

An MPI removes its files when the ranks finalize it. Other jobs have files with similar names, so
only those that a process of the job has mapped are removed.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/dev/shm")

#: The beginnings of the names of the files of MPICH, of UCX, which it uses, and of Open MPI.
_NAMES: Final = ("mpich_shm_", "ucx_shm_posix_", "sm_segment.")

#: How often the processes are searched for a file that may be another job's.
_MAX_SEARCHES: Final = 10


class SharedFiles:
    """The files that the `processes` of an MPI job create in /dev/shm after this object."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._earlier = set(_files())
        self._searches: dict[Path, int] = {}
        self._found: dict[Path, os.stat_result] = {}

    def look(self) -> None:
        """Find out which new files are those of the job. Call it often while the job runs."""
        unknown = [
            path
            for path in _files()
            if path not in self._earlier
            and path not in self._found
            and self._searches.get(path, 0) < _MAX_SEARCHES
        ]
        if not unknown:
            return
        mapped = set().union(*map(_mapped_by, self._processes()))
        for path in unknown:
            self._searches[path] = self._searches.get(path, 0) + 1
            if str(path) in mapped:
                with contextlib.suppress(OSError):
                    self._found[path] = path.stat()

    def remove(self) -> None:
        """Remove the files of the job that still exist. Call it after the end of the job."""
        for path, found in self._found.items():
            with contextlib.suppress(OSError):
                # After its removal, another job may have created a file of the same name.
                if os.path.samestat(path.lstat(), found):
                    path.unlink()


def remove_mapped() -> None:
    """Remove the files of MPI that this process has mapped, before it ends without MPI_Finalize."""
    for path in map(Path, _mapped_by(os.getpid())):
        if path.parent == _FOLDER and path.name.startswith(_NAMES):
            path.unlink(missing_ok=True)


def _files() -> list[Path]:
    try:
        return [path for path in _FOLDER.iterdir() if path.name.startswith(_NAMES)]
    except OSError:  # Other systems have no such folder.
        return []


def _mapped_by(process: int) -> set[str]:
    """Return the paths of the files that a process has mapped."""
    try:
        maps = Path(f"/proc/{process}/maps").read_text("utf-8", errors="replace")
    except OSError:
        return set()
    return {line.split(maxsplit=5)[-1] for line in maps.splitlines() if str(_FOLDER) in line}
