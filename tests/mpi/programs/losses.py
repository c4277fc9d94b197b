"""Ranks that continue after one is killed; ``losses.py NAME ...`` runs a function below."""

import os
import sys
import time

import numpy as np
import worker
from survivors import Acknowledged, counts_of, meet

import multiverso as mv

#: Elements of the table: several stripes, each with its own lock.
SIZE = 40_000
ROWS = 64
#: Adds of each worker to each of the two tables, and the number between two collective calls.
ADDS = 600
BETWEEN = 50
#: The number of bits that count one worker's adds.
BITS = 15


def goes_on(folder):
    """Add to two tables, with collective calls, and report them after a rank is killed."""
    mv.init(on_peer_lost="continue")
    whole = mv.ArrayTableHandler(SIZE, dtype="int64", name="whole")
    rows = mv.MatrixTableHandler(ROWS, 100, dtype="int64", name="rows")
    mine = 1 << (BITS * worker.RANK)
    delta = np.full(SIZE, mine)
    row_delta = np.full((2, 100), mine)
    acknowledged = Acknowledged()
    worker.announce("busy")
    for number in range(ADDS):
        whole.add(delta)
        acknowledged.note(0)
        rows.add(row_delta, [number % ROWS, (number + 7) % ROWS])
        acknowledged.note(1)
        if number % BETWEEN == 0:
            meet(number // BETWEEN, least=3)
    worker.announce("added")
    worker.wait_for("killed")
    mv.barrier()
    worker.report(lost=mv.lost_ranks(), master=mv.is_master_worker())
    values, sums = whole.get(), rows.get().sum(axis=0)
    worker.report(least=counts_of(values.min(), BITS), most=counts_of(values.max(), BITS))
    worker.report(rows=counts_of(sums[0], BITS))
    mv.save(folder)
    late = mv.ArrayTableHandler(10, 5)
    late.add(np.ones(10))
    mv.barrier()
    worker.report(late=late.get().tolist(), barrier=True)
    mv.shutdown()
    worker.report(ended=True)


def names_the_dead():
    """Add in rounds until a rank is killed, and report when and how this rank learns of it."""
    mv.init(True)
    table = mv.ArrayTableHandler(1000, name="rounds")
    worker.announce("busy")
    try:
        while True:
            table.add(np.ones(1000))
            table.get()
    except mv.PeerLostError as error:
        worker.report(error=["PeerLostError", str(error)], at=time.monotonic())


def is_stopped(patience):
    """Wait in a barrier for rank 1, which is suspended meanwhile."""
    mv.init(peer_timeout=float(patience))
    worker.announce("ready")
    if worker.RANK == 1:
        worker.wait_for("stopped")  # and makes no progress until it resumes
    worker.report_call(mv.barrier)


def loses_nodes(mode, patience):
    """Use rows on other nodes, some of which die; report the errors of that and of a barrier."""
    mv.init(mode == "sync", peer_timeout=float(patience), timeout=600.0)
    table = mv.MatrixTableHandler(10, 3, name="spread")
    table.add(np.ones((10, 3)))
    table.get()
    mv.barrier()
    worker.announce("ready")
    worker.wait_for("killed")
    worker.report_call(lambda: (table.add(np.ones((10, 3))), table.get()), name="call")
    worker.announce("called")
    worker.report_call(mv.barrier, name="barrier")


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    if "shielded" in arguments:
        arguments.remove("shielded")
        worker.shield()
    worker.begin()
    globals()[name](*arguments)
    # A killed rank cannot finalize MPI either.
    if name in ("names_the_dead", "loses_nodes"):
        sys.stdout.flush()
        os._exit(0)
