"""Measure table operations against the same operations in C, NumPy and MPI.

    python benchmarks/tables.py                    one worker
    mpirun -np 4 python benchmarks/tables.py       four workers at once
    python benchmarks/tables.py --ranks 1 2 4      one after the other

Samples of Multiverso and its references alternate, because the speed of a machine drifts: ratios
are comparable between runs and machines; times are less so.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import multiverso as mv
import report
from bars import judge
from c_threads import compile_c_threads
from comparisons import Bench, Case, plan
from environment import describe
from mpirun_jobs import launch_all, progress
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, find_mpi
from samples import Effort

_SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
_QUICK_SIZES = [1_000, 1_000_000, 10_000_000]


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    option, number = parser.add_argument, positive(int)
    option("--ranks", type=number, nargs="+", metavar="N", help="numbers of ranks to measure")
    option("--sizes", type=number, nargs="+", metavar="N", help="elements of the array tables")
    option("--num-row", type=number, default=1_000_000, metavar="N", help="rows of the matrix")
    option("--quick", action="store_true", help="fewer sizes and samples")
    option("--plot", type=Path, metavar="FILE", help="plot the speeds to FILE.png")
    option("--limit", type=float, default=1800.0, metavar="SECONDS", help="for one mpirun")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    library = compile_c_threads() if ranks.is_master else None
    has_c = ranks.gather(library is not None)[0]
    notes = [] if problem is None else [problem]
    if not has_c:
        notes.append("no C threads: no C compiler was found")
    if mpi is not None and ranks.size == 1:
        notes.append("no Send/Recv server: it needs two ranks")
    sizes = options.sizes or (_QUICK_SIZES if options.quick else _SIZES)
    bench = Bench(ranks, Effort.for_ranks(ranks.size, options.quick), library, has_c)
    cases: list[Case] = []
    with mv.session():
        measurements = list(plan(bench, sizes, options.num_row))
        for measure_case in progress(measurements, ranks.is_master):
            cases.append(measure_case())
    if not ranks.is_master:
        return None
    run = report.to_json(cases, judge(cases, ranks.size), ranks.size)
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if options.ranks:
        arguments = forwarded(options, "num_row", "quick", "sizes")
        measured = launch_all(Path(__file__).resolve(), options.ranks, arguments, options.limit)
    else:
        measured = _measure(options)
    deliver(measured, options, report.show, report.plot)


if __name__ == "__main__":
    main()
