"""The jobs of this user on this node, as seen from outside, without disturbing them.

What the ranks of a node share is memory without a name, which each of them keeps open. So it is
found where the kernel lists what processes have open, and read from there.
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

#: What the links of descriptors to such memory contain: anonymous, or in a file.
_NAMES: Final = ("/memfd:multiverso", "/multiverso-")

_ROOM: Final = 1 << 16


@dataclass(frozen=True)
class Node:
    """What the ranks of one job on this node were doing at a moment.

    Attributes
    ----------
    key : tuple of int
        The same for the same job, whenever it is looked at.
    at : float
        The moment, in seconds of `time.monotonic`.
    content : dict
        What the library tells: ``members``, ``tables`` and what the session is.

    """

    key: tuple[int, int]
    at: float
    content: dict[str, Any] = field(repr=False)


def find_nodes() -> list[Node]:
    """Return the jobs of this user on this node, those of this process excepted."""
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
    """Return whether there is a process of that number."""
    return (_PROC / str(member["pid"])).exists()


def _candidates() -> Iterator[Path]:
    """Yield the descriptors that may be of the memory that the ranks of a node share."""
    own = (os.getpid(), os.geteuid())
    for process in _PROC.iterdir():
        # Closing a descriptor of its own memory would take a rank's mark of presence away.
        if not process.name.isdigit() or int(process.name) == own[0]:
            continue
        with contextlib.suppress(OSError):
            if process.stat().st_uid != own[1]:
                continue
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if any(name in target for name in _NAMES):
                        yield descriptor


def _describe(path: Path) -> dict[str, Any]:
    length = ctypes.c_int64(_ROOM)
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
    """Return what is to be shown of a job: its members and tables, with rates.

    Parameters
    ----------
    node : Node
        What it does now.
    before : Node or None
        What it did a while ago, since when the rates are counted; None for no rates.

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
    """Return by how many adds each member is behind the first, where it is most."""
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
