"""Measure parts of tables and shared counters against windows of MPI.

    python benchmarks/shared_arrays.py                     2 and 4 workers
    python benchmarks/shared_arrays.py --ranks 2 --quick   fewer samples
    mpirun -np 4 python benchmarks/shared_arrays.py        the ranks of this job

All workers add square patches of a matrix at random places, or get them, or count. The windows have
the rows divided over the ranks, in shared memory, with one Lock_all and the hints that allow the
fastest accumulate. "Shared window + lock" is what one writes instead: NumPy on the memory of all
ranks, under one lock. Samples alternate, because the speed of a machine drifts: ratios are
comparable between runs and machines, times less so.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv
import report
from comparisons import OURS, Case
from environment import describe
from mpirun_jobs import launch_all, progress
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, find_mpi
from samples import Effort, Statement, alternate

_SIDE = 2048  # rows and columns of the matrix
_PATCHES = (8, 64, 256)
_STATEMENTS = {
    "add part": {
        OURS: "table.add(patch, index=next(indices))",
        "MPI Accumulate": "owner, target = next(targets);"
        " window.Accumulate(patch, owner, target, add); window.Flush(owner)",
        "shared window + lock": "lock.Lock(0); shared[next(indices)] += patch; lock.Unlock(0)",
    },
    "get part": {
        OURS: "table.get(index=next(indices), out=patch)",
        "MPI Get": "owner, target = next(targets);"
        " window.Get(patch, owner, target); window.Flush(owner)",
        "shared window + lock": "lock.Lock(0); patch[:] = shared[next(indices)]; lock.Unlock(0)",
    },
    "fetch_add": {
        OURS: "counter.fetch_add(0)",
        "MPI Fetch_and_op": "count_window.Fetch_and_op(one, before, 0); count_window.Flush(0)",
        "shared window + lock": "lock.Lock(0); counts[0] += 1; lock.Unlock(0)",
    },
}


class Windows:
    """A matrix and a counter in windows of MPI, and a window whose lock protects both."""

    def __init__(self, ranks: Ranks) -> None:
        self.mpi, self._comm = ranks.mpi, ranks.comm
        self.rows = _SIDE // ranks.size  # of each rank
        self.window, matrix = self._allocate(self.rows * _SIDE * 4, 4)
        self.shared = matrix.view(np.float32).reshape(-1, _SIDE)
        self.count_window, counts = self._allocate(8 if ranks.is_master else 0, 8)
        self.counts = counts.view(np.int64)
        self.lock = self.mpi.Win.Allocate_shared(0, 1, comm=self._comm)
        for window in (self.window, self.count_window):
            window.Lock_all()

    def _allocate(self, count: int, unit: int) -> tuple[Any, np.ndarray[Any, Any]]:
        """Return a window with `count` bytes on this rank, and the zeros of all ranks."""
        info = self.mpi.Info.Create({"accumulate_ops": "same_op", "accumulate_ordering": "none"})
        window = self.mpi.Win.Allocate_shared(count, unit, info, self._comm)
        info.Free()
        total = self._comm.allreduce(count)
        memory = window.Shared_query(0)[0].address
        shared = np.asarray(self.mpi.memory.fromaddress(memory, total))
        window.tomemory()[:] = bytes(count)
        self._comm.Barrier()
        return window, shared

    def target_of(self, row: int, column: int, side: int) -> tuple[int, tuple[int, int, Any]]:
        """Return the owner and the place in its window of a patch that has one owner."""
        kind = self.mpi.FLOAT.Create_vector(side, side, _SIDE).Commit()
        return row // self.rows, (row % self.rows * _SIDE + column, 1, kind)

    def free(self) -> None:
        """Free the windows. Collective."""
        for window in (self.window, self.count_window):
            window.Unlock_all()
        for window in (self.window, self.count_window, self.lock):
            window.Free()


def _measure_case(
    ranks: Ranks, windows: Windows, effort: Effort, operation: str, side: int
) -> Case:
    """Measure an operation on patches of `side` x `side`, or on a counter."""
    rng = np.random.default_rng((ranks.rank, side))
    owners = rng.integers(0, ranks.size, 64)
    rows = owners * windows.rows + rng.integers(0, windows.rows - side, 64)
    places = list(zip(rows.tolist(), rng.integers(0, _SIDE - side, 64).tolist(), strict=True))
    names: dict[str, Any] = {
        "patch": np.full((side, side), 1e-3, np.float32),
        "one": np.ones(1, np.int64),
        "before": np.zeros(1, np.int64),
        "add": ranks.mpi.SUM,
        "table": mv.MatrixTable(_SIDE, _SIDE),
        "counter": mv.ArrayTable(1, dtype="int64"),
        **vars(windows),
    }
    if ranks.is_master:
        names["table"].add(np.ones((_SIDE, _SIDE), np.float32))  # touches every page
    names["targets"] = itertools.cycle([windows.target_of(*place, side) for place in places])
    candidates = []
    for name, statement in _STATEMENTS[operation].items():
        indices = itertools.cycle(
            [np.s_[row : row + side, col : col + side] for row, col in places]
        )
        own_names = {**names, "indices": indices}
        candidates.append(Statement(name, statement, ranks.size, **own_names))
    size = 1 if operation == "fetch_add" else side * side
    return Case(operation, size, alternate(candidates, ranks, effort))


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    if mpi is None:
        raise SystemExit(problem)
    ranks = Ranks(mpi)
    effort = Effort.for_ranks(ranks.size, options.quick)
    steps = [(name, side) for name in ("add part", "get part") for side in _PATCHES]
    cases = []
    windows = Windows(ranks)
    with mv.session():
        for operation, side in progress([*steps, ("fetch_add", 1)], ranks.is_master):
            cases.append(_measure_case(ranks, windows, effort, operation, side))
    windows.free()
    if not ranks.is_master:
        return None
    run = report.to_json(cases, [], ranks.size)
    return {"environment": describe(mpi), "notes": [], "runs": [run]}


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    parser = make_parser(__doc__)
    number = positive(int)
    parser.add_argument("--ranks", type=number, nargs="+", metavar="N", default=[2, 4])
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the speeds to FILE.png")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one mpirun")
    options = parser.parse_args()
    if find_launcher():
        measured = _measure(options)
    else:
        arguments = forwarded(options, "quick")
        script = Path(__file__).resolve()
        measured = launch_all(script, options.ranks, arguments, options.limit)
    deliver(measured, options, report.show, report.plot_bars)


if __name__ == "__main__":
    main()
