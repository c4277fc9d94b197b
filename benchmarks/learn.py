"""Measure multiverso.learn with one and two workers, against plain Keras and mpi_learn's protocol.

    python benchmarks/learn.py                        takes some minutes
    python benchmarks/learn.py --quick                fewer samples
    python benchmarks/learn.py --backend jax --json out.json

One job has three ranks: a master, and two workers that are pinned to one core each. Samples
alternate, because the speed of a machine drifts: ratios are comparable between runs and machines,
times are less so. A training step is a batch of 100 images with Adam, for the convolutional network
of examples/mpi_learn, or, with --model wide, for a dense network of 0.92 million parameters that
exchanges much and computes little. An update is a step of Adam on 1e6 parameters in 8 arrays,
without a model. The benchmark needs two idle cores.
"""

from __future__ import annotations

import argparse
import os
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multiverso as mv
import report
from bars import LEARN_BARS, judge
from comparisons import OURS, Case
from environment import describe
from mpirun_jobs import launch
from multiverso._mpi.launcher import find_launcher
from options import deliver, forwarded, make_parser, positive
from ranks import Ranks, Span, find_mpi
from samples import Effort, Statement, alternate

if TYPE_CHECKING:
    from samples import Candidate

_NUM_RANKS = 3
_NUM_PARAMETERS, _NUM_ARRAYS = 1_000_000, 8


class Update:
    """An update of multiverso.learn by rank 1: count it, add the gradient, get the parameters."""

    name = OURS
    statement = "counter.add_get(one, out=count); table.add_get(gradient, out=weights)"
    workers = 1

    def __init__(self, ranks: Ranks, size: int) -> None:
        table = mv.ArrayTable(size, updater="adam")
        counter = mv.ArrayTable(1, dtype="int64")
        self._worker = ranks.rank == 1
        self._statement = Statement(
            self.name,
            self.statement,
            1,
            table=table,
            counter=counter,
            one=np.ones(1, np.int64),
            count=np.zeros(1, np.int64),
            gradient=np.full(size, 1e-3, np.float32),
            weights=np.zeros(size, np.float32),
        )

    def run(self, calls: int) -> Span | None:
        """Make `calls` updates; return None except on the worker."""
        return self._statement.run(calls) if self._worker else None


def pin_worker(rank: int) -> str | None:
    """Pin this rank to one core if it is a worker; return a note if that is impossible."""
    if not hasattr(os, "sched_setaffinity"):
        return "the workers are not pinned: this system does not support it"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _NUM_RANKS - 1:
        return f"both workers share a core: expected {_NUM_RANKS - 1} cores, received {len(cores)}"
    if rank > 0:
        os.sched_setaffinity(0, {cores[(rank - 1) % len(cores)]})
    return None


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this job; return the report on the master, else None."""
    mpi, _ = find_mpi()
    ranks = Ranks(mpi)
    if ranks.size != _NUM_RANKS:
        raise SystemExit(f"expected a job of {_NUM_RANKS} ranks, received {ranks.size}")
    problem = pin_worker(ranks.rank)
    from multiverso.learn import choose_backend

    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "NPROC"):
        os.environ[name] = "1"  # each worker has one core
    backend = choose_backend(options.backend)
    from learn_steps import LearnTraining, PlainTraining
    from mpi_learn_protocol import MpiLearnUpdate

    # Samples of steps are long, so that a time slice of another process does not matter.
    step_effort = Effort(sample_seconds=1.0, case_seconds=30.0, min_rounds=9, max_rounds=15)
    if options.quick:
        step_effort = Effort(sample_seconds=0.3, case_seconds=3.0, min_rounds=3, max_rounds=5)
    update_effort = Effort.for_ranks(_NUM_RANKS, options.quick)
    if options.sample is not None:
        step_effort = replace(step_effort, sample_seconds=options.sample)
        update_effort = replace(update_effort, sample_seconds=options.sample)
    candidates: list[Candidate] = [
        LearnTraining(ranks, options.model, 1),
        PlainTraining(ranks, options.model),
        LearnTraining(ranks, options.model, 2),
    ]
    one_worker, plain, two_workers = alternate(candidates, ranks, step_effort)
    sizes = [_NUM_PARAMETERS // _NUM_ARRAYS] * _NUM_ARRAYS
    with mv.session():
        candidates = [Update(ranks, _NUM_PARAMETERS), MpiLearnUpdate(ranks, sizes)]
        updates = alternate(candidates, ranks, update_effort)
    if not ranks.is_master:
        return None
    steps = Case("training step", 0, [one_worker, plain])
    parallel_steps = Case("training step", 0, [two_workers, replace(one_worker, name="one worker")])
    runs = [
        report.to_json(cases, judge(cases, workers, LEARN_BARS), workers)
        for workers, cases in (
            (1, [steps, Case("update", _NUM_PARAMETERS, updates)]),
            (2, [parallel_steps]),
        )
    ]
    notes = [
        f"the model {options.model}, Keras on {backend}, a thread for each worker",
        *([problem] if problem else []),
    ]
    return {"environment": describe(mpi), "notes": notes, "runs": runs}


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    option = parser.add_argument
    option("--backend", choices=("jax", "tensorflow", "torch"), help="backend of Keras")
    option("--model", choices=("mnist", "wide"), default="mnist", help="(default mnist)")
    option("--quick", action="store_true", help="fewer samples")
    option("--sample", type=positive(float), metavar="SECONDS", help="shortest sample")
    option("--limit", type=float, default=900.0, metavar="SECONDS", help="for mpirun")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark; see the text at the top of this file."""
    options = _parse()
    if find_launcher():
        try:
            measured = _measure(options)
        except Exception:
            # The other ranks wait for this one, and MPI would not tell them that it has failed.
            traceback.print_exc()
            find_mpi()[0].COMM_WORLD.Abort(1)
            raise
    else:
        arguments = forwarded(options, "model", "quick", "sample", "backend")
        measured = launch(Path(__file__).resolve(), _NUM_RANKS, arguments, options.limit)
    deliver(measured, options, report.show)


if __name__ == "__main__":
    main()
