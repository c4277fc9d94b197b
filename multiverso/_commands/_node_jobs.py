"""Finds the jobs of this user on this node and reads their state, without disturbing them.

The ranks of a node share memory without a name, which each rank keeps open. This module finds the
memory among the open files of their processes in /proc.
"""

import contextlib
import ctypes
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from multiverso._native import library
from multiverso._native.library import lib
from multiverso.errors import UnsupportedError

_PROC: Final = Path("/proc")

#: The targets of descriptors of the memory contain a name of anonymous memory or of a file.
_TARGETS: Final = ("/memfd:multiverso", "/multiverso-")

#: The bytes of a description that fit at the first attempt.
_FIRST_ROOM: Final = 1 << 16


@dataclass(frozen=True)
class Node:
    """The state of one job's ranks on this node at one moment.

    Attributes
    ----------
    key : tuple of int
        The identity of the job.
    at : float
        The moment, in seconds of `time.monotonic`.
    content : dict
        The state from ``MV_NodeDescribe``: ``members``, ``tables``, and facts about the session.

    """

    key: tuple[int, int]
    at: float
    content: dict[str, Any] = field(repr=False)


def find_nodes() -> list[Node]:
    """Return the jobs of this user on this node, except that of this process."""
    found: dict[tuple[int, int], Node] = {}
    for path in _candidates():
        with contextlib.suppress(OSError, UnsupportedError):
            status = path.stat()
            key = (status.st_dev, status.st_ino)
            if key not in found:
                found[key] = Node(key, time.monotonic(), _describe(path))
    living = [node for node in found.values() if any(map(is_alive, node.content["members"]))]
    return sorted(living, key=lambda node: (node.content["started"], node.key))


def is_alive(member: dict[str, Any]) -> bool:
    """Return whether the process of a member exists."""
    return (_PROC / str(member["pid"])).exists()


def _candidates() -> Iterator[Path]:
    """Yield the paths of descriptors that may refer to the shared memory of a job."""
    own = (os.getpid(), os.geteuid())
    for process in _PROC.iterdir():
        # Closing a descriptor of this process's own memory would release its presence lock.
        if not process.name.isdigit() or int(process.name) == own[0]:
            continue
        with contextlib.suppress(OSError):
            if process.stat().st_uid != own[1]:
                continue
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if any(name in target for name in _TARGETS):
                        yield descriptor


def _describe(path: Path) -> dict[str, Any]:
    length = ctypes.c_int64(_FIRST_ROOM)
    while True:
        text = ctypes.create_string_buffer(length.value)
        room = length.value
        library.call(
            lib.MV_NodeDescribe, os.fsencode(path), text, ctypes.c_int64(room), ctypes.byref(length)
        )
        if length.value <= room:
            content: dict[str, Any] = json.loads(text.raw[: length.value])
            return content


def summarize(node: Node, before: Node | None) -> dict[str, Any]:
    """Return the members and tables of a job, with rates.

    Parameters
    ----------
    node : Node
        The current state.
    before : Node or None
        An earlier state, from which the rates are computed; None for no rates.

    """
    content = node.content
    seconds = node.at - before.at if before is not None else 0.0
    earlier = before.content if before is not None else content
    calls = {member["rank"]: member["calls"] for member in earlier["members"]}
    moved = {table["id"]: _bytes(table) for table in earlier["tables"]}
    lag = _lags(content)
    members = [
        {
            **member,
            "alive": is_alive(member),
            "calls_per_second": _rate(member["calls"] - calls.get(member["rank"], 0), seconds),
            "behind": lag[place],
        }
        for place, member in enumerate(content["members"])
    ]
    tables = [
        {
            "id": table["id"],
            "name": table["name"],
            "shape": [table["num_row"], table["num_col"]],
            "gets": sum(table["gets"]),
            "adds": sum(table["adds"]),
            "gigabytes_per_second": _rate(
                (_bytes(table) - moved.get(table["id"], 0)) * 1e-9, seconds
            ),
        }
        for table in content["tables"]
    ]
    kept = ("version", "ranks", "nodes", "node", "mode", "continues", "started", "saved")
    return {**{name: content[name] for name in kept}, "members": members, "tables": tables}


def _bytes(table: dict[str, Any]) -> int:
    return int(sum(table["bytes_got"]) + sum(table["bytes_added"]))


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _lags(content: dict[str, Any]) -> list[int]:
    """Return the most adds of any table that each member is behind the first member."""
    workers = [member["worker_id"] >= 0 for member in content["members"]]
    lags = [0] * len(workers)
    for table in content["tables"]:
        most = max(
            (adds for adds, works in zip(table["adds"], workers, strict=True) if works), default=0
        )
        for place, (adds, works) in enumerate(zip(table["adds"], workers, strict=True)):
            if works:
                lags[place] = max(lags[place], most - adds)
    return lags
