"""Measure writing a checkpoint against dd on the same disk, and the delay for training.

    python benchmarks/checkpoint.py --folder /scratch
    python benchmarks/checkpoint.py --mib 256 --rounds 2 --ranks 1 2 --json out.json

Before and after each save, dd writes and syncs a file of the same size, because the speed of a
shared disk varies; a save is compared with the mean time of both. Each write begins when earlier
writes are on the disk. With background=True the call must take less time than one copy of the table
in memory. The first call with background=True copies to new memory, which the system must allocate
and clear, so it is reported next to a copy to new memory. The folder needs space for twice the
table.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
from environment import describe
from mpirun_jobs import launch
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser
from ranks import Ranks, find_mpi

#: The bars: lowest speed relative to dd, and longest call in memory copies.
_MIN_SPEED_RATIO_TO_DD = 0.8
_MAX_COPIES = 1.0
_JOB_TIMEOUT = 1800.0


def write_with_dd(folder: Path, mib: int) -> float:
    """Return the seconds that dd takes to write and sync `mib` MiB."""
    target = folder / "dd"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={mib}", "conv=fsync"]
    os.sync()  # excludes earlier writes and deletions
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    target.unlink()
    return seconds


def copy_once(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> float:
    """Return the seconds of one copy in memory by one thread."""
    start = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - start


def copy_to_new(size: int) -> float:
    """Return the seconds of a copy of `size` float32 to new memory."""
    source = np.ones(size, np.float32)
    start = time.perf_counter()
    source.copy()
    return time.perf_counter() - start


def save(folder: Path, ranks: Ranks, background: bool) -> tuple[float, float]:
    """Return the longest seconds of any rank for the call, and until the save is complete."""
    os.sync()
    ranks.start()
    start = time.perf_counter()
    mv.save(folder / "saved", keep=1, background=background)
    called = time.perf_counter() - start
    mv.wait_for_save()
    complete = time.perf_counter() - start
    return max(ranks.gather(called)), max(ranks.gather(complete))


def measure(folder: Path, mib: int, rounds: int, ranks: Ranks) -> dict[str, Any]:
    """Return all samples, in seconds. Collective."""
    samples: dict[str, list[float]] = {
        name: [] for name in ("dd", "save", "copy", "background_call", "background_complete")
    }
    size = mib * (1 << 18)
    with mv.session(timeout=600):
        table = mv.ArrayTable(size, name="saved")
        if mv.is_master_worker():
            table.add(np.random.default_rng(0).standard_normal(size, np.float32))
        mv.barrier()
        for round_number in range(rounds):
            if ranks.is_master:
                before = write_with_dd(folder, mib)
            ranks.barrier()
            samples["save"].append(save(folder, ranks, background=False)[0])
            if ranks.is_master:
                samples["dd"].append((before + write_with_dd(folder, mib)) / 2)
            ranks.barrier()
            if round_number == 0:
                # The first save in the background allocates memory for copies and keeps it.
                first = save(folder, ranks, background=True)[0]
                first_copy = copy_to_new(size) if ranks.is_master else 0.0
                ranks.barrier()
            called, complete = save(folder, ranks, background=True)
            samples["background_call"].append(called)
            samples["background_complete"].append(complete)
            if ranks.is_master:
                source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
                copies = [copy_once(source, target) for _ in range(3)]
                samples["copy"].append(statistics.median(copies))
                del source, target
            ranks.barrier()
    return {
        "ranks": ranks.size,
        "mib": mib,
        "first_background_call": first,
        "first_copy": first_copy,
        "samples": samples,
    }


def judge(run: dict[str, Any]) -> dict[str, float]:
    """Return the speed relative to dd, and the time of a call in copies; medians of all rounds."""
    samples = run["samples"]

    def ratio(name: str, reference: str) -> float:
        pairs = zip(samples[name], samples[reference], strict=True)
        return statistics.median(sample / other for sample, other in pairs)

    return {"of_dd": ratio("dd", "save"), "copies": ratio("background_call", "copy")}


def text_of(run: dict[str, Any]) -> str:
    """Return the run as lines of text."""
    samples, ratios, mib = run["samples"], judge(run), run["mib"]

    def speed(name: str) -> str:
        seconds = statistics.median(samples[name])
        return f"{seconds:8.3f} s  {mib / 1024 / seconds:7.2f} GiB/s"

    lines = [f"{run['ranks']} rank(s), a table of {mib} MiB, {len(samples['save'])} rounds"]
    for name, text in (
        ("dd", "dd conv=fsync"),
        ("save", "mv.save"),
        ("copy", "one copy in memory"),
        ("background_call", "mv.save(background=True), the call"),
        ("background_complete", "mv.save(background=True), complete"),
    ):
        lines.append(f"  {text:<36} {speed(name)}")
    lines += [
        f"  of dd's speed: {ratios['of_dd']:.2f} (at least {_MIN_SPEED_RATIO_TO_DD})",
        f"  the call takes {ratios['copies']:.2f} copies in memory (less than {_MAX_COPIES:g}); "
        f"the first, to new memory, took {run['first_background_call']:.3f} s, "
        f"a copy to new memory {run['first_copy']:.3f} s",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; return 1 if it misses a bar and is not silent."""
    parser = make_parser(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="on the disk to measure")
    parser.add_argument("--mib", type=int, default=2048, help="size of the table (2048)")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each (3)")
    parser.add_argument("--ranks", type=int, nargs="+", help="numbers of ranks to measure")
    options = parser.parse_args()
    if options.ranks:
        arguments = forwarded(options, "folder", "mib", "rounds")
        jobs = [launch(Path(__file__), count, arguments, _JOB_TIMEOUT) for count in options.ranks]
        report = {"environment": jobs[0]["environment"], "runs": [job["runs"][0] for job in jobs]}
        is_master = True
    else:
        mpi = find_mpi()[0] if find_launcher() else None
        ranks = Ranks(mpi)
        is_master = ranks.is_master
        options.folder.mkdir(parents=True, exist_ok=True)
        created = tempfile.mkdtemp(prefix="checkpoint-", dir=options.folder) if is_master else None
        folder = Path(ranks.gather(created)[0])
        try:
            run = measure(folder, options.mib, options.rounds, ranks)
        finally:
            if is_master:
                shutil.rmtree(folder)
        report = {"environment": describe(mpi), "runs": [run]}
    if not is_master:
        return 0
    deliver(report, options, lambda report: print("\n".join(map(text_of, report["runs"]))))
    ratios = [judge(run) for run in report["runs"]]
    passed = all(
        ratio["of_dd"] >= _MIN_SPEED_RATIO_TO_DD and ratio["copies"] < _MAX_COPIES
        for ratio in ratios
    )
    # A silent run is a job of another run, which judges its report.
    return 0 if passed or options.silent else 1


if __name__ == "__main__":
    sys.exit(main())
