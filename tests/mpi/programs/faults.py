"""Ranks that experience faults; ``faults.py NAME ...`` runs one of the functions below."""

import os
import sys
import threading
import time

import numpy as np
import worker

import multiverso as mv

#: Seconds of timeout in sessions whose deadline passes.
SHORT = 1.0

LAST = worker.SIZE - 1


#: Calls that all ranks make together.
CALLS = {
    "barrier": lambda table: mv.barrier(),
    "create": lambda table: mv.ArrayTableHandler(3, name="later"),
    "get": lambda table: table.get(sync=True),
    "shutdown": lambda table: mv.shutdown(),
}


def _sessions(*calls, **options):
    """Open a session with a table for each call; wait for all ranks before and after it."""
    for call in calls:
        worker.meet(f"opens-{call}")
        session = mv.init(**options)
        yield call, mv.ArrayTableHandler(3, name="weights")
        if mv.is_initialized():
            session.leave(f"{call} is over")


def late(*calls):
    """All ranks but the last make a call; the last one arrives after the others have timed out."""
    for call, table in _sessions(*calls, timeout=SHORT):
        if worker.RANK == LAST:
            for rank in range(LAST):
                worker.wait_for(f"gave-up-{call}", rank)
        worker.report_call(CALLS[call], table, name=call)
        worker.announce(f"gave-up-{call}")


def late_init():
    """All ranks but the last open the session; the last one has only initialized MPI."""
    from mpi4py import MPI  # MPI_Init waits for every rank and has no deadline

    MPI.COMM_WORLD.Barrier()
    if worker.RANK == LAST:
        for rank in range(LAST):
            worker.wait_for("gave-up", rank)
        return
    worker.report_call(lambda: mv.init(timeout=SHORT))
    worker.announce("gave-up")


def interrupted(*calls):
    """Rank 0 waits in each call until the test interrupts it; the others arrive afterwards."""
    for call, table in _sessions(*calls):
        if worker.RANK == 0:
            threading.Thread(target=_announce_when_waiting, args=(call,), daemon=True).start()
        else:
            worker.wait_for(f"interrupted-{call}", 0)
        worker.report_call(CALLS[call], table, name=call)
        worker.announce(f"interrupted-{call}")


def _announce_when_waiting(call):
    """Announce that the main thread is inside a call of the library."""
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_name != "call":
        time.sleep(0.01)
    time.sleep(0.5)  # past the first slice of the wait
    worker.announce(f"waiting-{call}")


def killed(when):
    """Busy ranks, one of which is killed; the job never ends by itself."""
    if when == "start":
        _idle()
    mv.init()
    if when == "init":
        _idle()
    table = mv.ArrayTableHandler(100_000)
    matrix = mv.MatrixTableHandler(1000, 10)
    if when == "barrier":
        if worker.RANK == 1:
            _idle()
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


def _idle():
    worker.announce("busy")
    while True:
        time.sleep(1)


def ends(how):
    """End the script of the last rank in some way while the others wait for it."""
    mv.init()
    if worker.RANK == LAST:
        if how == "exception":
            raise ValueError("bad batch 17")
        if how == "exit":
            sys.exit(3)
        if how == "block":
            with mv.init():
                raise KeyError("lost in the block")
        return
    worker.report_call(mv.barrier)


def forks(how):
    """Every rank forks a child that tries to use the session and ends."""
    if how == "mpi4py":  # which also finalizes MPI when a child ends as a script does
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
            except mv.ForkedError:
                continue
            os._exit(9)
        if how == "mpi4py":
            os._exit(5)  # as the children of multiprocessing end
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
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
