"""Measure a round of sync mode, and aggregate, against the allreduces of MPI, gloo and DeepSpeed.

    python benchmarks/sync.py                       2 and 4 workers
    python benchmarks/sync.py --ranks 2 --quick     fewer samples
    python benchmarks/sync.py --json F --plot F.png every sample, and a plot
    mpirun -np 4 python benchmarks/sync.py          the ranks of this job

A round is one `add_get` by every worker: each adds a delta and receives the parameters with the
deltas of all workers. A zero-copy round does the same in the table's own memory. The references sum
an array over the workers in place, as a synchronous program would. "Allreduce + np.add" is the
complete replacement of a round: an allreduce that keeps the delta, and an add to each worker's own
parameters. Samples alternate, because the speed of a machine drifts: ratios are comparable between
runs and machines, times less so. gloo is measured if torch is installed, and DeepSpeed's allreduce
in shared memory if deepspeed and ninja are; its first use compiles it, which takes two minutes.
DeepSpeed's ranks keep their cores while they wait, so it is slow with more ranks than cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import uuid
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
import report
from bars import SYNC_BARS, judge
from comparisons import OURS, Case
from environment import describe
from gloo import gloo
from mpirun_jobs import launch_all, progress
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, find_mpi
from samples import Candidate, Effort, Statement, alternate

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
_QUICK_SIZES = [1_000, 1_000_000, 10_000_000]
_WORKER_COUNTS = [2, 4]
_OPERATIONS = ("round", "zero-copy round", "aggregate")


@contextlib.contextmanager
def _deepspeed(ranks: Ranks, torch: Any) -> Iterator[tuple[Any, str | None]]:
    """Yield DeepSpeed's allreduce in shared memory, or None and the reason."""
    problem = None
    if torch is None:
        problem = "no DeepSpeed: torch is not installed"
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # it reports what it finds on this machine
                from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder
            if find_spec("ninja") is None:
                problem = "no DeepSpeed: ninja is not installed"
        except ImportError:
            problem = "no DeepSpeed: deepspeed is not installed"
    problems = [other for other in ranks.gather(problem) if other is not None]
    if problems or ranks.size == 1:
        yield None, problems[0] if problems else None
        return
    # The ranks find each other's memory by these variables, whose values no other job may have.
    address = ranks.gather(f"multiverso-{uuid.uuid4().hex}")[0]
    os.environ.update(MASTER_ADDR=address, MASTER_PORT="0", LOCAL_SIZE=str(ranks.size))
    with contextlib.redirect_stdout(sys.stderr):
        library = ShareMemCommBuilder().load(verbose=False)
    ranks.barrier()
    library.initialize(ranks.size, ranks.rank)
    ranks.barrier()  # every rank has mapped the memory, which DeepSpeed does not remove
    for left in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{address}_0_{ranks.rank}"):
        left.unlink()
    yield torch.ops.deepspeed.inference_all_reduce_, None


def _references(
    ranks: Ranks, torch: Any, deepspeed: Any, operation: str, size: int
) -> list[Candidate]:
    """Return the references, which sum arrays of `size` float32 zeros over the ranks."""
    candidates: list[Candidate] = []
    if ranks.comm is not None:
        names = {"comm": ranks.comm, "in_place": ranks.mpi.IN_PLACE}
        names["values"] = np.zeros(size, np.float32)
        statement = "comm.Allreduce(in_place, values)"
        candidates.append(Statement("MPI Allreduce", statement, ranks.size, **names))
        if operation != "aggregate":
            arrays = {name: np.zeros(size, np.float32) for name in ("delta", "total", "parameters")}
            statement = "comm.Allreduce(delta, total); np.add(parameters, total, out=parameters)"
            names = {"comm": ranks.comm, "np": np, **arrays}
            candidates.append(Statement("Allreduce + np.add", statement, ranks.size, **names))
    if torch is not None:
        names = {"reduce": torch.distributed.all_reduce, "values": torch.zeros(size)}
        statement = "reduce(values)"
        candidates.append(Statement("gloo allreduce", statement, ranks.size, **names))
    if deepspeed is not None:
        names = {"reduce": deepspeed, "values": torch.zeros(size)}
        candidates.append(Statement("DeepSpeed allreduce", statement, ranks.size, **names))
    return candidates


def _multiverso(operation: str, workers: int, size: int) -> Statement:
    if operation == "aggregate":
        values = np.zeros(size, np.float32)
        return Statement(OURS, "mv.aggregate(values)", workers, mv=mv, values=values)
    table = mv.ArrayTable(size)
    if operation == "zero-copy round":
        table.delta_buffer().fill(1e-3)
        statement = "table.add(table.delta_buffer()); table.view()"
        return Statement(OURS, statement, workers, table=table)
    delta, out = np.full(size, 1e-3, np.float32), np.ones(size, np.float32)
    names = {"table": table, "delta": delta, "out": out}
    return Statement(OURS, "table.add_get(delta, out=out)", workers, **names)


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, problem = find_mpi()
    ranks = Ranks(mpi)
    effort = Effort.for_ranks(ranks.size, options.quick)
    if options.sample is not None:
        effort = replace(effort, sample_seconds=options.sample)
    sizes = options.sizes or (_QUICK_SIZES if options.quick else _SIZES)
    cases = []
    with (
        mv.session(sync=True),
        gloo(ranks) as (torch, without_gloo),
        _deepspeed(ranks, torch) as (deepspeed, without_deepspeed),
    ):
        steps = [(operation, size) for operation in _OPERATIONS for size in sizes]
        for operation, size in progress(steps, ranks.is_master):
            ours = _multiverso(operation, ranks.size, size)
            candidates = [ours, *_references(ranks, torch, deepspeed, operation, size)]
            cases.append(Case(operation, size, alternate(candidates, ranks, effort)))
    if not ranks.is_master:
        return None
    run = report.to_json(cases, judge(cases, ranks.size, SYNC_BARS), ranks.size)
    notes = [note for note in (problem, without_gloo, without_deepspeed) if note is not None]
    return {"environment": describe(mpi), "notes": notes, "runs": [run]}


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    option, number = parser.add_argument, positive(int)
    option("--ranks", type=number, nargs="+", metavar="N", help="numbers of ranks to measure")
    option("--sizes", type=number, nargs="+", metavar="N", help="elements of the arrays")
    option("--quick", action="store_true", help="fewer sizes and samples")
    option(
        "--sample",
        type=positive(float),
        metavar="SECONDS",
        help="shortest sample; use 0.002 and the best samples on a machine that is never idle",
    )
    option("--plot", type=Path, metavar="FILE", help="plot the speeds to FILE.png")
    option("--limit", type=float, default=1800.0, metavar="SECONDS", help="for one mpirun")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if find_launcher() or options.ranks == [1]:
        measured = _measure(options)
    else:
        arguments = forwarded(options, "quick", "sample", "sizes")
        rank_counts = options.ranks or _WORKER_COUNTS
        measured = launch_all(Path(__file__).resolve(), rank_counts, arguments, options.limit)
    deliver(measured, options, report.show, report.plot)


if __name__ == "__main__":
    main()
