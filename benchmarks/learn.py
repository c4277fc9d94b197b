"""Measure multiverso.learn: against plain Keras, with two workers, against mpi_learn's protocol.

    python benchmarks/learn.py                        all of it, some minutes
    python benchmarks/learn.py --quick                a quick look
    python benchmarks/learn.py --backend jax --json out.json

In one job of three ranks, a master and two workers that are pinned to a core each, all are timed in
turns, sample by sample, because the speed of a machine drifts: the ratios can be compared between
runs and machines, the times less so. A step of training is a batch of 100 images with Adam: in the
convolutional network of examples/mpi_learn, or with --model wide in a dense one of 0.92 million
parameters, where there is little computing for what is exchanged. An update is Adam's on 1e6
parameters in 8 arrays, without a model. It needs two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import json
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
from launcher import launch
from ranks import Ranks, Span, find_mpi
from samples import Effort, Statement, alternate

if TYPE_CHECKING:
    from samples import Candidate

_RANKS = 3
_PARAMETERS, _ARRAYS = 1_000_000, 8


class Update:
    """An update of multiverso.learn by rank 1: count it, give the gradient, take the parameters."""

    name = OURS
    statement = "counter.add_get(one, out=count); table.add_get(gradient, out=weights)"
    workers = 1

    def __init__(self, ranks: Ranks, size: int) -> None:
        table = mv.ArrayTableHandler(size, updater="adam")
        counter = mv.ArrayTableHandler(1, dtype="int64")
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
        """Make so many updates; None on all ranks but the worker."""
        return self._statement.run(calls) if self._worker else None


def pin(rank: int) -> str | None:
    """Pin the workers to a core each; return what is wrong if there are too few."""
    if not hasattr(os, "sched_setaffinity"):
        return "the workers are not pinned, since this system cannot do that"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _RANKS - 1:
        return f"both workers are pinned to the same core: there is {len(cores)} only"
    if rank:
        os.sched_setaffinity(0, {cores[(rank - 1) % len(cores)]})
    return None


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure with the ranks of this process's job; the report on the master, else None."""
    mpi, _ = find_mpi()
    ranks = Ranks(mpi)
    if ranks.size != _RANKS:
        raise SystemExit(f"expected a job of {_RANKS} ranks, received {ranks.size}")
    problem = pin(ranks.rank)
    from multiverso.learn import choose_backend

    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "NPROC"):
        os.environ[name] = "1"  # a core is all that a worker has
    backend = choose_backend(options.backend)
    from learn_steps import KerasAlone, ThroughTheServer
    from mpi_learn_protocol import MasterOfMessages

    # A sample of steps is long: a time slice that somebody else has must not count.
    steps = Effort(0.3, 3.0, 3, 5) if options.quick else Effort(1.0, 30.0, 9, 15)
    calls = Effort.for_ranks(_RANKS, options.quick)
    if options.sample is not None:
        steps, calls = (replace(one, sample_seconds=options.sample) for one in (steps, calls))
    candidates: list[Candidate] = [
        ThroughTheServer(ranks, options.model, 1),
        KerasAlone(ranks, options.model),
        ThroughTheServer(ranks, options.model, 2),
    ]
    one, alone, two = alternate(candidates, ranks, steps)
    size = _PARAMETERS // _ARRAYS
    with mv.session():
        candidates = [
            Update(ranks, _PARAMETERS),
            MasterOfMessages(ranks, [size] * _ARRAYS),
        ]
        updates = alternate(candidates, ranks, calls)
    if not ranks.is_master:
        return None
    single = [Case("training step", 0, [one, alone]), Case("update", _PARAMETERS, updates)]
    double = [Case("training step", 0, [two, replace(one, name="one worker")])]
    runs = [
        report.to_json(cases, judge(cases, workers, LEARN_BARS), workers)
        for workers, cases in ((1, single), (2, double))
    ]
    notes = [
        f"the model {options.model}, Keras on {backend}, a thread for each worker",
        *([problem] if problem else []),
    ]
    return {"environment": describe(mpi), "notes": notes, "runs": runs}


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("jax", "tensorflow", "torch"), help="of Keras")
    parser.add_argument("--model", choices=("mnist", "wide"), default="mnist", help="(mnist)")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--sample", type=float, metavar="SECONDS", help="least time of a sample")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--silent", action="store_true", help="print no tables")
    parser.add_argument(
        "--limit", type=float, default=900.0, metavar="SECONDS", help="of the run of mpirun"
    )
    parsed = parser.parse_args(arguments)
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
    if launched:
        try:
            measured = _measure(options)
        except Exception:
            # The other ranks are waiting for this one, and MPI would not tell them.
            traceback.print_exc()
            find_mpi()[0].COMM_WORLD.Abort(1)
            raise
    else:
        passed_on = ["--model", options.model, *(["--quick"] if options.quick else [])]
        passed_on += ["--sample", str(options.sample)] if options.sample is not None else []
        passed_on += ["--backend", options.backend] if options.backend else []
        measured = launch(Path(__file__).resolve(), _RANKS, passed_on, options.limit)
    if measured is None:
        return
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1))
    if not options.silent:
        report.show(measured)


if __name__ == "__main__":
    main()
