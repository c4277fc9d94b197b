"""Finds the jobs of this user on this node and reads their state, without disturbing them."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from multiverso._local import processes
from multiverso._native.capi import KEY_COUNTS
from multiverso.errors import StateError

#: The modes, by ``MV_MODE_`` code.
MODES: Final = ("async", "sync", "staleness")
#: What is shown of a table as the sum over the ranks.
_SUMMED: Final = "gets adds bytes_sent bytes_received raw_bytes_sent raw_bytes_received".split()
#: What is shown of a job as it is.
_SHOWN: Final = (
    "name published version ranks nodes node continues started saved elastic max_workers".split()
)


@dataclass(frozen=True)
class JobState:
    """The state of one job's ranks on this node at one moment."""

    #: The numbers of the session and of its node, which identify the job.
    key: tuple[int, int]
    #: The moment, in seconds of `time.monotonic`.
    read_at: float
    #: The state from ``MV_NodeDescribe``: ``members``, ``tables``, and facts about the session. A
    #: member is ``alive`` if it takes part in the session now.
    content: dict[str, Any] = field(repr=False)


def find_jobs() -> list[JobState]:
    """Return this user's jobs on this node, except one whose only rank here is this process."""
    jobs = []
    for session in processes.find_sessions():
        content = session["node"]
        for member in content["members"]:
            member["alive"] = member["rank"] in session["alive"]
            member["stopped"] = member["alive"] and processes.is_stopped(member["pid"])
        if session["alive"]:
            key = (content["session"], content["node"])
            jobs.append(JobState(key, time.monotonic(), content))
    return sorted(jobs, key=lambda job: (job.content["started"], job.key))


def find_elastic_job(target: str) -> str:
    """Return how a joiner names a job: by its name if no other job has it, else by a process."""
    jobs = find_jobs()
    names = [job.content["name"] for job in jobs]
    started = processes.descendants(int(target)) if target.isdecimal() else []
    for job in jobs:
        pids = [member["pid"] for member in job.content["members"] if member["alive"]]
        found = next((pid for pid in pids if pid in started), None)
        if target != job.content["name"] and found is None:
            continue
        if not job.content["elastic"]:
            raise StateError(
                f"job {target} is not elastic: expected one that was started with multiverso run "
                "--elastic or calls mv.init(elastic=True)"
            )
        is_unique = names.count(job.content["name"]) == 1
        return str(job.content["name"] if is_unique else found or pids[0])
    described = ", ".join(map(_describe, jobs)) or "none"
    msg = f"there is no job {target} of this user on this node; the jobs are: {described}"
    raise StateError(msg)


def _describe(job: JobState) -> str:
    pids = [str(member["pid"]) for member in job.content["members"] if member["alive"]]
    name = f"'{job.content['name']}' " if job.content["name"] else ""
    kind = "" if job.content["elastic"] else " (not elastic)"
    return f"{name}with the processes {', '.join(pids)}{kind}"


def summarize(job: JobState, before: JobState | None) -> dict[str, Any]:
    """Return what ``multiverso top`` shows of a job, with rates since the state `before`."""
    content = job.content
    seconds = job.read_at - before.read_at if before is not None else 0.0
    earlier = before.content if before is not None else content
    earlier_calls = {member["rank"]: member["calls"] for member in earlier["members"]}
    earlier_bytes = {table["id"]: _bytes_moved(table) for table in earlier["tables"]}
    lags = _lags(content)
    members = [
        {
            **member,
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
            **{name: sum(table[name]) for name in _SUMMED},
            "seconds_encoding": sum(table["encoding"]) * 1e-9,
            "seconds_waiting": sum(table["waiting"]) * 1e-9,
            "gigabytes_per_second": _rate(
                (_bytes_moved(table) - earlier_bytes.get(table["id"], 0)) * 1e-9, seconds
            ),
        }
        for table in content["tables"]
    ]
    return {
        **{name: content[name] for name in _SHOWN},
        "mode": MODES[content["mode"]],
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
