"""Measure tables against what the machine, NumPy and MPI do for the same operation.

    python benchmarks/tables.py                    one worker
    mpirun -np 4 python benchmarks/tables.py       four at once
    python benchmarks/tables.py --ranks 1 2 4      all of them, one after the other

Multiverso and its references are timed in turns, sample by sample, because the speed of a machine
drifts: the ratios can be compared between runs and machines, the times less so.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import multiverso as mv
import report
from bars import judge
from c_threads import compile_helper
from comparisons import Bench, Case, plan
from environment import describe
from launcher import launch_all, progress
from ranks import Ranks, find_mpi
from samples import Effort

_SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
_QUICK_SIZES = [1_000, 1_000_000, 10_000_000]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", metavar="N", help="start mpirun with each of these numbers"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", metavar="N", help="elements of the array tables"
    )
    parser.add_argument(
        "--num-row", type=int, default=1_000_000, metavar="N", help="rows of the matrix table"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the speeds to FILE.png")
    parser.add_argument("--silent", action="store_true", help="print no tables")
    parser.add_argument(
        "--limit", type=float, default=1800.0, metavar="SECONDS", help="of one run of mpirun"
    )
    parsed = parser.parse_args(arguments)
    for value in [*(parsed.ranks or []), *(parsed.sizes or []), parsed.num_row]:
        if value < 1:
            parser.error(f"expected numbers of at least 1, received {value}")
    return parsed


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this process's job; the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    library = compile_helper() if ranks.is_master else None
    has_c = ranks.gather(library is not None)[0]
    notes = [] if problem is None else [problem]
    if not has_c:
        notes.append("without C threads, since no C compiler was found")
    if mpi is not None and ranks.size == 1:
        notes.append("one worker: without the Send/Recv server, which needs two ranks")
    sizes = options.sizes or (_QUICK_SIZES if options.quick else _SIZES)
    bench = Bench(ranks, Effort.for_ranks(ranks.size, options.quick), library, has_c)
    cases: list[Case] = []
    with mv.session():
        steps = list(plan(bench, sizes, options.num_row))
        for step in progress(steps, ranks.is_master):
            cases.append(step[1]())
    if not ranks.is_master:
        return None
    run = report.to_json(cases, judge(cases, ranks.size), ranks.size)
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def _launch_all(options: argparse.Namespace) -> dict[str, Any]:
    """Measure with each of the given numbers of ranks and return one report of all."""
    arguments = ["--num-row", str(options.num_row), *(["--quick"] if options.quick else [])]
    if options.sizes:
        arguments += ["--sizes", *map(str, options.sizes)]
    return launch_all(Path(__file__).resolve(), options.ranks, arguments, options.limit)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; see the text at the top of this file.

    Parameters
    ----------
    arguments : list of str, optional
        The command line without the program's name; `sys.argv` if not given.
    """
    options = _parse(arguments)
    measured = _launch_all(options) if options.ranks else _measure(options)
    if measured is None:
        return
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1))
    if options.plot is not None:
        report.plot(measured, options.plot)
    if not options.silent:
        report.show(measured)


if __name__ == "__main__":
    main()
