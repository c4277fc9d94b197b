"""Ranks that lose other ranks: ``losses.py FUNCTION ...`` runs one of the functions below."""

import os
import sys
import time
import zlib

import numpy as np
import worker
from survivors import Acknowledged, counts_of, make_collective_call

import multiverso as mv
from multiverso.api import current_session

#: Elements of the array: several stripes, and several chunks for each server.
SIZE = 40_000
ROWS = 64
#: The items that workers share.
ITEMS = 200
#: Adds of each worker to each of the two tables, and to each between two collective calls.
ADDS = 400
ADDS_BETWEEN_CALLS = 40
#: The number of bits of an element that count the adds of one worker; the lowest are worker 0's.
BITS = 60 // worker.SIZE
LAST = worker.SIZE - 1


def continues(folder, leaver="-1"):
    """Add to two tables; report them after ranks are killed, or `leaver` has ended its script."""
    mv.init(on_peer_lost="continue")
    whole = mv.ArrayTableHandler(SIZE, name="whole", dtype="int64")
    rows = mv.MatrixTableHandler(ROWS, 100, name="rows", dtype="int64")
    one = 1 << (BITS * worker.RANK)
    delta = np.full(SIZE, one)
    row_delta = np.full((2, 100), one)
    acknowledged = Acknowledged()
    worker.announce("busy")
    for step in range(ADDS):
        if step == ADDS // 3 and worker.RANK == int(leaver):
            sys.exit(3)  # without a message
        whole.add(delta)
        acknowledged.count(0)
        ids = [step % ROWS, (step + ROWS // 2) % ROWS]
        rows.add(row_delta, ids)
        acknowledged.count(1)
        if step % ADDS_BETWEEN_CALLS == 0:
            make_collective_call(step // ADDS_BETWEEN_CALLS, min_workers=1, sync=True)
            values = whole.get()
            for value in (values.min(), values.max()):
                assert counts_of(value, BITS)[worker.RANK] == acknowledged.counts[0]
    worker.announce("added")
    worker.wait_for("killed")
    mv.barrier()
    worker.report(lost=current_session().lost_ranks(), master=mv.is_master_worker())
    values = whole.get(sync=True)
    worker.report(
        min_counts=counts_of(values.min(), BITS),
        max_counts=counts_of(values.max(), BITS),
        row_counts=counts_of(rows.get().sum(axis=0)[0], BITS),
    )
    worker.report(digest=zlib.crc32(values.tobytes()))
    mv.save(folder)
    mv.load(folder)
    new_table = mv.ArrayTableHandler(10, 5)
    new_table.add(np.ones(10))
    mv.barrier()
    worker.report(new_table=new_table.get().tolist(), reloaded=counts_of(whole.get().min(), BITS))
    mv.shutdown()
    worker.report(ended=True)


def shares_items(victims, when):
    """Do the items of a `Work`; the victims stop with an item, or are killed at random."""
    mv.init(on_peer_lost="continue")
    counts = mv.ArrayTableHandler(ITEMS, dtype="int32", name="counts")
    victims = [int(victim) for victim in victims.split(",")]
    work = mv.Work(range(ITEMS), lease=3600)
    if when == "random":
        worker.announce("busy")
    for number, item in enumerate(work):
        if when == "holding" and worker.RANK in victims and number == 2:
            worker.announce("busy")
            worker.wait_for_kill(timeout=40)  # the test kills this process
        counts.fetch_add(item)
        time.sleep(0.001)
    if worker.RANK in victims:
        # MPI_Finalize would wait forever for a rank that is killed in it.
        worker.wait_for_kill(timeout=40)
    worker.report(lost=current_session().lost_ranks(), counts=counts.get().tolist())
    mv.shutdown()
    worker.report(ended=True)


def small_aggregates_with_a_dying_leader(victim, failpoint):
    """Aggregate small arrays until a rank dies, which leads its node; report the last array."""
    mv.init()
    if int(victim) == worker.RANK:
        os.environ["MULTIVERSO_FAILPOINTS"] = failpoint
    values = np.empty(0)

    def aggregate():
        nonlocal values
        for count in range(1000):
            values = np.full(1000, worker.RANK + 1.0)
            mv.aggregate(values)
            assert (values == 10).all(), count

    worker.report_call(aggregate)
    worker.report(values=sorted(set(values.tolist())))
    # A survivor that ends is named by slower ones.
    worker.wait_for("end")


def names_the_dead():
    """Add in rounds until a rank is killed, and report the error and when this rank got it."""
    mv.init(True)
    table = mv.ArrayTableHandler(1000, name="rounds")
    worker.announce("busy")
    try:
        while True:
            table.add(np.ones(1000))
            table.get()
    except mv.PeerLostError as error:
        worker.report(error=["PeerLostError", str(error)], error_time=time.monotonic())


def creates_with_a_dying_maker(failpoint):
    """Create a table while rank 0 dies, which has made its memory."""
    mv.init(on_peer_lost="continue")
    mv.barrier()
    # The others open the memory a second later, when rank 0 has voted that it has mapped its own.
    os.environ["MULTIVERSO_FAILPOINTS"] = failpoint if worker.RANK == 0 else "table.map@1=sleep"
    worker.report_call(mv.ArrayTableHandler, 1000, 1.0)
    table = mv.ArrayTableHandler(1000, 2.0)
    worker.report(lost=current_session().lost_ranks(), sum=float(table.get().sum()))
    mv.shutdown()
    worker.report(ended=True)


def waits_for_a_suspended_rank(peer_timeout):
    """Wait in a barrier for rank 1, which the test suspends before it arrives."""
    mv.init(peer_timeout=float(peer_timeout))
    worker.announce("ready")
    if worker.RANK == 1:
        worker.wait_for("suspended")
    worker.report_call(mv.barrier)


def closes(mode):
    """Shut down with rank 1, the leader of another node, which dies when all have met."""
    timeout = 60.0
    mv.init(mode == "sync", timeout=timeout, peer_timeout=4.0)
    table = mv.ArrayTableHandler(1000, name="w")
    table.add(np.ones(1000))
    mv.barrier()
    if worker.RANK == 1:
        os.environ["MULTIVERSO_FAILPOINTS"] = "close.met@1=kill"
    began = time.monotonic()
    mv.shutdown()
    worker.report(waited_to_the_end=time.monotonic() - began > timeout)


def loses_nodes(mode, peer_timeout, end=None):
    """Use rows on nodes of which some die, then call a barrier; report the errors of both calls.

    A survivor that ends is named by slower ones, so it may wait for the announcement `end`.
    """
    mv.init(mode == "sync", peer_timeout=float(peer_timeout), timeout=600.0)
    table = mv.MatrixTableHandler(10, 3, name="spread")
    table.add(np.ones((10, 3)))
    table.get()
    mv.barrier()
    worker.announce("ready")
    worker.wait_for("killed")
    worker.report_call(lambda: (table.add(np.ones((10, 3))), table.get()), name="call")
    worker.announce("called")
    worker.report_call(mv.barrier, name="barrier")
    worker.announce("reported")
    if end is not None:
        worker.wait_for(end)


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    if "shielded" in arguments:
        arguments.remove("shielded")
        worker.shield()
    worker.begin()
    globals()[name](*arguments)
    # MPI_Finalize would wait for the killed ranks.
    if name in ("names_the_dead", "loses_nodes", "small_aggregates_with_a_dying_leader"):
        sys.stdout.flush()
        os._exit(0)
