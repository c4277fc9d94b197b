"""``multiverso top``: shows the live state of the jobs on this node."""

import argparse
import contextlib
import importlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from multiverso._commands import _node_jobs, _prometheus
from multiverso._commands._argument_types import address, seconds
from multiverso._extras import needs

#: The modes, by ``MV_MODE_`` code.
_MODES: Final = ("async", "sync", "staleness")


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
    parser.add_argument("--json", action="store_true", help="print JSON, one line each time")
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
    view = None
    if not options.json:
        with needs("multiverso top", rich="pip install 'multiverso[tools]', or use --json"):
            view = _View()
    with contextlib.suppress(KeyboardInterrupt):
        _show(options, view)
    return 0


def _announce(where: str) -> None:
    sys.stderr.write(f"multiverso top: serves {where}\n")
    sys.stderr.flush()


def _show(options: argparse.Namespace, view: "_View | None") -> None:
    before = {state.key: state for state in _node_jobs.find_jobs()}
    with view.live() if view and not options.once else contextlib.nullcontext() as live:
        while True:
            time.sleep(options.interval)
            states = _node_jobs.find_jobs()
            jobs = [_node_jobs.summarize(state, before.get(state.key)) for state in states]
            before = {state.key: state for state in states}
            if view is None:
                sys.stdout.write(f"{json.dumps(jobs)}\n")
                sys.stdout.flush()
            elif live is not None:
                live.update(view.render(jobs), refresh=True)
            else:
                view.show(jobs)
            if options.once:
                return


class _View:
    """Renders jobs as grids, which are tables of the package rich."""

    def __init__(self) -> None:
        self._rich = {
            name: importlib.import_module(f"rich.{name}")
            for name in ("console", "live", "table", "text")
        }

    def live(self) -> Any:
        """Return a display that is updated in place."""
        return self._rich["live"].Live(auto_refresh=False)

    def show(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Print the jobs."""
        self._rich["console"].Console().print(self.render(jobs))

    def render(self, jobs: Sequence[dict[str, Any]]) -> Any:
        """Return two grids for each job: its ranks, and its tables."""
        grids = [grid for job in jobs for grid in (self._rank_grid(job), self._table_grid(job))]
        return self._rich["console"].Group(*(grids or ["no jobs of this user on this node"]))

    def _text(self, text: str) -> Any:
        # In a str, brackets would be markup, and the terminal would obey control characters.
        return self._rich["text"].Text(_printable(text))

    def _grid(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
        grid = self._rich["table"].Table(title=title, title_justify="left")
        for column in columns:
            grid.add_column(column)
        for row in rows:
            grid.add_row(*map(self._text, row))
        return grid

    def _rank_grid(self, job: dict[str, Any]) -> Any:
        nodes = f", node {job['node']} of {job['nodes']}" if job["nodes"] > 1 else ""
        saved = f", saved {job['saved']}" if job["saved"] else ""
        name = f"'{job['name']}', version {job['published']}: " if job["name"] else ""
        title = f"{name}{_describe_ranks(job)}, {_MODES[job['mode']]}{nodes}{saved}"
        columns = ("rank", "process", "state", "calls/s", "behind", "silent", "does", "waits for")
        rows = [
            (
                str(member["rank"]),
                str(member["pid"]),
                _state_of(member),
                _format(member["calls_per_second"]),
                str(member["behind"]) if member["worker_id"] >= 0 else "",
                _format(member["silent_for"], " s"),
                member["call"] or "",
                ", ".join(map(str, member["waits_for"])),
            )
            for member in job["members"]
        ]
        return self._grid(self._text(title), columns, rows)

    def _table_grid(self, job: dict[str, Any]) -> Any:
        columns = ("table", "shape", "gets", "adds", "GB/s", "keys here")
        rows = [
            (
                table["name"],
                " x ".join(map(str, table["shape"])),
                str(table["gets"]),
                str(table["adds"]),
                _format(table["gigabytes_per_second"]),
                _describe_keys(table),
            )
            for table in job["tables"]
        ]
        return self._grid("", columns, rows)


def _state_of(member: dict[str, Any]) -> str:
    """Return whether a rank is here, has closed its session, has left, or has died."""
    state: str = member["state"]
    return state if member["alive"] or state != "here" else "died"


def _describe_ranks(job: dict[str, Any]) -> str:
    """Return the number of ranks; of an elastic job, also how many have joined and left."""
    if not job["elastic"]:
        return f"{job['ranks']} ranks"
    joined = len(job["members"])
    here = sum(_state_of(member) == "here" for member in job["members"])
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
