"""Ranks on several nodes: ``nodes.py FUNCTION ...`` runs one of the functions below."""

import os
import resource
import sys
import time

import numpy as np
import worker

import multiverso as mv

LAST = worker.SIZE - 1


def tables_are_freed(count):
    """Create and release tables of 64 MB, and report the shared memory that stays mapped."""
    with mv.session():
        for _ in range(int(count)):
            table = mv.ArrayTableHandler(16 * 2**20)
            table.add(np.ones(16 * 2**20, np.float32))
            del table
            mv.barrier()
            time.sleep(0.3)  # in which the service thread unmaps the table
        with open("/proc/self/statm", encoding="ascii") as statm:
            worker.report(shared=int(statm.read().split()[2]) * resource.getpagesize())


def idles():
    """Sleep for some seconds and report the share of a core that this rank used."""
    with mv.session():
        table = mv.ArrayTableHandler(1000)
        table.add(np.ones(1000))
        mv.barrier()
        seconds = float(os.environ.get("MULTIVERSO_TEST_IDLE_SECONDS", "3"))
        before = time.process_time()
        time.sleep(seconds)
        cpu_seconds = time.process_time() - before
        worker.report(share=cpu_seconds / seconds)
        mv.barrier()


def closes_late():
    """Send the last message of a session when the others close it; then exchange many messages."""
    if worker.RANK == LAST:
        os.environ["MULTIVERSO_FAILPOINTS"] = "channel.close@1=sleep"
    with mv.session(timeout=10):
        pass
    with mv.session(timeout=10):
        table = mv.ArrayTableHandler(100)
        table.add(np.ones(100))
        mv.barrier()
        for _ in range(100):
            assert np.all(table.get() == worker.SIZE)


def finalizes_early():
    """Finalize MPI while the session is open, which makes the session unusable."""
    from mpi4py import MPI

    mv.init(timeout=60)
    table = mv.ArrayTableHandler(10_000)
    mv.barrier()
    MPI.Finalize()
    worker.report_call(lambda: table.add(np.ones(10_000)))


def initializes_mpi_without_threads():
    """Open a session after MPI was initialized without thread support."""
    import mpi4py

    mpi4py.rc.thread_level = "single"
    worker.report_call(mv.init)


if __name__ == "__main__":
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
