"""Measure how long it takes to join an elastic job, and to replace a worker that is killed.

    python benchmarks/elastic.py                    1 MB and 1 GB of tables, 10 joins each
    python benchmarks/elastic.py --megabytes 100    another size

Two workers add 1 000 floats in a loop. Joiners come one after the other. A joiner's time is that
from `init` to its first add that returns, without the imports before it. The longest add of another
worker in that time is compared with its longest add in a time of the same length just before. Then
a worker is killed, and `multiverso run --respawn` replaces it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import environment
import multiverso as mv
from mpirun_jobs import progress
from options import deliver, make_parser, positive

#: When the imports above had ended, in seconds since the start of the machine.
_IMPORTED = time.clock_gettime(time.CLOCK_BOOTTIME)
_SMALL = 1000
_WORKERS = 2
_DEADLINE = 120.0
#: Adds that take less than this many seconds are not kept.
_SHORT = 1e-4


def _process_start() -> float:
    """Return when this process was started, in seconds since the start of the machine."""
    fields = Path("/proc/self/stat").read_text("ascii").rpartition(") ")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _write(folder: Path, name: str, **values: Any) -> None:
    unfinished = folder / f".{name}"
    unfinished.write_text(json.dumps(values), "utf-8")
    unfinished.replace(folder / name)


def _await(folder: Path, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + _DEADLINE
    while not (folder / name).exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"expected {name} from a worker within {_DEADLINE:g} s, received none")
        time.sleep(0.001)
    values: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return values


def _work(folder: Path, elements: int) -> None:
    """Be a worker: add until the end, and write when the first add returned, and the slow ones."""
    begin = time.monotonic()
    with mv.session(elastic=True, name=folder.name):
        large = mv.ArrayTable(elements, name="large")
        small = mv.ArrayTable(_SMALL, name="small")
        delta = np.ones(_SMALL, np.float32)
        small.add(delta)
        end = time.monotonic()
        worker = mv.worker_id()
        if worker == 0:
            large.add(np.ones(elements, np.float32))
        _write(
            folder,
            f"worker-{worker}",
            pid=os.getpid(),
            begin=begin,
            end=end,
            first_add=time.clock_gettime(time.CLOCK_BOOTTIME),
            imports=_IMPORTED - _process_start(),
        )
        if "MULTIVERSO_JOIN" in os.environ and not (folder / "killed").exists():
            return
        calls = []
        while not (folder / "stop").exists():
            for _ in range(100):
                before = time.monotonic()
                small.add(delta)
                after = time.monotonic()
                if after - before > _SHORT:
                    calls.append((before, after))
        _write(folder, f"calls-{worker}", calls=calls)


def _longest(calls: list[list[float]], begin: float, end: float) -> float:
    """Return the longest of the calls that overlap a time, or 0 if all were short."""
    return max(
        (after - before for before, after in calls if before < end and after > begin), default=0
    )


def _measure(megabytes: float, joins: int) -> dict[str, Any]:
    """Run one job; return its times in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="mv-elastic-") as name:
        folder = Path(name)
        elements = int(megabytes * 1e6 / 4)
        program = [__file__, "--role", str(folder), "--elements", str(elements)]
        run = [sys.executable, "-m", "multiverso", "run", "-np", str(_WORKERS)]
        job = subprocess.Popen(
            [*run, "--elastic", "1:8", "--respawn", *program], stderr=subprocess.DEVNULL
        )
        try:
            for worker in range(_WORKERS):
                _await(folder, f"worker-{worker}")
            joined = []
            for worker in progress(list(range(_WORKERS, _WORKERS + joins)), is_master=True):
                environ = {**os.environ, "MULTIVERSO_JOIN": folder.name}
                subprocess.run(
                    [sys.executable, *program], env=environ, check=True, timeout=_DEADLINE
                )
                joined.append(_await(folder, f"worker-{worker}"))
            (folder / "killed").touch()
            killed = time.clock_gettime(time.CLOCK_BOOTTIME)
            os.kill(_await(folder, "worker-1")["pid"], 9)
            replacement = _await(folder, f"worker-{_WORKERS + joins}")
            (folder / "stop").touch()
            calls = _await(folder, "calls-0")["calls"]
            job.wait(_DEADLINE)
        finally:
            job.terminate()
            job.wait()
    times = [worker["end"] - worker["begin"] for worker in joined]
    during = [_longest(calls, worker["begin"], worker["end"]) for worker in joined]
    before = [
        _longest(calls, 2 * worker["begin"] - worker["end"], worker["begin"]) for worker in joined
    ]
    return {
        "megabytes": megabytes,
        "join_ms": {"median": statistics.median(times) * 1e3, "most": max(times) * 1e3},
        "others_longest_add_ms": {
            "during_joins": max(during) * 1e3,
            "before_joins": max(before) * 1e3,
        },
        "kill_to_first_add_ms": (replacement["first_add"] - killed - replacement["imports"]) * 1e3,
        "imports_ms": replacement["imports"] * 1e3,
    }


def _show(report: dict[str, Any]) -> None:
    print(
        f"{'tables':>10}{'join (median, most)':>24}{'others before, during':>24}{'kill to add':>16}"
    )
    for row in report["results"]:
        join, others = row["join_ms"], row["others_longest_add_ms"]
        print(
            f"{row['megabytes']:>7g} MB"
            f"{join['median']:>13.1f}, {join['most']:.1f} ms"
            f"{others['before_joins']:>16.1f}, {others['during_joins']:.1f} ms"
            f"{row['kill_to_first_add_ms']:>13.0f} ms"
        )


def main() -> None:
    """Measure, or be a worker of a job that measures."""
    parser = make_parser(__doc__)
    parser.add_argument("--megabytes", type=positive(float), nargs="+", default=[1, 1000])
    parser.add_argument("--joins", type=positive(int), default=10, help="joins for each size (10)")
    parser.add_argument("--role", type=Path, help="the folder of a job, for its workers")
    parser.add_argument("--elements", type=positive(int), help="of the table, for workers")
    options = parser.parse_args()
    if options.role is not None:
        _work(options.role, options.elements)
        return
    results = [_measure(megabytes, options.joins) for megabytes in options.megabytes]
    deliver({"environment": environment.describe(None), "results": results}, options, _show)


if __name__ == "__main__":
    main()
