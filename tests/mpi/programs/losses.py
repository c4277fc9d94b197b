"""Ranks that lose others; ``losses.py NAME ...`` runs one of the functions below."""

import os
import sys
import time
import zlib

import numpy as np
import worker
from survivors import Acknowledged, counts_of, meet

import multiverso as mv

#: Elements of the table: several stripes, and several chunks for each server.
SIZE = 40_000
ROWS = 64
#: Adds of each worker to each of the two tables, and the number between two collective calls.
ADDS = 400
BETWEEN = 40
#: The number of bits that count one worker's adds.
BITS = 60 // worker.SIZE


def continues(folder, leaver="-1"):
    """Add to tables, with collective calls, and report the tables after some ranks are killed."""
    mv.init(on_peer_lost="continue")
    whole = mv.ArrayTableHandler(SIZE, dtype="int64", name="whole")
    rows = mv.MatrixTableHandler(ROWS, 100, dtype="int64", name="rows")
    mine = 1 << (BITS * worker.RANK)
    delta = np.full(SIZE, mine)
    row_delta = np.full((2, 100), mine)
    acknowledged = Acknowledged()
    broken = [0, 0]
    worker.announce("busy")
    for number in range(ADDS):
        if number == ADDS // 3 and worker.RANK == int(leaver):
            sys.exit(3)  # without a message
        if _add(lambda: whole.add(delta), broken, 0):
            acknowledged.note(0)
        ids = [number % ROWS, (number + ROWS // 2) % ROWS]
        if _add(lambda ids=ids: rows.add(row_delta, ids), broken, 1):
            acknowledged.note(1)
        if number % BETWEEN == 0:
            meet(number // BETWEEN, least=1, sync=True)
            _check_own(whole, acknowledged.counts[0], broken[0])
    worker.announce("added")
    worker.wait_for("killed")
    mv.barrier()
    worker.report(lost=mv.lost_ranks(), master=mv.is_master_worker(), broken=broken)
    values = whole.get(sync=True)
    sums = rows.get().sum(axis=0)
    worker.report(
        least=counts_of(values.min(), BITS),
        most=counts_of(values.max(), BITS),
        rows=counts_of(sums[0], BITS),
    )
    worker.report(digest=zlib.crc32(values.tobytes()))
    mv.save(folder)
    mv.load(folder)
    late = mv.ArrayTableHandler(10, 5)
    late.add(np.ones(10))
    mv.barrier()
    worker.report(late=late.get().tolist(), again=counts_of(whole.get().min(), BITS))
    mv.shutdown()
    worker.report(ended=True)


def saves(folder):
    """Save and load repeatedly, and shut down, while a rank is killed."""
    mv.init(on_peer_lost="continue")
    table = mv.MatrixTableHandler(ROWS, 100, 3, name="rows")
    worker.announce("busy")
    for number in range(8):
        for call in (mv.save, mv.load):
            _until_all_have(lambda call=call: call(folder))
        if number % 2 == 0:
            _until_all_have(lambda: mv.save(folder, background=True))
            _until_all_have(mv.wait_for_save)
    worker.report(values=[float(table.get().min()), float(table.get().max())])
    mv.shutdown()
    worker.report(ended=True)


def _until_all_have(call):
    """Repeat a collective call that failed on all ranks because one was lost during it."""
    while True:
        try:
            call()
        except mv.PeerLostError:
            continue
        return


def loses_a_node(folder):
    """Report the errors of calls after the only rank of node 1 has been killed."""
    mv.init(on_peer_lost="continue")
    table = mv.MatrixTableHandler(9, 4, name="spread")
    table.add(np.ones((9, 4)))
    mv.save(folder)
    mv.barrier()
    worker.announce("busy")
    worker.wait_for("killed")
    worker.report_call(table.add, np.ones((9, 4)), name="add")
    worker.report_call(table.get, name="get")
    worker.report_call(mv.barrier, name="barrier")


def _add(call, broken, table):
    """Make an add, which may stay partial if the server that handles it dies."""
    try:
        call()
    except mv.PeerLostError as error:
        if "may be there" not in str(error) or error.rank is None:
            raise
        broken[table] += 1
        return False
    return True


def _check_own(table, count, broken):
    """Every acknowledged add of this worker is readable exactly once."""
    values = table.get()
    for value in (values.min(), values.max()):
        assert count <= counts_of(value, BITS)[worker.RANK] <= count + broken


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
