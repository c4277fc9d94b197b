"""Programs of `fault_rows.py` in which the fault is not in one call of the other ranks."""

import os
import random
import signal
import sys
import tempfile
import threading
import time
import zlib

import numpy as np
import worker
from survivors import Acknowledged, acknowledged_of, counts_of, make_collective_call

import multiverso as mv
from multiverso.api import current_session

LAST = worker.SIZE - 1

#: Elements of an array of several stripes.
SIZE = 40_000
#: Rows of the ledger's matrix, and the keys that all ranks change.
ROWS = 64
KEYS = np.arange(-50, 50)
#: Adds of each rank to each table of the ledger, and to each between two collective calls.
ADDS = 200
ADDS_BETWEEN_CALLS = 20
#: The bits of an element that count the adds of one worker; the lowest are those of rank 0.
BITS = 60 // worker.SIZE
#: The items that workers share.
ITEMS = 100

PROGRAMS = {}


def program(function):
    """Register a program of all ranks; it gets the row."""
    PROGRAMS[function.__name__] = function
    return function


@program
def kill_at_start(row):
    """Be killed before the session."""
    worker.meet("starts")
    if worker.RANK in row.victims:
        os.kill(os.getpid(), signal.SIGKILL)
    worker.wait_for("nothing")


@program
def absent(row):
    """Wait in MPI_Init for a rank that does not come."""
    if worker.RANK == LAST:
        threading.Event().wait()
    mv.init(**row.session)


def _after_mpi(row):
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    absent(row)


@program
def absent_after_mpi(row):
    """Wait in `mv.init` for a rank that has only initialized MPI."""
    _after_mpi(row)


@program
def absent_while_others_exit(row):
    """End after an error of `mv.init`, though MPI_Finalize would wait for the rank."""
    try:
        _after_mpi(row)
    except mv.OperationTimeout as error:
        sys.exit(f"handled: {error}")


@program
def raises_before_init(row):
    """Fail on the last rank while the others wait for it."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    if worker.RANK == LAST:
        raise ValueError("bad batch 17")
    mv.init()
    threading.Event().wait()


@program
def raises_before_init_without_a_package(row):
    """Import on the last rank what needs a package, while the others wait for it."""
    if worker.RANK == LAST:
        sys.modules["torch"] = None  # With this, Python's import raises ModuleNotFoundError.
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
        import multiverso.torch_ext  # noqa: F401
    raises_before_init(row)


def _end_without(row, how, shuts_down):
    """End, except on a rank that waits in a call of mpi4py for a message."""
    worker.await_start()
    mv.init(**row.session)
    if shuts_down:
        mv.shutdown()
    if worker.RANK in row.victims:
        from mpi4py import MPI

        MPI.COMM_WORLD.recv(source=MPI.ANY_SOURCE)
    if how == "exception":
        raise ValueError("bad batch 17")
    sys.exit(3)


@program
def elsewhere_in_session(row):
    """Fail while a rank waits in MPI."""
    _end_without(row, "exception", False)


@program
def elsewhere_after_shutdown(row):
    """Exit after the session while a rank waits in MPI."""
    _end_without(row, "exit", True)


@program
def elsewhere_after_import(row):
    """Fail after the session, in a script that imports mpi4py before."""
    from mpi4py import MPI  # noqa: F401

    _end_without(row, "exception", True)


@program
def kill_after_shutdown(row):
    """End after a rank was killed that had shut down, too."""
    worker.await_start()
    mv.init(**row.session)
    mv.shutdown()
    worker.meet("closed")
    if worker.RANK in row.victims:
        os.kill(os.getpid(), signal.SIGKILL)
    worker.report(ended=True)


def _own_keys(rank, steps):
    """Return the keys to which a rank gives rows in these steps."""
    return (rank + 1) * 10**12 + np.arange(7 * steps[0], 7 * steps[-1] + 7)


def _check_counts(row, tables):
    """Check that all ranks' adds are there once, and in part at most one of a victim's."""
    whole, rows, keys = (tables[0].get(sync=True), tables[1].get(), tables[2].get(KEYS))
    least, most, of_rows = (
        counts_of(value, BITS) for value in (whole.min(), whole.max(), rows[:, 0].sum())
    )
    of_keys = [counts_of(value, BITS) for value in (keys.min(), keys.max())]
    for rank in range(worker.SIZE):
        done = acknowledged_of(rank)
        may_add = int(rank in row.victims)
        assert done[0] <= least[rank] <= most[rank] <= done[0] + may_add, (rank, done, least, most)
        assert 2 * done[1] <= of_rows[rank] <= 2 * (done[1] + may_add), (rank, done, of_rows)
        assert done[1] <= of_keys[0][rank] <= of_keys[1][rank] <= done[1] + may_add, rank
        if done[1]:
            own = tables[2].get(_own_keys(rank, [0, done[1] - 1]), insert=False)
            assert (own == 1 << (BITS * rank)).all(), rank
        if rank not in row.victims:
            assert tuple(done) == (ADDS, ADDS)
    found = np.concatenate([found for found, _ in tables[2].items(chunk=1000)])
    assert len(np.unique(found)) == len(found)
    assert (found < KEYS[0]).sum() <= 7 * len(row.victims)  # of calls that were not completed
    worker.report(digest=[zlib.crc32(array.tobytes()) for array in (whole, rows, keys)])


@program
def kill_while_counting(row):
    """Be killed at a random moment of adds."""
    _count(row, exits_at=-1)


@program
def exit_while_counting(row):
    """End the script after a third of the adds."""
    _count(row, exits_at=ADDS // 3)


def _count(row, exits_at):
    """Count each rank's adds in three tables; a victim ends meanwhile."""
    mv.init(on_peer_lost="continue", timeout=60)
    tables = [
        mv.ArrayTable(SIZE, name="whole", dtype="int64"),
        mv.MatrixTable(ROWS, 100, name="rows", dtype="int64"),
        mv.HashTable(2, 20_000, name="keys", dtype="int64"),
    ]
    one = 1 << (BITS * worker.RANK)
    acknowledged = Acknowledged()
    worker.meet("begins")
    is_victim = worker.RANK in row.victims
    if is_victim and exits_at < 0:
        soon = random.uniform(0, 0.4)
        threading.Timer(soon, os.kill, [os.getpid(), signal.SIGKILL]).start()
    for step in range(ADDS):
        if is_victim and step == exits_at:
            sys.exit(3)
        tables[0].add(np.full(SIZE, one))
        acknowledged.count(0)
        tables[1].add(np.full((2, 100), one), [step % ROWS, (step + ROWS // 2) % ROWS])
        ids = np.concatenate([KEYS, _own_keys(worker.RANK, [step])])
        tables[2].add(np.full((len(ids), 2), one), ids)
        acknowledged.count(1)
        tables[2].get(-ids[-7:])  # These keys come and go.
        tables[2].remove(-ids[-7:])
        if step % ADDS_BETWEEN_CALLS == 0:
            make_collective_call(step // ADDS_BETWEEN_CALLS, min_workers=1, sync=True)
    if is_victim:
        worker.wait_for_kill(timeout=20)
    for rank in row.victims:
        worker.wait_until_gone(rank)
    mv.barrier()
    lost = current_session().lost_ranks()
    assert list(lost) == row.victims, lost
    assert mv.is_master_worker() == (worker.RANK == min({*range(worker.SIZE)} - {*row.victims}))
    _check_counts(row, tables)
    folder = f"{tempfile.gettempdir()}/saved"
    mv.save(folder)
    mv.load(folder)
    _check_counts(row, tables)
    mv.shutdown()
    worker.report(ended=True)


@program
def items(row):
    """Do the items of a `Work`, of which the victims hold one each when they are killed."""
    mv.init(on_peer_lost="continue")
    done = mv.ArrayTable(ITEMS, dtype="int32", name="done")
    work = mv.Work(range(ITEMS), lease=3600)
    for number, item in enumerate(work):
        if worker.RANK in row.victims and number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        done.fetch_add(item)
        time.sleep(0.001)
    values = done.get().tolist()
    assert values == [1] * ITEMS, values
    mv.shutdown()
    worker.report(ended=True)


@program
def suspend_all(row):
    """Make calls while the whole job is suspended, and then resumes rank by rank."""
    mv.init(on_peer_lost="continue", timeout=60, **row.session)
    table = mv.ArrayTable(SIZE)
    worker.meet("begins")
    if worker.RANK == 0:
        _suspend_for_a_while()
        worker.announce("resumed")
    while not worker.is_announced("resumed", 0):
        table.add(np.ones(SIZE))
    mv.barrier()
    assert list(current_session().lost_ranks()) == []
    mv.shutdown()
    worker.report(ended=True)


def _suspend_for_a_while():
    """Let a process without a session suspend all ranks for longer than `peer_timeout`."""
    helper = os.fork()
    if helper:
        os.waitpid(helper, 0)
        return
    for rank in range(worker.SIZE):
        worker.suspend(rank)
    time.sleep(3)
    for rank in range(worker.SIZE):
        worker.resume(rank)
        time.sleep(0.3)
    os._exit(0)


@program
def interrupt_at_suspended_node(row):
    """Press Ctrl-C on rank 0 while it waits for the rows of a suspended rank."""
    mv.init(timeout=60)
    table = mv.ArrayTable(10_000)
    mv.barrier()
    if worker.RANK == 0:
        worker.suspend(LAST)
        threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            table.get()
        except KeyboardInterrupt:
            worker.report(ended=True)
        worker.resume(LAST)
    mv.shutdown()


@program
def unreachable(row):
    """Need the rows of another host, to which the test has cut the network."""
    mv.init(timeout=600, **row.session)
    table = mv.MatrixTable(10_000, 3)
    table.add(np.ones((10_000, 3)))
    mv.barrier()
    worker.announce("ready")
    worker.wait_for("cut")
    worker.report_call(lambda: (table.add(np.ones((10_000, 3))), table.get()))
    worker.announce("called")
    os._exit(0)  # The exit would wait for ranks that are out of reach.


@program
def forks_with_mpi4py(row):
    """Fork as below in a program that uses MPI, too."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    # mpi4py would finalize MPI in a child that ends normally; multiprocessing ends them so.
    _fork(end=os._exit)


@program
def forks(row):
    """Fork a child on every rank, which tries to use the session and ends."""
    _fork(end=sys.exit)


def _fork(end):
    mv.init()
    table = mv.ArrayTable(4)
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
        end(5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    table.add(np.ones(4))
    mv.barrier()
    assert table.get().tolist() == [2] * 4
    mv.shutdown()
    worker.report(ended=True)
