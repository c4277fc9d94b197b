"""Ranks of a job without MPI: ``local_jobs.py FUNCTION`` runs one of the functions below."""

import os
import sys
from pathlib import Path

import numpy as np
import worker

import multiverso as mv
from multiverso._local.job import find_local_job

LAST = worker.SIZE - 1


def several_sessions():
    """Use tables in several sessions and report whether this process has loaded an MPI."""
    for number in range(3):
        with mv.session(sync=number == 1, timeout=30):
            table = mv.ArrayTableHandler(1000)
            table.add(np.full(1000, mv.rank() + 1))
            total = mv.aggregate(np.array([1.0]))
            mv.barrier()
            assert np.all(table.get() == worker.SIZE * (worker.SIZE + 1) / 2)
            assert total[0] == worker.SIZE
    maps = Path("/proc/self/maps").read_text("ascii")
    modules = {"mpi4py", "mpi4py.MPI"} & set(sys.modules)
    worker.report(
        has_mpi="libmpi" in maps or bool(modules),
        ranks=[mv.local_rank(), find_local_job().rank, worker.RANK],
    )


def one_never_calls_init(how):
    """Open a session that the last rank does not join, because it waits or dies."""
    if worker.RANK < LAST:
        worker.report_call(lambda: mv.init(start_timeout=1))
    elif how == "dies":
        os._exit(0)
    if how == "waits":
        worker.meet("over")


def spans_nodes():
    """Open a session whose ranks are to act as several nodes."""
    worker.report_call(lambda: mv.init(timeout=5))


if __name__ == "__main__":
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
