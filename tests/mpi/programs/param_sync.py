"""What each rank sees of arrays that all workers train."""

import sys

import numpy as np
import worker

worker.begin()

import multiverso as mv  # noqa: E402
from multiverso.sync import ParamSync  # noqa: E402

ROUNDS = 30


def make(me):
    """Return arrays of every kind, different on each worker."""
    whole = np.full((6, 50), me, np.float32)
    return [
        np.full((300, 70), me, np.float32),
        np.full(3, me, np.float64),
        np.full(5, me, np.float16),
        whole[:, ::2],
        np.full((), me, np.int64),
    ]


def all_equal(arrays, number):
    return all(bool(np.all(a == number)) for a in arrays)


def sums(in_step):
    """All start from the master's values and end with everybody's gains."""
    me, workers = mv.worker_id(), mv.num_workers()
    arrays = make(me + 10)
    sync = ParamSync(arrays)
    worker.report(starts=all_equal(arrays, 10))
    always = True
    for turn in range(1, ROUNDS + 1):
        for a in arrays:
            a += me + 1
        sync.sync()
        always &= all_equal(arrays, 10 + turn * workers * (workers + 1) / 2)
    mv.barrier()
    tables = [table.get(sync=True) for table in sync.tables]
    end = 10 + ROUNDS * workers * (workers + 1) / 2
    worker.report(always=always or not in_step, tables=all_equal(tables, end))
    if not in_step:
        sync.sync()
        worker.report(always=all_equal(arrays, end))
        mv.barrier()


def wrong_on_one(arrays):
    """Rank 0 has something else than the others; report what they get, and that all go on."""
    worker.report_call(lambda: ParamSync(arrays if mv.rank() == 0 else [np.zeros(2), np.zeros(3)]))
    weights = np.zeros(3)
    sync = ParamSync([weights])
    weights += 1
    sync.sync()
    mv.barrier()
    sync.sync()
    worker.report(after=weights.tolist())


def roles():
    """Rank 0 only keeps the table: it takes part in the making, and cannot sync."""
    weights = np.full(3, mv.rank(), np.float64)
    sync = ParamSync([weights])
    worker.report(start=weights.tolist())
    worker.report_call(sync.sync)
    mv.barrier()


scenario = sys.argv[1]
options = {"sync": {"sync": True}, "stale": {"staleness": 2}}.get(scenario, {})
with mv.session(role="server" if scenario == "roles" and worker.RANK == 0 else "all", **options):
    if scenario in ("async", "sync", "stale"):
        sums(in_step=scenario == "sync")
    elif scenario == "empty":
        wrong_on_one([])
    elif scenario == "all empty":
        worker.report_call(lambda: ParamSync([]))
        mv.barrier()
    elif scenario == "layout":
        wrong_on_one([np.zeros(3), np.zeros(2)])
    elif scenario == "dtypes":
        wrong_on_one([np.zeros(2), np.zeros(3, np.float32)])
    else:
        roles()
