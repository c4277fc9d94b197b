"""Measure a table on a disk: gets of uniform rows, training steps, and a restart.

    python benchmarks/tables_on_disk.py --folder /data --gigabytes 4
    python benchmarks/tables_on_disk.py --in-memory --gigabytes 4

A row has 64 floats, and a batch 8 192 ids. Gets of uniform ids alternate with a loop that asks the
kernel for the pages of as many rows, and then reads a byte of each. A step gets the rows of a batch
whose ids follow Zipf's law with exponent 1.05, most popular first, and adds to them; the rows
of the next batch are read meanwhile. With --in-memory, the table lies in memory, and only steps are
measured. To see what happens when the table is larger than the memory, run it in a control group.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import multiverso as mv
from environment import describe
from options import deliver, make_parser, positive
from report import print_environment, print_table

COLUMNS = 64
ROW_BYTES = 4 * COLUMNS
BATCH = 8192
EXPONENT = 1.05
ROUNDS = 5
FILL = 65_536  # rows of one add

Ids = NDArray[np.int64]


def zipf(rng: np.random.Generator, rows: int) -> Ids:
    """Return the different ids of a batch, from the continuous law that is nearly the same."""
    power = 1 - EXPONENT
    places = (1 + rng.random(BATCH) * (rows**power - 1)) ** (1 / power)
    return np.unique(np.clip(places.astype(np.int64), 1, rows) - 1)


def create(options: argparse.Namespace, folder: str | None) -> mv.MatrixTable:
    """Create the table, and give all rows memory or room on the disk."""
    rows = int(options.gigabytes * 1e9) // ROW_BYTES
    zeros = mv.initializers.Zeros()
    table = mv.MatrixTable(
        rows, COLUMNS, zeros, updater="rowwise_adagrad", name="rows", backing=folder
    )
    if not table.reopened:
        for first in range(0, rows, FILL):
            ids = np.arange(first, min(first + FILL, rows))
            table.add(np.full((len(ids), COLUMNS), 1e-3, np.float32), ids)
    return table


def forget(file: Path) -> None:
    """Have the kernel drop the pages of a file from memory."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages_per_second(options: argparse.Namespace, table: mv.MatrixTable, file: Path) -> list[float]:
    """Return the rows per second of gets, relative to the loop, in alternation."""
    library = ctypes.CDLL(None, use_errno=True)
    madvise = library.madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    rng = np.random.default_rng(1)
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as pages:
        pages.madvise(mmap.MADV_RANDOM)
        content = np.frombuffer(pages, np.uint8)
        start = content.ctypes.data

        def loop(ids: Ids) -> None:
            chosen = ids * ROW_BYTES // mmap.PAGESIZE * mmap.PAGESIZE
            for page in (start + chosen).tolist():
                madvise(page, mmap.PAGESIZE, mmap.MADV_WILLNEED)
            content[chosen].sum()  # noqa: F821  # it is deleted after the last call

        def speed(call: Any) -> float:
            forget(file)
            begin = now = time.perf_counter()
            count = 0
            while now < begin + options.seconds:
                call(rng.integers(0, table.num_row, BATCH))
                count += BATCH
                now = time.perf_counter()
            return count / (now - begin)

        ratios = [speed(table.get) / speed(loop) for _ in range(ROUNDS)]
        del content
    return ratios


def measure_steps(options: argparse.Namespace, table: mv.MatrixTable) -> dict[str, float]:
    """Return the median time of a step, and the longest add, in seconds."""
    rng = np.random.default_rng(2)
    steps: list[float] = []
    adds: list[float] = []
    before_steps = {} if options.in_memory else table.stats()
    ids = zipf(rng, table.num_row)
    rows = table.get_async(ids)
    until = time.perf_counter() + 2 * options.seconds
    begin = time.perf_counter()
    while begin < until:
        values = rows.result()
        following = zipf(rng, table.num_row)
        rows = table.get_async(following)
        before = time.perf_counter()
        table.add(1e-3 * values, ids)
        now = time.perf_counter()
        adds.append(now - before)
        steps.append(now - begin)
        ids, begin = following, now
    rows.result()
    measured = {
        "step_seconds": statistics.median(steps[len(steps) // 3 :]),
        "longest_add": max(adds),
    }
    for name, count in before_steps.items():
        measured[f"{name}_per_step"] = (table.stats()[name] - count) / len(steps)
    return measured


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report."""
    measured: dict[str, Any] = {
        "environment": describe(None),
        "notes": [f"{options.gigabytes:g} GB in {'memory' if options.in_memory else 'files'}"],
    }
    if options.in_memory:
        with mv.session():
            return measured | measure_steps(options, create(options, None))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder, "node-0", "rows")
        with mv.session():
            create(options, folder)
        forget(file)
        with mv.session():
            begin = time.perf_counter()
            table = create(options, folder)
            table.get([table.num_row // 2])
            measured["restart_seconds"] = time.perf_counter() - begin
            measured["gets_against_loop"] = pages_per_second(options, table, file)
            measured |= measure_steps(options, table)
    return measured


def show(measured: dict[str, Any]) -> None:
    """Print the report."""
    print_environment(measured)
    rows = []
    if ratios := measured.get("gets_against_loop"):
        ratio = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append(["uniform gets, rows per second against the loop", ratio])
        rows.append(["first get after a restart, ms", f"{1e3 * measured['restart_seconds']:.1f}"])
    rows.append(["step, ms", f"{1e3 * measured['step_seconds']:.2f}"])
    for name in ("pages_read", "pages_written"):
        if (pages := measured.get(f"{name}_per_step")) is not None:
            rows.append([f"{name.replace('_', ' ')} in a step", f"{pages:.0f}"])
    rows.append(["longest add, ms", f"{1e3 * measured['longest_add']:.1f}"])
    print_table("A table on a disk", ["what", "measured"], rows)


def parse() -> argparse.Namespace:
    """Return the command-line options."""
    parser = make_parser(__doc__)
    option = parser.add_argument
    option("--gigabytes", type=positive(float), default=2.0, help="of rows")
    option("--seconds", type=positive(float), default=5.0, help="for each run")
    option("--folder", default=None, help="where to make the folder of the table")
    option("--in-memory", action="store_true", help="measure steps of a table in memory")
    return parser.parse_args()


def main() -> None:
    """Measure, and report as the options request."""
    options = parse()
    deliver(measure(options), options, show)


if __name__ == "__main__":
    main()
