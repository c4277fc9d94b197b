"""Ranks that end while another one is dead or elsewhere: ``exits.py FUNCTION ...``."""

import sys

import numpy as np
import worker

#: The last rank is the one for which the others would wait in MPI_Finalize.
LAST = worker.SIZE - 1
#: The timeout, in seconds, of sessions whose ranks must not wait at the end.
LONG_TIMEOUT = 600.0


def elsewhere(how, where, absent):
    """End, except on rank `absent`, which waits in a call of mpi4py for a message."""
    if where == "imports_mpi4py_first":
        from mpi4py import MPI  # noqa: F401
    import multiverso as mv

    worker.await_start()
    mv.init(start_timeout=worker.SHORT_TIMEOUT)
    if where != "in_session":
        mv.shutdown()
    if worker.RANK == int(absent):
        from mpi4py import MPI

        MPI.COMM_WORLD.recv(source=MPI.ANY_SOURCE)
    if how == "exception":
        raise ValueError("bad batch 17")
    sys.exit(3)


def loses(mode, call):
    """Make a call until the test kills the last rank, report the error, and end."""
    import multiverso as mv

    mv.init(mode == "sync", timeout=LONG_TIMEOUT)
    table = mv.ArrayTableHandler(10)
    mv.barrier()
    worker.announce("ready")
    if worker.RANK == LAST:
        worker.wait_for_kill()  # the test kills this process
    calls = {"barrier": mv.barrier, "get": lambda: (table.add(np.ones(10)), table.get())}
    worker.report_call(calls[call])


def loses_after_shutdown():
    """End, after the test has killed the last rank, which had shut down, too."""
    import multiverso as mv

    worker.await_start()
    mv.init(timeout=worker.SHORT_TIMEOUT)
    mv.shutdown()
    worker.announce("ready")
    worker.wait_for("killed")
    worker.report(ended=True)


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    worker.begin()
    globals()[name](*arguments)
