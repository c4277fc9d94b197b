"""Ranks that experience faults: ``faults.py FUNCTION ...`` runs one of the functions below.

Ranks report the error of a call, or None, under the name of the call or as "error".
"""

import os
import sys
import threading
import time

import numpy as np
import worker
from cases import TIMEOUT
from worker import SHORT_TIMEOUT

import multiverso as mv
from multiverso import api

LAST = worker.SIZE - 1

#: Whether the ranks are on several nodes.
SPANS_NODES = "MULTIVERSO_RANKS_PER_NODE" in os.environ

#: Rounds of a table in sync mode before the fault.
ROUNDS = 5

SIZE = 40_000

#: Calls that all ranks make together, in any mode.
COLLECTIVE_CALLS = {
    "barrier": lambda table: mv.barrier(),
    "create": lambda table: mv.ArrayTableHandler(3, name="later"),
    "collective_get": lambda table: table.get(sync=True),
    "shutdown": lambda table: mv.shutdown(),
}

#: Calls of sync mode, in which a round waits for every worker.
ROUND_CALLS = {
    "add": lambda table: table.add(_ones()),
    "add_rows": lambda table: table.add([[1, 1, 1, 1]], [3]),
    "get": lambda table: table.get(),
    "get_rows": lambda table: table.get([3, 3]),
    "add_get": lambda table: table.add_get(_ones()),
    "aggregate": lambda table: mv.aggregate(np.ones(10**6)),
    "result": lambda table: (table.add_async(_ones()), table.get_async().result()),
    "flush": lambda table: (table.add_async(_ones()), table.get_async(), table.flush()),
}

CALLS = COLLECTIVE_CALLS | ROUND_CALLS


def _ones():
    return np.ones((SIZE // 4, 4), np.float32)


def _open_session(call, **options):
    """Open a session, in sync mode if `call` needs rounds, and return a table after some rounds."""
    if call not in ROUND_CALLS:
        mv.init(**options)
        return mv.ArrayTableHandler(3, name="weights")
    mv.init(**{"sync": True, "timeout": TIMEOUT, **options})
    table = mv.MatrixTableHandler(SIZE // 4, 4, name="weights")
    for _ in range(ROUNDS):
        table.add(_ones())
        table.get()
    return table


def _sessions(*calls, **options):
    """Yield each call with a table of its own session, which all ranks open at the same time."""
    for call in calls:
        worker.meet(f"opens-{call}")
        yield call, _open_session(call, **options)
        if mv.is_initialized():
            api.current_session().leave_with(f"{call} is over")


def late(*calls):
    """All ranks but the last make each call; the last arrives after the others have timed out."""
    worker.await_start()
    for call, table in _sessions(*calls, timeout=SHORT_TIMEOUT):
        if worker.RANK == LAST:
            for rank in range(LAST):
                worker.wait_for(f"timed-out-{call}", rank)
        elif call == "get":  # waits only for a round that this rank has joined
            table.add(_ones())
        worker.report_call(CALLS[call], table, name=call)
        if worker.RANK == LAST and SPANS_NODES and worker.reported(call) is None:
            # The call may complete before the message about the timeout arrives; the next cannot.
            worker.report_call(CALLS[call], table, name=call)
        worker.announce(f"timed-out-{call}")


def deadlocks_over_two_tables():
    """Each of two ranks waits in one table for the other rank, which waits in the other table."""
    worker.await_start()
    first = _open_session("add_get", timeout=SHORT_TIMEOUT)
    second = mv.ArrayTableHandler(3, name="biases")
    for table in (first, second) if worker.RANK == LAST else (second, first):
        worker.report_call(table.add_get, np.ones(table.shape))
        if worker.reported("error"):
            return


def no_init(what_instead):
    """All ranks but the last open a session, and cannot finalize MPI; the last one does not end."""
    if what_instead != "nothing":
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
    if worker.RANK < LAST:
        try:
            mv.init(start_timeout=TIMEOUT if what_instead == "raises" else SHORT_TIMEOUT)
        except mv.OperationTimeout as error:
            if what_instead == "initializes_mpi_while_others_exit":
                sys.exit(f"handled: {error}")
            raise
    elif what_instead == "raises":
        raise ValueError("bad batch 17")
    threading.Event().wait()


def interrupted(*calls):
    """Rank 0 waits in each call until the test interrupts it; the others arrive afterwards."""
    for call, table in _sessions(*calls):
        if worker.RANK == 0:
            if call in ("get", "get_rows"):
                table.add(_ones())
            threading.Thread(target=_announce_when_waiting, args=(call,), daemon=True).start()
            worker.report_call(CALLS[call], table, name=call)
            if call in ROUND_CALLS:
                # A program that continues after the error must not see part of a round.
                worker.report_call(table.get, name=f"after {call}")
            worker.announce(f"interrupted-{call}")
        else:
            worker.wait_for(f"interrupted-{call}", 0)
            arriving_call = "add_get" if call in ("get", "get_rows") else call
            worker.report_call(CALLS[arriving_call], table, name=call)


def _announce_when_waiting(call):
    """Announce that the main thread is inside a call of the library."""
    worker.wait_for_library_call()
    worker.announce(f"waiting-{call}")


def killed(when):
    """Announce "busy" at the point `when` and go on forever, until the test kills a rank."""
    if when == "start":
        _announce_and_sleep()
    mv.init()
    if when == "init":
        _announce_and_sleep()
    table = mv.ArrayTableHandler(100_000)
    matrix = mv.MatrixTableHandler(1000, 10)
    if when == "barrier":
        if worker.RANK == 1:
            _announce_and_sleep()
        worker.announce("busy")
        mv.barrier()
    if when == "create":
        worker.announce("busy")
        while True:
            mv.ArrayTableHandler(100_000, 1)
    worker.announce("busy")
    while True:
        table.add(np.ones(100_000, np.float32))
        matrix.add(np.ones((3, 10)), [0, 999, 0])
        matrix.get(sync=True)


def _announce_and_sleep():
    worker.announce("busy")
    while True:
        time.sleep(1)


def killed_in_calls(calls, mode="sync"):
    """Repeat some calls until the test kills a rank."""
    names = calls.split(",")
    table = _open_session(names[0], **({"staleness": 2, "sync": False} if mode == "stale" else {}))
    for name in names:
        CALLS[name](table)
    worker.announce("busy")
    try:
        while True:
            for name in names:
                CALLS[name](table)
    except mv.MultiversoError as error:
        worker.report(error=[type(error).__name__, str(error)])
    os._exit(0)  # MPI can no longer be shut down cleanly


def ends(how, call="barrier"):
    """End the script of the last rank as `how` says while the other ranks wait for it in a call."""
    table = _open_session(call)
    if worker.RANK == LAST:
        if how == "exception":
            raise ValueError("bad batch 17")
        if how == "exit":
            sys.exit(3)
        if how == "block":
            with mv.init():
                raise KeyError("lost in the block")
        return
    worker.report_call(CALLS[call], table)


def forks(how):
    """Every rank forks a child that tries to use the session and ends."""
    if how == "mpi4py":  # it would finalize MPI in a child that ends normally
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
    mv.init()
    table = mv.ArrayTableHandler(4)
    mv.barrier()
    pid = os.fork()
    if pid == 0:
        for call in (table.get, mv.barrier, mv.shutdown, mv.init):
            try:
                call()
            except mv.errors.ForkedError:
                continue
            os._exit(9)
        del table  # The parent and the other rank keep it.
        if how == "mpi4py":
            os._exit(5)  # as multiprocessing ends its children
        sys.exit(5)
    worker.report(child=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    table.add(np.ones(4))
    mv.barrier()
    worker.report(values=table.get().tolist())
    mv.shutdown()


def mpi4py_before():
    """Import MPI first and use it throughout."""
    from mpi4py import MPI

    mv.init()
    table = mv.ArrayTableHandler(1)
    table.add([MPI.COMM_WORLD.allreduce(1)])
    mv.shutdown()
    worker.report(size=MPI.COMM_WORLD.allreduce(1))


def mpi4py_after():
    """Import MPI after Multiverso has initialized it."""
    mv.init()
    from mpi4py import MPI

    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    mv.shutdown()
    MPI.COMM_WORLD.Barrier()


def mpi4py_initialized_by_hand():
    """Initialize and finalize MPI in the script."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    worker.report_call(mv.init)
    MPI.Init_thread(MPI.THREAD_MULTIPLE)
    mv.init()
    mv.shutdown()
    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    MPI.Finalize()


def mpi4py_finalized_after_shutdown():
    """Finalize MPI in the script, after which no session can be opened."""
    mv.init()
    from mpi4py import MPI

    mv.shutdown()
    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    MPI.Finalize()
    worker.report_call(mv.init)


def mpi4py_finalized_before_shutdown():
    """Finalize MPI while the session is open. On one node the session stays usable."""
    from mpi4py import MPI

    mv.init()
    table = mv.ArrayTableHandler(1)
    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    MPI.Finalize()
    table.add([1])
    mv.barrier()
    worker.report(values=table.get().tolist())
    mv.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "killed_in_calls":
        worker.shield()
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
