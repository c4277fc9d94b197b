"""Ranks that are late, lost, interrupted or killed in sync mode.

``wrong_rounds.py NAME ...`` runs one of the functions below. Every rank reports its first error.
"""

import os
import sys
import threading
import time

import numpy as np
import worker
from cases import TIMEOUT

import multiverso as mv
from multiverso import api

#: Seconds of timeout in sessions whose deadline passes.
SHORT = 1.0

LAST = worker.SIZE - 1

#: Whether the ranks are on several nodes.
NODES = "MULTIVERSO_RANKS_PER_NODE" in os.environ

#: Rounds before the fault.
ROUNDS = 5

SIZE = 40_000


def _open(timeout=TIMEOUT, **options):
    """Open a session, by default in sync mode, with a table that has been through some rounds."""
    mv.init(**{"sync": True, **options}, timeout=timeout)
    table = mv.MatrixTableHandler(SIZE // 4, 4, name="weights")
    if mv.worker_id() >= 0:
        for _ in range(ROUNDS):
            table.add(_ones())
            table.get()
    return table


def _ones():
    return np.ones((SIZE // 4, 4), np.float32)


def _calls(table):
    """Return the calls by name."""
    return {
        "add": lambda: table.add(_ones()),
        "add_rows": lambda: table.add([[1, 1, 1, 1]], [3]),
        "get": table.get,
        "get_rows": lambda: table.get([3, 3]),
        "add_get": lambda: table.add_get(_ones()),
        "aggregate": lambda: mv.aggregate(np.ones(10**6)),
    }


def _sessions(*calls, **options):
    """Open a session for each call; wait for all ranks before it, and leave it afterwards."""
    for call in calls:
        worker.meet(f"opens-{call}")
        yield call, _open(**options)
        api.current_session().leave(f"{call} is over")


def late(*calls):
    """All ranks but the last make each call; the last arrives after the others have timed out."""
    for call, table in _sessions(*calls, timeout=SHORT):
        known = _calls(table)
        if call == "get":  # of a round to which the last rank has not added
            table.add(_ones()) if worker.RANK != LAST else None
        if worker.RANK == LAST:
            for rank in range(LAST):
                worker.wait_for(f"gave-up-{call}", rank)
        worker.report_call(known[call], name=call)
        if worker.RANK == LAST and NODES and worker.reported(call) is None:
            # Its part of the round reached the other node before the message about the timeout.
            worker.report_call(known[call], name=call)
        worker.announce(f"gave-up-{call}")


def crossed():
    """Each of two ranks waits in one table for the other rank, which waits in the next table."""
    first = _open(timeout=SHORT)
    second = mv.ArrayTableHandler(3, name="biases")
    for table in (first, second) if worker.RANK == LAST else (second, first):
        worker.report_call(table.add_get, np.ones(table.shape))
        if worker.reported("error"):
            return


def ends(how):
    """End the script of the last rank in some way while the others wait in a round."""
    table = _open()
    if worker.RANK == LAST:
        if how == "exception":
            raise ValueError("bad batch 17")
        if how == "exit":
            sys.exit(3)
        if how == "at_once":
            os._exit(4)
        return
    worker.report_call(table.add_get, _ones())


def interrupted(*calls):
    """Rank 0 waits in each call until the test interrupts it; the others arrive afterwards."""
    for call, table in _sessions(*calls):
        known = _calls(table)
        if worker.RANK == 0:
            if call.startswith("get"):
                table.add(_ones())
            threading.Thread(target=_announce_when_waiting, args=(call,), daemon=True).start()
            worker.report_call(known[call], name=call)
            # A program that continues after the error must not see part of a round.
            worker.report_call(table.get, name=f"after {call}")
            worker.announce(f"interrupted-{call}")
        else:
            worker.wait_for(f"interrupted-{call}", 0)
            worker.report_call(known["add_get" if call.startswith("get") else call], name=call)


def _announce_when_waiting(call):
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_name != "call":
        time.sleep(0.01)
    time.sleep(0.5)  # past the first slice of the wait
    worker.announce(f"waiting-{call}")


def killed(call, mode="sync"):
    """Ranks make rounds until the test kills one of them."""
    options = {"staleness": 2, "sync": False} if mode == "stale" else {}
    table = _open(**options)
    calls = _calls(table)
    for name in call.split(","):
        calls[name]()
    worker.announce("busy")
    try:
        while True:
            for name in call.split(","):
                calls[name]()
    except mv.MultiversoError as error:
        worker.report(error=[type(error).__name__, str(error)])
    os._exit(0)  # MPI can no longer be shut down cleanly


if __name__ == "__main__":
    if sys.argv[1] == "killed":
        worker.shield()
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
