"""Ranks of elastic jobs: ``elastic.py FUNCTION ...`` runs one of the functions below."""

import os
import sys
import time

import numpy as np
import worker

import multiverso as mv
from multiverso.api import current_session
from multiverso.sync import ParamSync

IS_JOINER = "MULTIVERSO_JOIN" in os.environ
ITEMS = 200
TIMEOUT = 60


def begin():
    """Open or join the session; reports and announcements have the rank in the session."""
    # Other tests on this machine have sessions too.
    mv.init(timeout=TIMEOUT, name=os.path.basename(os.environ["MULTIVERSO_TEST_JOB"]))
    worker.RANK = mv.rank()
    worker.begin()


def wait_until(condition):
    """Wait until the condition is true."""
    deadline = time.monotonic() + worker.WAIT_TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, current_session().membership()
        time.sleep(0.005)


def shares_items(victim):
    """Do items of work; the victim dies with an item, and all wait for its replacement."""
    size = worker.SIZE
    begin()
    counts = mv.ArrayTableHandler(ITEMS, dtype="int32")
    for number, item in enumerate(mv.Work(range(ITEMS), lease=3600)):
        if mv.rank() == int(victim) and number == 2:
            worker.announce("holding")
            worker.wait_for_kill()  # the test kills this process
        counts.fetch_add(item)
        time.sleep(0.001)
    if IS_JOINER:
        worker.announce("worked")
    else:
        worker.wait_for("worked", size)
    worker.report(counts=counts.get().tolist(), is_joiner=IS_JOINER, local_rank=mv.local_rank())
    mv.shutdown()


def joins(size):
    """Add and meet in epochs with all of `size` ranks; then all but rank 0 leave."""
    begin()
    events = []
    current_session().on_membership(events.append)
    table = mv.ArrayTableHandler(1000, 1)
    table.add(np.ones(1000))
    worker.announce("busy")
    wait_until(lambda: len(current_session().membership().joined) == int(size))
    sums = []
    for _ in range(3):
        mv.barrier()
        sums.append(table.get().tolist()[0])
        mv.barrier()
    membership = current_session().membership()
    worker.report(
        sums=sums,
        numbers=[mv.num_workers(), mv.size(), mv.worker_id()],
        membership=membership,
        workers=membership.workers,
        is_master=mv.is_master_worker(),
    )
    mv.barrier()
    if mv.rank() != 0:
        current_session().leave()
        worker.report_call(mv.barrier)
        return
    wait_until(lambda: events and events[-1].workers == (0,))
    mv.barrier()
    worker.report(
        left=[mv.num_workers(), mv.size(), current_session().lost_ranks()],
        versions=[event.version for event in events],
    )
    mv.shutdown()


def averages():
    """Sync averaged deltas of 12 per worker, alone, with a joiner, and alone again."""
    begin()
    weights, counts = np.zeros(1000, np.float32), np.zeros(3)
    steps = np.zeros(2, np.int64)
    sync = ParamSync([weights, counts, steps], average=True)
    assert (weights == (12 if IS_JOINER else 0)).all()
    worker.announce("busy")
    if not IS_JOINER:
        weights += 12
        sync.sync()
        worker.announce("synced")
        wait_until(lambda: mv.num_workers() == 2)
    mv.barrier()
    weights += 12
    counts -= 2
    steps += 5 if mv.is_master_worker() else 7
    sync.sync()
    mv.barrier()
    sync.sync()
    seen = [float(weights[0]), float(counts[0])]
    assert (steps == 5).all(), steps
    mv.barrier()
    if not IS_JOINER:
        wait_until(lambda: mv.num_workers() == 1)
        weights += 12
        sync.sync()
        seen.append(float(weights[0]))
    worker.report(seen=seen)
    mv.shutdown()


def master_leaves():
    """Make a table and a `ParamSync` after rank 0, the master, has left."""
    begin()
    mv.barrier()
    if mv.rank() == 0:
        current_session().leave()
        return
    wait_until(lambda: mv.num_workers() == 1)
    weights = np.full(5, 7.0)
    sync = ParamSync([weights])
    table = mv.ArrayTableHandler(3, 5)
    worker.report(
        master=mv.is_master_worker(),
        values=[float(array[0]) for array in (sync.tables[0].get(), table.get(), weights)],
    )
    mv.shutdown()


def stays():
    """Stay in the session until the test ends the job."""
    begin()
    worker.announce("busy")
    worker.wait_for_kill()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
