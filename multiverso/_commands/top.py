"""``multiverso top``: shows the live state of the jobs on this node."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from multiverso._commands import _node_jobs, _prometheus
from multiverso._commands._argument_types import address, seconds
from multiverso._commands._text_table import lines_of

#: Clears a terminal from the upper left corner on.
_CLEAR: Final = "\x1b[H\x1b[J"
#: The columns of ranks and of tables, and which of them have numbers.
_RANKS: Final = ("rank", "process", "state", "calls/s", "behind", "silent", "does", "waits for")
_TABLES: Final = ("table", "shape", "gets", "adds", "GB/s", "keys here")
_RANK_NUMBERS: Final = (0, 1, 3, 4, 5)
_TABLE_NUMBERS: Final = (2, 3, 4)


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "top",
        help="show what the jobs on this node are doing",
        description="Shows the jobs of this user on this node: what each rank does and waits for, "
        "and the throughput of each table. It reads the records of the ranks in their shared "
        "memory, and does not disturb them. Ctrl-C ends it.",
    )
    parser.add_argument("--once", action="store_true", help="print once and end")
    parser.add_argument("--json", action="store_true", help="print JSON once")
    parser.add_argument(
        "--follow", action="store_true", help="with --json, print a line at each update"
    )
    parser.add_argument(
        "--prometheus",
        type=address,
        metavar="[HOST:]PORT",
        help="serve the same as metrics for Prometheus, at http://127.0.0.1:PORT/metrics unless "
        "HOST is another address of this machine",
    )
    parser.add_argument(
        "--interval",
        type=seconds(0.01, 3600),
        default=1.0,
        metavar="SECONDS",
        help="between updates (1)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the jobs once, or until Ctrl-C; return the exit code."""
    if options.prometheus is not None:
        with contextlib.suppress(KeyboardInterrupt):
            host, port = options.prometheus
            _prometheus.serve(host, port, _announce)
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        _show(options)
    return 0


def _announce(where: str) -> None:
    sys.stderr.write(f"multiverso top: serves {where}\n")
    sys.stderr.flush()


def _show(options: argparse.Namespace) -> None:
    once = options.once or options.json and not options.follow
    clear = "" if once or options.json or not sys.stdout.isatty() else _CLEAR
    before = {state.key: state for state in _node_jobs.find_jobs()}
    while True:
        time.sleep(options.interval)
        states = _node_jobs.find_jobs()
        jobs = [_node_jobs.summarize(state, before.get(state.key)) for state in states]
        before = {state.key: state for state in states}
        text = json.dumps(jobs) if options.json else text_of(jobs)
        sys.stdout.write(f"{clear}{text}\n")
        sys.stdout.flush()
        if once:
            return


def text_of(jobs: Sequence[dict[str, Any]]) -> str:
    """Return a title and two tables for each job: its ranks, and its tables."""
    if not jobs:
        return "no jobs of this user on this node"
    lines: list[str] = []
    for job in jobs:
        lines += [_title(job), *lines_of(_RANKS, _rank_rows(job), _RANK_NUMBERS)]
        if rows := _table_rows(job):
            lines += ["", *lines_of(_TABLES, rows, _TABLE_NUMBERS)]
        lines.append("")
    return "\n".join(lines[:-1])


def _title(job: dict[str, Any]) -> str:
    nodes = f", node {job['node']} of {job['nodes']}" if job["nodes"] > 1 else ""
    saved = f", saved {job['saved']}" if job["saved"] else ""
    name = f"'{job['name']}', version {job['published']}: " if job["name"] else ""
    return _printable(f"{name}{_describe_ranks(job)}, {job['mode']}{nodes}{saved}")


def _rank_rows(job: dict[str, Any]) -> list[list[str]]:
    return [
        [
            str(member["rank"]),
            str(member["pid"]),
            _state_of(member),
            _format(member["calls_per_second"]),
            str(member["behind"]) if member["worker_id"] >= 0 else "",
            _format(member["silent_for"], " s"),
            _printable(member["call"] or ""),
            ", ".join(map(str, member["waits_for"])),
        ]
        for member in job["members"]
    ]


def _table_rows(job: dict[str, Any]) -> list[list[str]]:
    return [
        [
            _printable(table["name"]),
            " x ".join(map(str, table["shape"])),
            str(table["gets"]),
            str(table["adds"]),
            _format(table["gigabytes_per_second"]),
            _describe_keys(table),
        ]
        for table in job["tables"]
    ]


def _state_of(member: dict[str, Any]) -> str:
    """Return whether a rank is here, is stopped, has closed its session, has left, or has died."""
    state: str = member["state"]
    if state != "here":
        return state
    return ("stopped" if member["stopped"] else state) if member["alive"] else "died"


def _describe_ranks(job: dict[str, Any]) -> str:
    """Return the number of ranks; of an elastic job, also how many have joined and left."""
    if not job["elastic"]:
        return f"{job['ranks']} rank{'s' * (job['ranks'] != 1)}"
    joined = len(job["members"])
    here = sum(_state_of(member) in ("here", "stopped") for member in job["members"])
    most = f" of at most {job['max_workers']}" if job["max_workers"] else ""
    return f"elastic: {here}{most} workers, {joined} joined, {joined - here} left"


def _describe_keys(table: dict[str, Any]) -> str:
    """Return the load of a hash table, and what has happened to its keys on this node."""
    if table["keys"] is None:
        return ""
    counts = {name: count for name, count in table["keys"].items() if count and name != "keys"}
    load = table["keys"]["keys"] / table["shape"][0]
    return ", ".join(
        [f"{table['keys']['keys']} ({load:.0%})", *(f"{n} {name}" for name, n in counts.items())]
    )


def _printable(text: str) -> str:
    """Return a text, such as a name, with escapes in place of control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _format(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}"
