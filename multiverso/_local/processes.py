"""Tells which processes run, which are stopped, who started them, and which have a session."""

import contextlib
import os
import select
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso.errors import MultiversoError, StateError, UnsupportedError

PROC: Final = Path("/proc")


def find_sessions(pid: int = 0) -> list[dict[str, Any]]:
    """Return node, description and living ranks of each session of other processes of this user."""
    found: list[dict[str, Any]] = read_description(checked.MV_FindSessions, pid)
    return found


def has_session(pid: int) -> bool:
    """Return whether another process is a rank of a session that is open, or is being opened."""
    with contextlib.suppress(UnsupportedError):
        return pid != os.getpid() and bool(find_sessions(pid))
    return False


def note_loss(pid: int, rank: int) -> None:
    """Tell the session of a process, before it is ended, which rank was lost first."""
    with contextlib.suppress(MultiversoError):
        checked.MV_NoteLoss(pid, rank)


def exists(pid: int) -> bool:
    """Return whether a process of this user exists."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def await_end(pids: Iterable[int], seconds: float, pipes: Iterable[int] = ()) -> None:
    """Wait until a child of this process has ended or a pipe can be read, at most `seconds`."""
    with contextlib.ExitStack() as stack:
        try:
            poll = select.poll()
            for pid in pids:
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
            for pipe in pipes:
                poll.register(pipe, select.POLLIN)
            poll.poll(seconds * 1000)
        except (AttributeError, OSError):  # The system cannot wait for them together.
            time.sleep(seconds)


def join_targets(pid: int) -> list[str]:
    """Return the ids of the processes through which one joins the session of a process."""
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
            children.setdefault(int(_status(process)[1]), []).append(process)
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def is_stopped(process: int) -> bool:
    """Return whether a signal or a debugger has stopped a process."""
    with contextlib.suppress(OSError):
        return _status(process)[0] in "Tt"
    return False


def _status(process: int) -> list[str]:
    """Return the state of a process, its parent, and what follows them in ``/proc/PID/stat``."""
    stat = (PROC / str(process) / "stat").read_text("ascii", errors="replace")
    return stat.rpartition(") ")[2].split()  # The program's name may have brackets.


def _processes() -> Iterator[int]:
    if not PROC.is_dir():
        msg = "finding the processes of others needs Linux, which lists them in /proc"
        raise UnsupportedError(msg)
    for process in PROC.iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == os.geteuid():
                yield int(process.name)
