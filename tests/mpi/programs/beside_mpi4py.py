"""Programs that use mpi4py and Multiverso: ``beside_mpi4py.py FUNCTION``."""

import sys

import worker

import multiverso as mv


def before():
    """Import MPI first and use it throughout."""
    from mpi4py import MPI

    mv.init()
    table = mv.ArrayTable(1)
    table.add([MPI.COMM_WORLD.allreduce(1)])
    mv.shutdown()
    worker.report(size=MPI.COMM_WORLD.allreduce(1))


def after():
    """Import MPI after Multiverso has initialized it."""
    mv.init()
    from mpi4py import MPI

    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    mv.shutdown()
    MPI.COMM_WORLD.Barrier()


def initialized_by_hand():
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


def finalized_after_shutdown():
    """Finalize MPI in the script, after which no session can be opened."""
    mv.init()
    from mpi4py import MPI

    mv.shutdown()
    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    MPI.Finalize()
    worker.report_call(mv.init)


def finalized_before_shutdown():
    """Finalize MPI while the session is open. On one node the session stays usable."""
    from mpi4py import MPI

    mv.init()
    table = mv.ArrayTable(1)
    worker.report(size=MPI.COMM_WORLD.allreduce(1))
    MPI.Finalize()
    table.add([1])
    mv.barrier()
    worker.report(values=table.get().tolist())
    mv.shutdown()


if __name__ == "__main__":
    worker.begin()
    globals()[sys.argv[1]]()
