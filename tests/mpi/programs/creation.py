"""Cases about sessions, and about creating tables."""

import random

import numpy as np
import worker
from cases import TIMEOUT, case, equal, raises

import multiverso as mv
from multiverso.api import current_session


@case
def options_of_the_ranks_are_compared():
    mv.shutdown()
    last = worker.RANK == worker.SIZE - 1
    for options, *texts in (
        ({"timeout": TIMEOUT + worker.RANK}, "timeout"),
        ({"sync": last}, "sync", "async", "rank 0"),
        ({"staleness": 3 + last}, "staleness=3", "staleness=4"),
    ):
        if worker.SIZE > 1:
            raises(mv.errors.MismatchError, lambda options=options: mv.init(**options), *texts)
    mv.init(timeout=TIMEOUT)
    mv.barrier()


@case
def sessions_of_parts_of_the_job():
    from mpi4py import MPI

    mv.shutdown()
    with mv.session(comm=MPI.COMM_SELF, timeout=TIMEOUT):
        equal((mv.rank(), mv.size()), (0, 1))
        equal(mv.ArrayTableHandler(1, worker.RANK).get(), [worker.RANK])
    half_comm = MPI.COMM_WORLD.Split(worker.RANK % 2, -worker.RANK)  # in reverse order
    with mv.session(comm=half_comm, timeout=TIMEOUT):
        equal((mv.rank(), mv.size()), (half_comm.Get_rank(), half_comm.Get_size()))
        table = mv.ArrayTableHandler(1)
        table.add([1])
        mv.barrier()
        equal(table.get(), [half_comm.Get_size()])
    half_comm.Free()
    mv.init(timeout=TIMEOUT)
    equal(mv.size(), worker.SIZE)


@case
def ranks_with_different_earlier_sessions_open_one_together():
    from mpi4py import MPI

    mv.shutdown()
    for _ in range(worker.RANK):  # each rank opens a different number of sessions alone
        with mv.session(comm=MPI.COMM_SELF, timeout=TIMEOUT):
            pass
    later_ranks = MPI.COMM_WORLD.Split(min(worker.RANK, 1))  # the last ranks together
    if worker.RANK > 0:
        with mv.session(comm=later_ranks, timeout=TIMEOUT):
            mv.barrier()
    later_ranks.Free()
    for _ in range(2):
        with mv.session(timeout=TIMEOUT):
            equal(mv.size(), worker.SIZE)
            mv.barrier()
    mv.init(timeout=TIMEOUT)


@case
def roles_number_workers_and_servers_densely():
    roles = (["all"], ["server", "worker"], ["worker", "server", "all"],
             ["server", "worker", "worker", "server"])[worker.SIZE - 1]  # fmt: skip
    mv.shutdown()
    mv.init(role=roles[worker.RANK], timeout=TIMEOUT)
    workers = [r for r, role in enumerate(roles) if role != "server"]
    servers = [r for r, role in enumerate(roles) if role != "worker"]
    equal((mv.num_workers(), current_session().num_servers), (len(workers), len(servers)))
    equal(mv.worker_id(), workers.index(mv.rank()) if mv.rank() in workers else -1)
    equal(mv.server_id(), servers.index(mv.rank()) if mv.rank() in servers else -1)
    assert mv.is_master_worker() == (mv.rank() == workers[0])
    array, matrix = mv.ArrayTableHandler(3, mv.rank()), mv.MatrixTableHandler(3, 2)
    if mv.worker_id() < 0:
        for call in (
            array.get,
            lambda: array.get(sync=True),
            lambda: array.add(np.ones(3)),
            lambda: array.add_get(np.ones(3)),
            lambda: matrix.get([0]),
            lambda: matrix.add([[1, 1]], [0]),
        ):
            raises(mv.errors.StateError, call, "server")
    else:
        equal(array.get(), [workers[0]] * 3)
    mv.barrier()


@case
def only_the_master_init_value_is_used():
    for initial, expected in (
        (np.arange(5) + mv.rank(), [0, 1, 2, 3, 4]),
        (10 + mv.rank(), [10] * 5),
        (np.arange(5) if mv.rank() == 0 else None, [0, 1, 2, 3, 4]),
    ):
        equal(mv.ArrayTableHandler(5, initial).get(), expected)
    zeros = mv.ArrayTableHandler(5, None if mv.rank() == 0 else np.ones(5))
    equal(zeros.get(), np.zeros(5))


@case
def different_tables_raise_mismatch_on_every_rank():
    last = mv.rank() == mv.size() - 1
    disagreeing_calls = (
        (lambda: mv.ArrayTableHandler(4 if last else 3, name="w"), ("4", "3")),
        (lambda: mv.ArrayTableHandler(3, dtype="int32" if last else "float32"), ("int32",)),
        (lambda: mv.ArrayTableHandler(3, updater="sgd" if last else "add"), ("sgd", "add")),
        (lambda: mv.ArrayTableHandler(3, updater="sgd", learning_rate=1 + last), ("1", "2")),
        (lambda: mv.ArrayTableHandler(3, name="b" if last else "a"), ("'a'", "'b'")),
        (lambda: mv.MatrixTableHandler(*((2, 3) if last else (3, 2))), ("2 x 3", "3 x 2")),
        (lambda: mv.MatrixTableHandler(3, 1) if last else mv.ArrayTableHandler(3), ("matrix",)),
        (
            lambda: mv.MatrixTableHandler(*((2**33, 1) if last else (1, 2**33))),
            (str(2**33), f"rank {mv.size() - 1}"),
        ),
    )
    for create, texts in disagreeing_calls:
        if mv.size() > 1:
            raises(mv.errors.MismatchError, create, *texts, "rank 0", f"rank {mv.size() - 1}")
        usable = mv.ArrayTableHandler(3, 5)
        usable.add([1, 1, 1])
        mv.barrier()
        equal(usable.get(), [5 + mv.size()] * 3)


@case
def invalid_arguments_on_one_rank_reach_every_rank():
    invalid_calls = (
        lambda: mv.ArrayTableHandler(3, [1, 2], name="weights"),
        lambda: mv.ArrayTableHandler(0, name="weights"),
        lambda: mv.ArrayTableHandler(2.5, name="weights"),
        lambda: mv.ArrayTableHandler(3, dtype="uint8", name="weights"),
        lambda: mv.ArrayTableHandler(3, ["a", "b", "c"], name="weights"),
        lambda: mv.ArrayTableHandler(3, updater="no such", name="weights"),
        lambda: mv.ArrayTableHandler(3, learning_rate=1.0, name="weights"),
    )
    for invalid_rank in {0, mv.size() - 1}:
        for create in invalid_calls:
            if mv.rank() == invalid_rank:
                raises((ValueError, TypeError), create)
            else:
                valid_call = lambda: mv.ArrayTableHandler(3, name="weights")  # noqa: E731
                raises(
                    mv.errors.MismatchError,
                    valid_call,
                    "weights",
                    f"rank {invalid_rank}",
                    "invalid",
                )
            equal(mv.ArrayTableHandler(1, 7).get(), [7])


@case
def tables_can_be_created_and_freed_repeatedly():
    kept = [mv.ArrayTableHandler(100 + i, i) for i in range(20)]
    order = list(range(20))
    random.Random(mv.rank()).shuffle(order)
    for i in order[:10]:
        kept[i] = None
    new = mv.ArrayTableHandler(50, 3)
    for table in kept:
        if table is not None:
            equal(table.get(), np.full(table.size, table.size - 100))
    new.add(np.ones(50))
    mv.barrier()
    equal(new.get(), np.full(50, 3 + mv.size()))
    mv.barrier()
