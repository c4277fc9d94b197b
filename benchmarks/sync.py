"""Measure a round of sync mode, and aggregate, against the allreduces of MPI and of gloo.

    python benchmarks/sync.py                       with 2 and with 4 workers
    python benchmarks/sync.py --ranks 2 --quick     a quick look
    python benchmarks/sync.py --json F --plot F.png every sample, and a picture
    mpirun -np 4 python benchmarks/sync.py          as the ranks of this job

A round is one `add_get` by every worker: each gives a delta and receives the parameters with
everybody's in them. The references sum an array over the workers in place, which is what a
synchronous program would use them for. Beside a round stands also what it replaces: an allreduce
that keeps the delta, and the sum added to parameters of each worker's own.
All are timed in turns, sample by sample, because the speed of a machine drifts: the ratios can be
compared between runs and machines, the times less so. gloo is measured where torch is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
import report
from bars import SYNC_BARS, judge
from comparisons import OURS, Case
from environment import describe
from launcher import launch_all, progress
from ranks import Ranks, find_mpi
from samples import Candidate, Effort, Statement, alternate

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
_QUICK_SIZES = [1_000, 1_000_000, 10_000_000]
_WORKERS = [2, 4]


@contextlib.contextmanager
def _gloo(ranks: Ranks) -> Iterator[tuple[Any, str | None]]:
    """Yield torch with a gloo group of all ranks, or None and why there is none."""
    try:
        import torch
        from torch import distributed
    except ImportError:
        problem = "without gloo, since torch is not installed"
        torch = None
    else:
        problem = None if distributed.is_gloo_available() else "without gloo, which torch lacks"
    problems = [one for one in ranks.gather(problem) if one is not None]
    if problems or ranks.size == 1:
        yield None, problems[0] if problems else None
        return
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        folder = None
        if ranks.is_master:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="multiverso-gloo-"))
        store = distributed.FileStore(os.path.join(ranks.gather(folder)[0], "store"), ranks.size)
        distributed.init_process_group("gloo", store=store, rank=ranks.rank, world_size=ranks.size)
        try:
            yield torch, None
            ranks.meet()
        finally:
            distributed.destroy_process_group()


def _references(ranks: Ranks, torch: Any, operation: str, size: int) -> list[Candidate]:
    """Return what sums `size` float32 over the ranks: zeros, which stay zeros."""
    candidates: list[Candidate] = []
    if ranks.comm is not None:
        names = {"comm": ranks.comm, "in_place": ranks.mpi.IN_PLACE}
        names["values"] = np.zeros(size, np.float32)
        statement = "comm.Allreduce(in_place, values)"
        candidates.append(Statement("MPI Allreduce", statement, ranks.size, **names))
        if operation == "round":
            arrays = {name: np.zeros(size, np.float32) for name in ("delta", "total", "parameters")}
            statement = "comm.Allreduce(delta, total); np.add(parameters, total, out=parameters)"
            names = {"comm": ranks.comm, "np": np, **arrays}
            candidates.append(Statement("Allreduce + np.add", statement, ranks.size, **names))
    if torch is not None:
        names = {"reduce": torch.distributed.all_reduce, "values": torch.zeros(size)}
        statement = "reduce(values)"
        candidates.append(Statement("gloo allreduce", statement, ranks.size, **names))
    return candidates


def _ours(operation: str, workers: int, size: int) -> Statement:
    if operation == "aggregate":
        values = np.zeros(size, np.float32)
        return Statement(OURS, "mv.aggregate(values)", workers, mv=mv, values=values)
    table = mv.ArrayTableHandler(size)
    delta, out = np.full(size, 1e-3, np.float32), np.ones(size, np.float32)
    names = {"table": table, "delta": delta, "out": out}
    return Statement(OURS, "table.add_get(delta, out=out)", workers, **names)


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this process's job; the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    effort = Effort.for_ranks(ranks.size, options.quick)
    if options.sample is not None:
        effort = replace(effort, sample_seconds=options.sample)
    sizes = options.sizes or (_QUICK_SIZES if options.quick else _SIZES)
    cases = []
    with mv.session(sync=True), _gloo(ranks) as (torch, without_gloo):
        steps = [(operation, size) for operation in ("round", "aggregate") for size in sizes]
        for operation, size in progress(steps, ranks.is_master):
            ours = _ours(operation, ranks.size, size)
            candidates = [ours, *_references(ranks, torch, operation, size)]
            cases.append(Case(operation, size, alternate(candidates, ranks, effort)))
    if not ranks.is_master:
        return None
    run = report.to_json(cases, judge(cases, ranks.size, SYNC_BARS), ranks.size)
    notes = [note for note in (problem, without_gloo) if note is not None]
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", metavar="N", help="start mpirun with each of these numbers"
    )
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="elements of the arrays")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    parser.add_argument(
        "--sample",
        type=float,
        metavar="SECONDS",
        help="least time of a sample; 0.002 on a machine that is never quiet, to compare at best",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the speeds to FILE.png")
    parser.add_argument("--silent", action="store_true", help="print no tables")
    parser.add_argument(
        "--limit", type=float, default=1800.0, metavar="SECONDS", help="of one run of mpirun"
    )
    parsed = parser.parse_args(arguments)
    for value in [*(parsed.ranks or []), *(parsed.sizes or [])]:
        if value < 1:
            parser.error(f"expected numbers of at least 1, received {value}")
    if parsed.sample is not None and not 0 < parsed.sample < float("inf"):
        parser.error(f"--sample: expected seconds above 0, received {parsed.sample}")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; see the text at the top of this file.

    Parameters
    ----------
    arguments : list of str, optional
        The command line without the program's name; `sys.argv` if not given.
    """
    options = _parse(arguments)
    launched = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK"))
    if launched or options.ranks == [1]:
        measured = _measure(options)
    else:
        passed_on = ["--quick"] if options.quick else []
        if options.sample is not None:
            passed_on += ["--sample", str(options.sample)]
        if options.sizes:
            passed_on += ["--sizes", *map(str, options.sizes)]
        ranks = options.ranks or _WORKERS
        measured = launch_all(Path(__file__).resolve(), ranks, passed_on, options.limit)
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
