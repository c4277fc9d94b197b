"""Finds the processes of this user that have a session, by their open files in /proc.

The segments that a session shares on a node are memory without a name, which each rank keeps open.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from multiverso.errors import StateError, UnsupportedError

PROC: Final = Path("/proc")

#: The links in /proc/PID/fd to segments contain one of these: for anonymous memory, and for a file.
_LINKS: Final = ("/memfd:multiverso", "/multiverso-")


def descriptors() -> Iterator[Path]:
    """Yield the paths of descriptors in other processes that may refer to a control segment.

    Raises
    ------
    UnsupportedError
        If this system has no /proc.

    """
    for process in _processes():
        yield from descriptors_of(process)


def descriptors_of(pid: int) -> Iterator[Path]:
    """Yield the paths of the descriptors in one process that may refer to a control segment."""
    # Closing a descriptor of this process's own segment would release its presence lock.
    if pid == os.getpid():
        return
    with contextlib.suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                link = str(descriptor.readlink())
                if any(name in link for name in _LINKS):
                    yield descriptor


def has_session(pid: int) -> bool:
    """Return whether another process is a rank of a session that is open, or is being opened."""
    return any(True for _ in descriptors_of(pid))


def join_targets(pid: int) -> list[str]:
    """Return the ids of the processes through which one joins the session of a process.

    Raises
    ------
    StateError
        If neither the process nor one that it has started has a session.
    UnsupportedError
        If this system has no /proc.

    """
    found = [str(process) for process in descendants(pid) if has_session(process)]
    if not found:
        msg = f"process {pid} and those that it has started have no session that others can join"
        raise StateError(msg)
    return found


def descendants(pid: int) -> list[int]:
    """Return a process and those that it has started, directly or not, the nearest first."""
    children: dict[int, list[int]] = {}
    for process in _processes():
        with contextlib.suppress(OSError):
            stat = (PROC / str(process) / "stat").read_text("ascii", errors="replace")
            # The name of the program, in parentheses, may contain anything.
            parent = int(stat.rpartition(") ")[2].split()[1])
            children.setdefault(parent, []).append(process)
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def _processes() -> Iterator[int]:
    if not PROC.is_dir():
        msg = (
            "finding the sessions of other processes needs Linux, which lists their files in /proc"
        )
        raise UnsupportedError(msg)
    for process in PROC.iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == os.geteuid():
                yield int(process.name)
