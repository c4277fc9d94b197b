"""Measure what an adapter costs one worker, and how much sooner two workers are.

    python benchmarks/adapters.py                          all adapters that this environment has
    python benchmarks/adapters.py torch keras-torch        these
    python benchmarks/adapters.py torch --quick --json F   a quick look, and every sample
    python benchmarks/adapters.py --all-cores              one worker, on all cores

Each adapter trains a small convolutional network, with batches of at least 20 ms, in a job of one
rank and then in one of two, pinned to a core each. In the first two things are timed in turns,
epoch by epoch, because the speed of a machine drifts: training that syncs after every batch, and
the same without Multiverso. In the second it is both workers at once, one of them, and both without
Multiverso, which is what the machine gives two processes that have nothing to do with each other.
The ratios can be compared between runs and machines, the times less so. Beside a ratio stand the
bounds within which it is with 95 % confidence. With --all-cores there is the first job only, on all
cores and with as many threads as the framework takes.

Batches that turn out to have been shorter, on a machine that has become faster meanwhile, are made
larger, and all is measured again. On Linux the memory of a process is held still, see HELD.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import multiverso as mv
import report
from bars import Bar, judge
from comparisons import Case
from environment import describe
from launcher import launch_all, progress
from pinned import pin
from ranks import Ranks, Span, find_mpi
from samples import Effort, alternate
from trainers import TRAINERS

if TYPE_CHECKING:
    from trainers import Trainer

WORKERS = 2
RANKS = (1, WORKERS)  # of the jobs
#: The bars: what an epoch may take beside plain training, and how many times one worker's samples
#: two workers must get through in the same time.
MOST_OF_PLAIN = 1.02
LEAST_OF_ONE = 1.9

BATCH_SECONDS = 0.02  # that a batch takes at least, for the bars to count
AIM = 1.25  # times that
ALONE, PLAIN, ONE, BOTH_PLAIN = "with Multiverso", "plain training", "one worker", "both plain"
#: One thread for each worker, for frameworks that do not ask what it is pinned to.
THREADS = ("OMP_NUM_THREADS", "NPROC", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
#: For the malloc of glibc, which gives memory back to the system after one batch and takes it again
#: in the next, or does not, as it happens: up to 2 ms of page faults in a batch, on one side or the
#: other. It is told to keep what it has, on both sides alike. Other libraries take no notice.
HELD = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
MOST_ATTEMPTS = 4  # to find batches that are long enough while they are measured


class Epochs:
    """Epochs of training by the first `workers` ranks; the others wait."""

    statement = ""

    def __init__(
        self, name: str, trainer: Trainer, shape: tuple[int, int], workers: int, *, synced: bool
    ) -> None:
        self.name = name
        self.workers = workers
        self._trainer = trainer
        self._batches, self._batch_size = shape
        self._synced = synced
        self.batch_seconds: list[float] = []  # that a batch took, in each run; see `clock`

    def run(self, calls: int) -> Span | None:
        """Train for so many epochs and return when that was."""
        if mv.worker_id() >= self.workers:
            return None
        batches = calls * self._batches
        begin, before = time.perf_counter(), clock()
        self._trainer.train(batches, self._batch_size, synced=self._synced)
        end = time.perf_counter()
        self.batch_seconds.append((clock() - before) / batches)
        return Span(begin, end)


def clock() -> float:
    """Return a time in seconds to tell how long a batch takes.

    That of the processor on one core, which is the time of a machine with nothing else to do. On
    several cores several threads may compute, and only the clock on the wall tells it.
    """
    return time.process_time() if len(os.sched_getaffinity(0)) == 1 else time.perf_counter()


def seconds_of_batch(trainer: Trainer, batch_size: int) -> float:
    """Return the time of a batch of plain training; what an epoch costs besides is not in it."""

    def seconds(batches: int) -> float:
        begin = clock()
        trainer.train(batches, batch_size, synced=False)
        return clock() - begin

    for batches in (2, 6):  # compiles, perhaps for each length
        seconds(batches)
    return min((seconds(6) - seconds(2)) / 4 for _ in range(2))


def calibrated(trainer: Trainer, ranks: Ranks, least: float) -> int:
    """Return how many images make a batch that takes a little more than `least` seconds."""
    size, aim = 16, AIM * least
    for _ in range(6):
        seconds = max(min(ranks.gather(seconds_of_batch(trainer, size))), 1e-4)
        if least <= seconds <= 1.5 * least or (size == 1 and seconds > aim):
            break
        size = max(1, round(size * min(aim / seconds, 8.0)))
    return size


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure one adapter with the ranks of this process's job; the report on the master."""
    (adapter,) = options.adapters
    if not options.all_cores:
        pin()
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    expected = sizes(options)
    if ranks.size not in expected:
        raise SystemExit(f"expected {' or '.join(map(str, expected))} ranks, got {ranks.size}")
    cores = set(ranks.gather(min(os.sched_getaffinity(0))))
    if len(cores) != ranks.size:
        raise SystemExit(f"expected a core for each of {ranks.size} ranks, received {len(cores)}")
    with mv.session(timeout=options.limit):
        trainer = TRAINERS[adapter][0]()
        size = calibrated(trainer, ranks, options.batch_seconds)
        for _ in range(MOST_ATTEMPTS):
            notes, case, bar, seconds = measure_batches(options, trainer, size, ranks)
            if seconds >= options.batch_seconds:
                break
            size = max(size + 1, round(size * AIM * options.batch_seconds / seconds))
        else:
            notes.append(f"{adapter}: batches of {1e3 * seconds:.1f} ms, which is too short")
    if not ranks.is_master:
        return None
    cases = [case]
    return {
        "environment": describe(mpi),
        "notes": [*notes, *([problem] if problem else [])],
        "runs": [report.to_json(cases, judge(cases, ranks.size, (bar,)), ranks.size)],
    }


def sizes(options: argparse.Namespace) -> tuple[int, ...]:
    """Return how many ranks the jobs have."""
    return RANKS[:1] if options.all_cores else RANKS


def measure_batches(
    options: argparse.Namespace, trainer: Trainer, size: int, ranks: Ranks
) -> tuple[list[str], Case, Bar, float]:
    """Measure with batches of that size; also the shortest time of one on any rank."""
    (adapter,) = options.adapters
    shape = (options.batches, size)
    for synced in (True, False):  # compiles
        trainer.train(*shape, synced=synced)
    # What two workers do differs by more.
    seconds = options.seconds / ranks.size
    effort = Effort(options.batch_seconds, seconds, 3 if options.quick else 9, 201)
    of_all = measure_one if ranks.size == 1 else measure_both
    notes, case, bar, plain = of_all(adapter, trainer, shape, ranks, effort)
    batch = min(ranks.gather(statistics.median(plain.batch_seconds)))
    return notes, case, bar, batch


def measure_one(
    adapter: str, trainer: Trainer, shape: tuple[int, int], ranks: Ranks, effort: Effort
) -> tuple[list[str], Case, Bar, Epochs]:
    """Measure what syncs cost a worker that is alone; also return what trained without."""
    synced = Epochs(ALONE, trainer, shape, 1, synced=True)
    without = Epochs(PLAIN, trainer, shape, 1, synced=False)
    series = alternate([synced, without], ranks, effort, warms=False)
    # The last of each, which were taken in turns.
    pairs = zip(synced.batch_seconds[::-1], without.batch_seconds[::-1], strict=False)
    batch = 1e3 * statistics.median(without.batch_seconds)
    cost = 1e3 * statistics.median(one - other for one, other in pairs)
    cores = len(os.sched_getaffinity(0))
    note = (
        f"{adapter}: {trainer.num_parameters:,} parameters, batches of {shape[1]},"
        f" {'processor time' if cores == 1 else f'on {cores} cores'}:"
        f" {batch:.1f} ms a batch, {cost:.2f} ms a sync, which is {cost / batch:.1%}"
    )
    bar = Bar(adapter, 0, PLAIN, 1, 1 / MOST_OF_PLAIN)
    return [note], Case(adapter, 0, series), bar, without


def measure_both(
    adapter: str, trainer: Trainer, shape: tuple[int, int], ranks: Ranks, effort: Effort
) -> tuple[list[str], Case, Bar, Epochs]:
    """Measure how much sooner two workers are; also return what trained without."""
    without = Epochs(BOTH_PLAIN, trainer, shape, WORKERS, synced=False)
    candidates = [
        Epochs(f"{WORKERS} workers", trainer, shape, WORKERS, synced=True),
        Epochs(ONE, trainer, shape, 1, synced=True),
        without,
    ]
    series = alternate(candidates, ranks, effort, warms=False)
    bar = Bar(adapter, 0, ONE, WORKERS, LEAST_OF_ONE)
    return [], Case(adapter, 0, series), bar, without


def measure_all(options: argparse.Namespace) -> tuple[dict[str, Any] | None, int]:
    """Start the jobs of each adapter; return one report of all, and how many have failed."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", **HELD)
    if not options.all_cores:
        os.environ.update(dict.fromkeys(THREADS, "1"))
    arguments = ["--seconds", str(options.seconds), "--limit", str(options.limit)]
    arguments += ["--batch-seconds", str(options.batch_seconds)]
    arguments += ["--batches", str(options.batches), *(["--quick"] if options.quick else [])]
    arguments += ["--all-cores"] if options.all_cores else []
    merged: dict[str, Any] | None = None
    failures = 0
    for adapter in progress(options.adapters, is_master=True):
        try:
            received = launch_all(
                Path(__file__).resolve(), list(sizes(options)), [adapter, *arguments], options.limit
            )
        except SystemExit as problem:  # the others shall be measured all the same
            print(f"{adapter}: {problem}", file=sys.stderr)
            failures += 1
            continue
        if merged is None:
            merged = received
            continue
        merged["notes"] += [note for note in received["notes"] if note not in merged["notes"]]
        for mine, theirs in zip(merged["runs"], received["runs"], strict=True):
            mine["cases"] += theirs["cases"]
            mine["bars"] += theirs["bars"]
    return merged, failures


def available() -> list[str]:
    """Return the adapters whose frameworks this environment has."""
    return [
        adapter
        for adapter, (_, modules) in TRAINERS.items()
        if all(importlib.util.find_spec(module) is not None for module in modules)
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("adapters", nargs="*", metavar="ADAPTER", help=f"of {', '.join(TRAINERS)}")
    option(
        "--seconds", type=float, default=36.0, help="of measuring; half of it for two (default 36)"
    )
    option("--batches", type=int, default=16, help="of an epoch (default 16)")
    option(
        "--batch-seconds",
        type=float,
        default=BATCH_SECONDS,
        metavar="SECONDS",
        help=f"of a batch, at least {BATCH_SECONDS} (the default)",
    )
    option("--all-cores", action="store_true", help="measure one worker that is pinned to no core")
    option("--quick", action="store_true", help="measure for 5 seconds")
    option("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    option("--silent", action="store_true", help="print no tables")
    option("--limit", type=float, default=900.0, metavar="SECONDS", help="of one job")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.adapters if name not in TRAINERS]
    if unknown:
        parser.error(f"expected adapters of {', '.join(TRAINERS)}, received {', '.join(unknown)}")
    if options.batches < 1:
        parser.error(f"argument --batches: expected 1 or more, received {options.batches}")
    if not BATCH_SECONDS <= options.batch_seconds < 10:
        parser.error(f"expected batches of {BATCH_SECONDS} to 10 s, got {options.batch_seconds}")
    options.adapters = options.adapters or available()
    if not options.adapters:
        parser.error("expected one of the frameworks in this environment, found none")
    if options.quick:
        options.seconds = min(options.seconds, 5.0)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see the text at the top of this file.

    Parameters
    ----------
    arguments : list of str, optional
        The command line without the program's name; `sys.argv` if not given.

    Returns
    -------
    int
        1 if an adapter could not be measured.
    """
    options = parse(arguments)
    failures = 0
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK")):
        measured = measure(options)
    else:
        measured, failures = measure_all(options)
    if measured is not None:
        if options.json is not None:
            options.json.write_text(json.dumps(measured, indent=1))
        if not options.silent:
            report.show(measured)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
