"""Finds the jobs of this user on this node and reads their state, without disturbing them.

The state is in the control segment, which each rank of a node keeps open.
"""

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import Any

from multiverso._local import segments
from multiverso._native.capi import KEY_COUNTS
from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso.errors import StateError, UnsupportedError


@dataclass(frozen=True)
class JobState:
    """The state of one job's ranks on this node at one moment.

    Attributes
    ----------
    key : tuple of int
        The device and inode of the control segment, which identify the job.
    read_at : float
        The moment, in seconds of `time.monotonic`.
    content : dict
        The state from ``MV_NodeDescribe``: ``members``, ``tables``, and facts about the session.

    """

    key: tuple[int, int]
    read_at: float
    content: dict[str, Any] = field(repr=False)


def find_jobs() -> list[JobState]:
    """Return this user's jobs on this node, except one whose only rank here is this process."""
    found: dict[tuple[int, int], JobState] = {}
    for path in segments.descriptors():
        with contextlib.suppress(OSError, UnsupportedError):  # The latter for a table.
            status = path.stat()
            key = (status.st_dev, status.st_ino)
            if key not in found:
                content = read_description(checked.MV_NodeDescribe, os.fsencode(path))
                found[key] = JobState(key, time.monotonic(), content)
    alive = [job for job in found.values() if any(map(is_alive, job.content["members"]))]
    return sorted(alive, key=lambda job: (job.content["started"], job.key))


def find_elastic_job(target: str) -> str:
    """Return the session that a process joins in order to take part in an elastic job.

    Parameters
    ----------
    target : str
        The name of the job's session, or the process id of a rank, or of a process that started it.

    Returns
    -------
    str
        The name if no other job has the same one, which is valid as long as any rank lives;
        otherwise the process id of a rank.

    Raises
    ------
    StateError
        If there is no such job, or it is not elastic. The message lists the jobs that exist.

    """
    jobs = find_jobs()
    names = [job.content["name"] for job in jobs]
    started = segments.descendants(int(target)) if target.isdecimal() else []
    for job in jobs:
        pids = [member["pid"] for member in job.content["members"] if is_alive(member)]
        here = next((pid for pid in pids if pid in started), None)
        if target != job.content["name"] and here is None:
            continue
        if not job.content.get("elastic", True):
            msg = (
                f"job {target} is not elastic: expected one that was started with multiverso run "
                "--elastic or calls mv.init(elastic=True)"
            )
            raise StateError(msg)
        is_unique = names.count(job.content["name"]) == 1
        return str(job.content["name"] if is_unique else here or pids[0])
    described = ", ".join(map(_describe, jobs)) or "none"
    msg = f"there is no job {target} of this user on this node; the jobs are: {described}"
    raise StateError(msg)


def _describe(job: JobState) -> str:
    pids = [str(member["pid"]) for member in job.content["members"] if is_alive(member)]
    name = f"'{job.content['name']}' " if job.content["name"] else ""
    kind = "" if job.content.get("elastic", True) else " (not elastic)"
    return f"{name}with the processes {', '.join(pids)}{kind}"


def is_alive(member: dict[str, Any]) -> bool:
    """Return whether the process of a member exists."""
    return (segments.PROC / str(member["pid"])).exists()


def summarize(job: JobState, before: JobState | None) -> dict[str, Any]:
    """Return what ``multiverso top`` shows: the members and tables of a job, with rates.

    Parameters
    ----------
    job : JobState
        The current state.
    before : JobState or None
        An earlier state, from which the rates are computed; None for no rates.

    """
    content = job.content
    seconds = job.read_at - before.read_at if before is not None else 0.0
    earlier = before.content if before is not None else content
    earlier_calls = {member["rank"]: member["calls"] for member in earlier["members"]}
    earlier_bytes = {table["id"]: _bytes_moved(table) for table in earlier["tables"]}
    lags = _lags(content)
    members = [
        {
            **member,
            "alive": is_alive(member),
            "calls_per_second": _rate(
                member["calls"] - earlier_calls.get(member["rank"], 0), seconds
            ),
            "behind": lag,
        }
        for lag, member in zip(lags, content["members"], strict=True)
    ]
    tables = [
        {
            "id": table["id"],
            "name": table["name"],
            "shape": [table["capacity"] or table["num_row"], table["num_col"]],
            "keys": dict(zip(KEY_COUNTS, table["keys"], strict=True)) if table["keys"] else None,
            "gets": sum(table["gets"]),
            "adds": sum(table["adds"]),
            "bytes_sent": sum(table["bytes_sent"]),
            "bytes_received": sum(table["bytes_received"]),
            "raw_bytes_sent": sum(table["raw_bytes_sent"]),
            "raw_bytes_received": sum(table["raw_bytes_received"]),
            "seconds_encoding": sum(table["encoding"]) * 1e-9,
            "seconds_waiting": sum(table["waiting"]) * 1e-9,
            "gigabytes_per_second": _rate(
                (_bytes_moved(table) - earlier_bytes.get(table["id"], 0)) * 1e-9, seconds
            ),
        }
        for table in content["tables"]
    ]
    copied = (
        "name",
        "published",
        "version",
        "ranks",
        "nodes",
        "node",
        "mode",
        "continues",
        "started",
        "saved",
    )
    return {
        **{name: content[name] for name in copied},
        # Versions without elastic sessions do not describe these.
        "elastic": content.get("elastic", False),
        "max_workers": content.get("max_workers", 0),
        "members": members,
        "tables": tables,
    }


def _bytes_moved(table: dict[str, Any]) -> int:
    return int(sum(table["bytes_got"]) + sum(table["bytes_added"]))


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _lags(content: dict[str, Any]) -> list[int]:
    """Return how many adds each worker is behind the fastest, in the table of its greatest lag."""
    workers = [i for i, member in enumerate(content["members"]) if member["worker_id"] >= 0]
    lags = [0] * len(content["members"])
    for table in content["tables"]:
        most = max((table["adds"][worker] for worker in workers), default=0)
        for worker in workers:
            lags[worker] = max(lags[worker], most - table["adds"][worker])
    return lags
