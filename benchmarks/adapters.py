"""Measure the overhead of each adapter for one worker, and the speed-up of two workers.

    python benchmarks/adapters.py                          all adapters of this environment
    python benchmarks/adapters.py torch keras-torch        selected adapters
    python benchmarks/adapters.py torch --quick --json F   few samples, and a report
    python benchmarks/adapters.py --all-cores              one worker, on all cores

Each adapter trains a small convolutional network, with batches of at least 20 ms, in a job of one
rank and then in a job of two, with one core for each rank. The first job alternates between epochs
that sync after every batch and epochs without Multiverso, because the speed of a machine drifts.
The second alternates between both workers, one worker, and both workers without Multiverso; these
last epochs show what the machine gives two independent processes. Ratios have 95 % confidence
intervals and are comparable between runs and machines; times are less so. With --all-cores only the
first job runs, on all cores and with the framework's default number of threads.

Batches that turn out too short, because the machine has sped up, are enlarged and measured again.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from mpirun_jobs import launch_all, progress
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser, positive
from pinned import pin
from ranks import Ranks, Span, find_mpi
from samples import Effort, alternate
from trainers import TRAINERS

if TYPE_CHECKING:
    from trainers import Trainer

WORKERS = 2
RANKS = (1, WORKERS)  # in the two jobs
#: The bars: longest time of an epoch relative to plain training, and lowest throughput of two
#: workers relative to one.
MAX_TIME_RATIO_TO_PLAIN = 1.02
MIN_SPEED_RATIO_TO_ONE = 1.9

BATCH_SECONDS = 0.02  # shortest batch for which the bars apply
MARGIN = 1.25  # calibration aims at batches longer by this factor
SYNCED, PLAIN, ONE, BOTH_PLAIN = "with Multiverso", "plain training", "one worker", "both plain"
#: Frameworks that ignore the pinning take their number of threads from these variables.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NPROC", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
#: By default glibc's malloc returns memory to the system after some batches and not after others,
#: which costs up to 2 ms of page faults per batch in either candidate. These settings make it keep
#: its memory; other C libraries ignore them.
MALLOC_SETTINGS = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
MAX_ATTEMPTS = 4  # measurements until the batches are long enough


class Epochs:
    """Epochs by the first `workers` ranks; `batches` is the number of batches and their size."""

    statement = ""

    def __init__(
        self, name: str, trainer: Trainer, batches: tuple[int, int], workers: int, *, synced: bool
    ) -> None:
        self.name = name
        self.workers = workers
        self._trainer = trainer
        self._num_batches, self._batch_size = batches
        self._synced = synced
        self.batch_seconds: list[float] = []  # seconds per batch in each run, by `clock`

    def run(self, calls: int) -> Span | None:
        """Train for `calls` epochs and return the span."""
        if mv.worker_id() >= self.workers:
            return None
        batches = calls * self._num_batches
        begin, before = time.perf_counter(), clock()
        self._trainer.train(batches, self._batch_size, synced=self._synced)
        end = time.perf_counter()
        self.batch_seconds.append((clock() - before) / batches)
        return Span(begin, end)


def clock() -> float:
    """Return the current time, in seconds, for measuring batches.

    On one core it is the processor time, which other processes do not affect. On several cores
    threads compute in parallel, so only the wall clock is right.
    """
    return time.process_time() if len(os.sched_getaffinity(0)) == 1 else time.perf_counter()


def seconds_of_batch(trainer: Trainer, batch_size: int) -> float:
    """Return the time of a batch of plain training without the fixed cost of an epoch."""

    def seconds(batches: int) -> float:
        begin = clock()
        trainer.train(batches, batch_size, synced=False)
        return clock() - begin

    for batches in (2, 6):  # compiles, possibly for each length
        seconds(batches)
    return min((seconds(6) - seconds(2)) / 4 for _ in range(2))


def calibrate(trainer: Trainer, ranks: Ranks, minimum: float) -> int:
    """Return the size of a batch that takes a little more than `minimum` seconds."""
    size, target = 16, MARGIN * minimum
    for _ in range(6):  # far more attempts than the search needs, unless the speed changes
        seconds = max(min(ranks.gather(seconds_of_batch(trainer, size))), 1e-4)
        if minimum <= seconds <= 1.5 * minimum or (size == 1 and seconds > target):
            break
        size = max(1, round(size * min(target / seconds, 8.0)))
    return size


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure one adapter with the ranks of this job; return the report on the master."""
    (adapter,) = options.adapters
    if not options.all_cores:
        pin()
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    expected = job_sizes(options)
    if ranks.size not in expected:
        raise SystemExit(f"expected {' or '.join(map(str, expected))} ranks, received {ranks.size}")
    cores = set(ranks.gather(min(os.sched_getaffinity(0))))
    if len(cores) != ranks.size:
        raise SystemExit(f"expected a core for each of {ranks.size} ranks, received {len(cores)}")
    with mv.session(timeout=options.limit):
        trainer = TRAINERS[adapter][0]()
        size = calibrate(trainer, ranks, options.batch_seconds)
        for _ in range(MAX_ATTEMPTS):
            notes, case, bar, seconds = measure_batches(options, trainer, size, ranks)
            if seconds >= options.batch_seconds:
                break
            size = max(size + 1, round(size * MARGIN * options.batch_seconds / seconds))
        else:
            notes.append(f"{adapter}: batches of {1e3 * seconds:.1f} ms are too short")
    if not ranks.is_master:
        return None
    cases = [case]
    return {
        "environment": describe(mpi),
        "notes": [*notes, *([problem] if problem else [])],
        "runs": [report.to_json(cases, judge(cases, ranks.size, (bar,)), ranks.size)],
    }


def job_sizes(options: argparse.Namespace) -> tuple[int, ...]:
    """Return the number of ranks of each job."""
    return RANKS[:1] if options.all_cores else RANKS


def measure_batches(
    options: argparse.Namespace, trainer: Trainer, batch_size: int, ranks: Ranks
) -> tuple[list[str], Case, Bar, float]:
    """Measure with batches of this size; also return their shortest median time on any rank."""
    (adapter,) = options.adapters
    batches = (options.batches, batch_size)
    for synced in (True, False):  # compiles
        trainer.train(*batches, synced=synced)
    seconds, min_rounds = options.seconds / ranks.size, 3 if options.quick else 9
    effort = Effort(options.batch_seconds, seconds, min_rounds=min_rounds, max_rounds=201)
    measure_job = measure_one if ranks.size == 1 else measure_both
    notes, case, bar, plain = measure_job(adapter, trainer, batches, ranks, effort)
    return notes, case, bar, min(ranks.gather(statistics.median(plain.batch_seconds)))


def measure_one(
    adapter: str, trainer: Trainer, batches: tuple[int, int], ranks: Ranks, effort: Effort
) -> tuple[list[str], Case, Bar, Epochs]:
    """Measure the overhead of syncs for one worker; also return the plain candidate."""
    synced = Epochs(SYNCED, trainer, batches, 1, synced=True)
    without = Epochs(PLAIN, trainer, batches, 1, synced=False)
    series = alternate([synced, without], ranks, effort, warms=False)
    # The first runs, of which each candidate has a different number, only chose the sample size.
    pairs = zip(synced.batch_seconds[::-1], without.batch_seconds[::-1], strict=False)
    batch = 1e3 * statistics.median(without.batch_seconds)
    overhead = 1e3 * statistics.median(with_sync - plain for with_sync, plain in pairs)
    cores = len(os.sched_getaffinity(0))
    note = (
        f"{adapter}: {trainer.num_parameters:,} parameters, batches of {batches[1]},"
        f" {'processor time' if cores == 1 else f'on {cores} cores'}:"
        f" {batch:.1f} ms per batch, {overhead:.2f} ms per sync ({overhead / batch:.1%})"
    )
    bar = Bar(adapter, 0, PLAIN, 1, 1 / MAX_TIME_RATIO_TO_PLAIN)
    return [note], Case(adapter, 0, series), bar, without


def measure_both(
    adapter: str, trainer: Trainer, batches: tuple[int, int], ranks: Ranks, effort: Effort
) -> tuple[list[str], Case, Bar, Epochs]:
    """Measure the speed-up of two workers; also return the plain candidate."""
    without = Epochs(BOTH_PLAIN, trainer, batches, WORKERS, synced=False)
    candidates = [
        Epochs(f"{WORKERS} workers", trainer, batches, WORKERS, synced=True),
        Epochs(ONE, trainer, batches, 1, synced=True),
        without,
    ]
    series = alternate(candidates, ranks, effort, warms=False)
    bar = Bar(adapter, 0, ONE, WORKERS, MIN_SPEED_RATIO_TO_ONE)
    return [], Case(adapter, 0, series), bar, without


def measure_all(options: argparse.Namespace) -> tuple[dict[str, Any] | None, int]:
    """Start the jobs of each adapter; return the merged report and the number of failures."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", **MALLOC_SETTINGS)
    if not options.all_cores:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    arguments = forwarded(
        options, "seconds", "limit", "batch_seconds", "batches", "quick", "all_cores"
    )
    merged: dict[str, Any] | None = None
    failures = 0
    for adapter in progress(options.adapters, is_master=True):
        try:
            received = launch_all(
                Path(__file__).resolve(),
                list(job_sizes(options)),
                [adapter, *arguments],
                options.limit,
            )
        except SystemExit as problem:  # the other adapters are still measured
            print(f"{adapter}: {problem}", file=sys.stderr)
            failures += 1
            continue
        if merged is None:
            merged = received
            continue
        merged["notes"] += [note for note in received["notes"] if note not in merged["notes"]]
        for run, other in zip(merged["runs"], received["runs"], strict=True):
            run["cases"] += other["cases"]
            run["bars"] += other["bars"]
    return merged, failures


def available() -> list[str]:
    """Return the adapters whose frameworks are installed."""
    return [
        adapter
        for adapter, (_, modules) in TRAINERS.items()
        if all(importlib.util.find_spec(module) is not None for module in modules)
    ]


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    option = parser.add_argument
    option("adapters", nargs="*", metavar="ADAPTER", help=", ".join(TRAINERS))
    option("--seconds", type=float, default=36.0, help="of measuring one worker (default 36)")
    option("--batches", type=positive(int), default=16, help="per epoch (default 16)")
    option(
        "--batch-seconds",
        type=float,
        default=BATCH_SECONDS,
        metavar="SECONDS",
        help="shortest batch (default and minimum %(default)s)",
    )
    option("--all-cores", action="store_true", help="measure one worker without pinning")
    option("--quick", action="store_true", help="measure for 5 seconds")
    option("--limit", type=float, default=900.0, metavar="SECONDS", help="for one job")
    options = parser.parse_args()
    unknown = [name for name in options.adapters if name not in TRAINERS]
    if unknown:
        parser.error(f"expected adapters of {', '.join(TRAINERS)}, received {', '.join(unknown)}")
    if not BATCH_SECONDS <= options.batch_seconds < 10:
        parser.error(f"expected batches of {BATCH_SECONDS} to 10 s, not {options.batch_seconds}")
    options.adapters = options.adapters or available()
    if not options.adapters:
        parser.error("expected a supported framework in this environment, found none")
    if options.quick:
        options.seconds = min(options.seconds, 5.0)
    return options


def main() -> int:
    """Run the benchmark; return 1 if an adapter could not be measured."""
    options = parse()
    measured, failures = (measure(options), 0) if find_launcher() else measure_all(options)
    deliver(measured, options, report.show)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
