"""Ranks that lose other ranks: ``losses.py FUNCTION ...`` runs one of the functions below."""

import os
import sys
import time
import zlib

import numpy as np
import worker
from survivors import Acknowledged, counts_of, make_collective_call

import multiverso as mv
from multiverso.sync import ParamSync

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


def continues(folder, leaver="-1"):
    """Add to two tables; report them after ranks are killed, or `leaver` has ended its script."""
    mv.init(on_peer_lost="continue")
    whole = mv.ArrayTableHandler(SIZE, dtype="int64", name="whole")
    rows = mv.MatrixTableHandler(ROWS, 100, dtype="int64", name="rows")
    one_add = 1 << (BITS * worker.RANK)
    delta = np.full(SIZE, one_add)
    row_delta = np.full((2, 100), one_add)
    acknowledged = Acknowledged()
    maybe_partial = [0, 0]
    worker.announce("busy")
    for step in range(ADDS):
        if step == ADDS // 3 and worker.RANK == int(leaver):
            sys.exit(3)  # without a message
        if _add(lambda: whole.add(delta), maybe_partial, 0):
            acknowledged.count(0)
        ids = [step % ROWS, (step + ROWS // 2) % ROWS]
        if _add(lambda ids=ids: rows.add(row_delta, ids), maybe_partial, 1):
            acknowledged.count(1)
        if step % ADDS_BETWEEN_CALLS == 0:
            make_collective_call(step // ADDS_BETWEEN_CALLS, min_workers=1, sync=True)
            _check_own_adds(whole, acknowledged.counts[0], maybe_partial[0])
    worker.announce("added")
    worker.wait_for("killed")
    mv.barrier()
    worker.report(lost=mv.lost_ranks(), master=mv.is_master_worker(), maybe_partial=maybe_partial)
    values = whole.get(sync=True)
    sums = rows.get().sum(axis=0)
    worker.report(
        min_counts=counts_of(values.min(), BITS),
        max_counts=counts_of(values.max(), BITS),
        row_counts=counts_of(sums[0], BITS),
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


def saves(folder):
    """Save and load repeatedly, and shut down, while a rank is killed."""
    mv.init(on_peer_lost="continue")
    table = mv.MatrixTableHandler(ROWS, 100, 3, name="rows")
    worker.announce("busy")
    for step in range(8):
        for call in (mv.save, mv.load):
            _repeat_until_it_succeeds(lambda call=call: call(folder))
        if step % 2 == 0:
            _repeat_until_it_succeeds(lambda: mv.save(folder, background=True))
            _repeat_until_it_succeeds(mv.wait_for_save)
    worker.report(values=[float(table.get().min()), float(table.get().max())])
    mv.shutdown()
    worker.report(ended=True)


def _repeat_until_it_succeeds(call):
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


def counts_with_a_dying_server(failpoint):
    """Fetch and add elements of node 0, whose rank 0 dies before it sends an answer."""
    if worker.RANK == 0:
        os.environ["MULTIVERSO_FAILPOINTS"] = failpoint
    mv.init(on_peer_lost="continue")
    counters = mv.ArrayTableHandler(8, dtype="int64", name="counters")
    mv.barrier()
    if worker.RANK == 0:
        worker.wait_for("nothing", timeout=40)  # the failpoint kills this process
    seen = [int(counters.fetch_add(0)) for _ in range(100)]
    swapped = 0
    while swapped < 100:
        value = counters.get(index=1)[()]
        swapped += counters.compare_swap(1, value, value + 1) == value
    mv.barrier()
    worker.report(lost=mv.lost_ranks(), seen=seen, values=counters.get(index=np.s_[:2]).tolist())
    mv.shutdown()
    worker.report(ended=True)


def shares_items(victims, when):
    """Do the items of a `Work`; the victims stop with an item, or are killed at random."""
    mv.init(on_peer_lost="continue")
    counts = mv.ArrayTableHandler(ITEMS, dtype="int32", name="counts")
    victims = [int(victim) for victim in victims.split(",")]
    mv.barrier()
    if when == "random":
        worker.announce("busy")
    for number, item in enumerate(mv.Work(range(ITEMS), lease=3600)):
        if when == "holding" and worker.RANK in victims and number == 2:
            worker.announce("busy")
            worker.wait_for("nothing", timeout=40)  # the test kills this process
        counts.fetch_add(item)
        time.sleep(0.001)
    worker.report(lost=mv.lost_ranks(), counts=counts.get().tolist())
    mv.shutdown()
    worker.report(ended=True)


def adds_encoded_with_a_dying_server(failpoint):
    """Add and sync values that int8 represents exactly, while rank 0 dies before an answer."""
    if worker.RANK == 0:
        os.environ["MULTIVERSO_FAILPOINTS"] = failpoint
    mv.init(on_peer_lost="continue")
    size = 300_000
    table = mv.ArrayTableHandler(size, wire="int8")
    array = np.zeros(size, np.float32)
    sync = ParamSync([array], wire="int8")
    mv.barrier()
    if worker.RANK == 0:
        worker.wait_for("nothing", timeout=40)  # the failpoint kills this process
    delta = np.random.default_rng(worker.RANK).integers(-127, 128, size).astype(np.float32)
    delta[::128] = 127  # The largest magnitude of each block makes its step 1.
    for _ in range(10):
        table.add(delta)
        array += delta
        sync.sync()
    mv.barrier()
    expected = 10 * mv.aggregate(delta.astype(np.float64))
    values = [table.get(sync=True), sync.tables[0].get(sync=True)]
    worker.report(
        lost=mv.lost_ranks(), are_exact=[bool((value == expected).all()) for value in values]
    )
    mv.shutdown()
    worker.report(ended=True)


def _add(call, maybe_partial, table):
    """Make an add; return whether it is acknowledged, else count it as one that may be partial."""
    try:
        call()
    except mv.PeerLostError as error:
        if "may be there" not in str(error) or error.rank is None:
            raise
        maybe_partial[table] += 1
        return False
    return True


def _check_own_adds(table, count, maybe_partial):
    """Check that the table contains every acknowledged add of this worker once."""
    values = table.get()
    for value in (values.min(), values.max()):
        assert count <= counts_of(value, BITS)[worker.RANK] <= count + maybe_partial


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


def waits_for_a_suspended_rank(peer_timeout):
    """Wait in a barrier for rank 1, which the test suspends before it arrives."""
    mv.init(peer_timeout=float(peer_timeout))
    worker.announce("ready")
    if worker.RANK == 1:
        worker.wait_for("suspended")
    worker.report_call(mv.barrier)


def loses_nodes(mode, peer_timeout):
    """Use rows on nodes of which some die, then call a barrier; report the errors of both calls."""
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


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    if "shielded" in arguments:
        arguments.remove("shielded")
        worker.shield()
    worker.begin()
    globals()[name](*arguments)
    # MPI_Finalize would wait for the killed ranks.
    if name in ("names_the_dead", "loses_nodes"):
        sys.stdout.flush()
        os._exit(0)
