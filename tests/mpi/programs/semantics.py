"""The semantics of asynchronous tables, one session per case, on any number of ranks.

Every rank runs every case and reports "ok" or its traceback. What happens to the ranks in a case
that fails is reported too: the others are told when the failing rank leaves its session.
"""

import hashlib
import os
import random
import traceback

import numpy as np
import worker

import multiverso as mv
from multiverso import api

#: Seconds that a call may wait: a case that hangs shall fail long before the job is killed.
TIMEOUT = 40.0

#: Adds of each rank to the large array; 10 000 in a long run.
LARGE_ADDS = int(os.environ.get("MULTIVERSO_TEST_LARGE_ADDS", "40"))

SEED = int(os.environ.get("MULTIVERSO_TEST_SEED", "20261121"))

CASES = {}


def case(function):
    """Make a function one of the cases, in the order they are written."""
    CASES[function.__name__] = function
    return function


def equal(actual, expected):
    """Compare arrays or anything else exactly."""
    np.testing.assert_array_equal(actual, expected)


def raises(error, call, *texts):
    """Return the error that `call` has to raise, with `texts` in its message."""
    try:
        call()
    except error as caught:
        for text in texts:
            if text not in str(caught):
                raise AssertionError(f"expected {text!r} in: {caught}") from caught
        return caught
    raise AssertionError(f"expected {error.__name__}, but nothing was raised")


def everywhere(value, length=64):
    """Return the text of every rank, in rank order; collective."""
    data = np.frombuffer(str(value).encode().ljust(length, b"\0"), np.uint8)
    table = mv.MatrixTableHandler(mv.size(), length, dtype="int32")
    table.add([data], [mv.rank()])
    mv.barrier()
    return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode() for row in table.get()]


# ---- Sessions --------------------------------------------------------------------------------


@case
def ranks_are_those_of_the_job():
    equal((mv.rank(), mv.size()), (worker.RANK, worker.SIZE))
    equal((mv.worker_id(), mv.server_id()), (mv.rank(), mv.rank()))
    equal((mv.num_workers(), mv.num_servers()), (mv.size(), mv.size()))
    assert mv.is_master_worker() == (mv.rank() == 0)


@case
def second_init_gives_the_same_session():
    assert mv.init(timeout=TIMEOUT) is mv.init(timeout=TIMEOUT)
    raises(mv.StateError, mv.init, "other options")


@case
def session_can_be_opened_again_and_again():
    for number in range(20):
        mv.shutdown()
        assert not mv.is_initialized()
        mv.init(timeout=TIMEOUT)
        table = mv.ArrayTableHandler(2, [number, 0])
        equal(table.get(), [number, 0])


@case
def options_of_the_ranks_are_compared():
    mv.shutdown()
    if worker.SIZE > 1:
        raises(mv.MismatchError, lambda: mv.init(timeout=TIMEOUT + worker.RANK), "timeout")
    mv.init(timeout=TIMEOUT)
    mv.barrier()


@case
def sessions_of_parts_of_the_job():
    from mpi4py import MPI

    mv.shutdown()
    with mv.session(comm=MPI.COMM_SELF, timeout=TIMEOUT):
        equal((mv.rank(), mv.size()), (0, 1))
        equal(mv.ArrayTableHandler(1, worker.RANK).get(), [worker.RANK])
    half = MPI.COMM_WORLD.Split(worker.RANK % 2, -worker.RANK)  # in reverse order
    with mv.session(comm=half, timeout=TIMEOUT):
        equal((mv.rank(), mv.size()), (half.Get_rank(), half.Get_size()))
        table = mv.ArrayTableHandler(1)
        table.add([1])
        mv.barrier()
        equal(table.get(), [half.Get_size()])
    half.Free()
    mv.init(timeout=TIMEOUT)
    equal(mv.size(), worker.SIZE)


@case
def roles_number_workers_and_servers_densely():
    roles = (["all"], ["server", "worker"], ["worker", "server", "all"],
             ["server", "worker", "worker", "server"])[worker.SIZE - 1]  # fmt: skip
    mv.shutdown()
    mv.init(role=roles[worker.RANK], timeout=TIMEOUT)
    workers = [r for r, role in enumerate(roles) if role != "server"]
    servers = [r for r, role in enumerate(roles) if role != "worker"]
    equal((mv.num_workers(), mv.num_servers()), (len(workers), len(servers)))
    equal(mv.worker_id(), workers.index(mv.rank()) if mv.rank() in workers else -1)
    equal(mv.server_id(), servers.index(mv.rank()) if mv.rank() in servers else -1)
    assert mv.is_master_worker() == (mv.rank() == workers[0])
    for size in (1, 3, 4, 1000):
        table = mv.ArrayTableHandler(size, mv.rank())
        matrix = mv.MatrixTableHandler(size, 2)
        if mv.worker_id() < 0:
            for call in (
                table.get,
                lambda table=table: table.get(sync=True),
                lambda table=table, size=size: table.add(np.ones(size)),
                lambda table=table, size=size: table.add_get(np.ones(size)),
                lambda matrix=matrix: matrix.get([0]),
                lambda matrix=matrix: matrix.add([[1, 1]], [0]),
            ):
                raises(mv.StateError, call, "server")
            mv.barrier()
            continue
        table.add(np.ones(size))
        matrix.add([[1, 2]], [size - 1])
        equal(table.get(sync=True), np.full(size, workers[0] + len(workers)))
        equal(matrix.get([size - 1], sync=True), [[len(workers), 2 * len(workers)]])
        mv.barrier()


# ---- Creation --------------------------------------------------------------------------------


@case
def only_the_master_s_init_value_counts():
    for mine, expected in (
        (np.arange(5) + mv.rank(), [0, 1, 2, 3, 4]),
        (10 + mv.rank(), [10] * 5),
        (np.arange(5) if mv.rank() == 0 else None, [0, 1, 2, 3, 4]),
    ):
        equal(mv.ArrayTableHandler(5, mine).get(), expected)
    zeros = mv.ArrayTableHandler(5, None if mv.rank() == 0 else np.ones(5))
    equal(zeros.get(), np.zeros(5))


@case
def init_value_is_in_force_when_the_constructor_returns():
    for number in range(50):
        table = mv.ArrayTableHandler(1 + 977 * number, number + 1)
        assert (table.get() == number + 1).all()


@case
def different_tables_are_a_mismatch_on_every_rank():
    last = mv.rank() == mv.size() - 1
    different = (
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
    for create, texts in different:
        if mv.size() > 1:
            raises(mv.MismatchError, create, *texts, "rank 0", f"rank {mv.size() - 1}")
        usable = mv.ArrayTableHandler(3, 5)
        usable.add([1, 1, 1])
        mv.barrier()
        equal(usable.get(), [5 + mv.size()] * 3)


@case
def wrong_arguments_on_one_rank_reach_all_of_them():
    wrong = (
        lambda: mv.ArrayTableHandler(3, [1, 2], name="weights"),
        lambda: mv.ArrayTableHandler(0, name="weights"),
        lambda: mv.ArrayTableHandler(2.5, name="weights"),
        lambda: mv.ArrayTableHandler(3, dtype="float16", name="weights"),
        lambda: mv.ArrayTableHandler(3, ["a", "b", "c"], name="weights"),
        lambda: mv.ArrayTableHandler(3, updater="no such", name="weights"),
        lambda: mv.ArrayTableHandler(3, learning_rate=1.0, name="weights"),
    )
    for where in {0, mv.size() - 1}:
        for create in wrong:
            if mv.rank() == where:
                raises((ValueError, TypeError), create)
            else:
                right = lambda: mv.ArrayTableHandler(3, name="weights")  # noqa: E731
                raises(mv.MismatchError, right, "weights", f"rank {where}", "invalid")
            equal(mv.ArrayTableHandler(1, 7).get(), [7])


@case
def wrong_arguments_on_every_rank_are_a_value_error():
    raises(ValueError, lambda: mv.ArrayTableHandler(3, [1, 2]), "(3,)", "(2,)")
    raises(ValueError, lambda: mv.MatrixTableHandler(2**40, 2**40))
    raises(MemoryError, lambda: mv.ArrayTableHandler(2**60))
    equal(mv.ArrayTableHandler(1, 7).get(), [7])


@case
def tables_come_and_go():
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


# ---- What a get sees -------------------------------------------------------------------------


@case
def barrier_is_a_fence():
    table, matrix = mv.ArrayTableHandler(1000), mv.MatrixTableHandler(30, 7)
    for number in range(1, 60):
        table.add(np.ones(1000, np.float32))
        matrix.add(np.ones((2, 7)), [mv.rank(), 29])
        mv.barrier()
        equal(table.get(), np.full(1000, number * mv.size()))
        equal(matrix.get([29, 0]), [[number * mv.size()] * 7, [number] * 7])
        mv.barrier()


@case
def worker_sees_its_own_adds_at_once():
    table, matrix = mv.ArrayTableHandler(mv.size()), mv.MatrixTableHandler(mv.size(), 3)
    mine = np.zeros(mv.size(), np.float32)
    mine[mv.rank()] = 1
    for number in range(1, 2000):
        table.add(mine)
        matrix.add([[1, 2, 3]], [mv.rank()])
        assert table.get()[mv.rank()] == number
        equal(matrix.get([mv.rank()]), [[number, 2 * number, 3 * number]])
        assert matrix.get()[mv.rank(), 2] == 3 * number


@case
def caller_can_reuse_its_array_after_add():
    table = mv.ArrayTableHandler(5000)
    delta = np.empty(5000, np.float32)
    for _ in range(200):
        delta[:] = 1
        table.add(delta)
        delta[:] = -(10**6)
    mv.barrier()
    equal(table.get(), np.full(5000, 200 * mv.size()))


@case
def collective_get_has_every_add_before_it_and_none_after():
    table = mv.ArrayTableHandler(257)
    matrix = mv.MatrixTableHandler(40, 3)
    rng = random.Random(mv.rank())
    for number in range(1, 100):
        for _ in range(rng.randrange(300)):  # the ranks come at different times
            pass
        table.add(np.ones(257, np.float32))
        equal(table.get(sync=True), np.full(257, number * mv.size()))
        matrix.add(np.ones((40, 3), np.float32))
        equal(matrix.get(sync=True), np.full((40, 3), number * mv.size()))
        rows = [rng.randrange(40) for _ in range(rng.randrange(5))]  # each rank its own
        matrix.add(np.ones((40, 3), np.float32))
        equal(matrix.get(rows, sync=True), np.full((len(rows), 3), number * mv.size() + mv.size()))
        matrix.add(-np.ones((40, 3), np.float32))
        mv.barrier()


@case
def collective_get_has_the_same_bits_everywhere():
    rng = np.random.default_rng(mv.rank())
    table = mv.ArrayTableHandler(1003)
    for _ in range(20):
        table.add(rng.standard_normal(1003).astype(np.float32))
        bits = everywhere(hashlib.sha256(table.get(sync=True).tobytes()).hexdigest())
        equal(bits, [bits[0]] * mv.size())


# ---- Rows ------------------------------------------------------------------------------------


@case
def duplicate_rows_accumulate_and_come_back_each_time():
    matrix = mv.MatrixTableHandler(6, 2, dtype="int64")
    matrix.add([[1, 10]] * 4, [5, 0, 5, 5])
    mv.barrier()
    n = mv.size()
    equal(matrix.get([5, 0, 5]), [[3 * n, 30 * n], [n, 10 * n], [3 * n, 30 * n]])
    equal(matrix.get([]), np.empty((0, 2)))
    matrix.add([], [])
    mv.barrier()
    equal(matrix.get()[1:5], np.zeros((4, 2)))


@case
def row_outside_the_table_changes_nothing():
    matrix = mv.MatrixTableHandler(4, 2)
    for wrong in ([0, 4], [-1, 0], [2**40], np.array([1, 2**63], np.uint64), [0, 1, 2, 3, 2**70]):
        raises(IndexError, lambda wrong=wrong: matrix.get(wrong), "row_ids[", "expected 0 to 3")
        raises(IndexError, lambda wrong=wrong: matrix.add(np.ones((len(wrong), 2)), wrong))
    for wrong in ([True], [1.0], np.zeros(1)):
        raises(TypeError, lambda wrong=wrong: matrix.get(wrong))
        raises(TypeError, lambda wrong=wrong: matrix.add(np.ones((1, 2)), wrong))
    mv.barrier()
    equal(matrix.get(), np.zeros((4, 2)))


@case
def wrong_data_changes_nothing():
    table, matrix = mv.ArrayTableHandler(4, 1), mv.MatrixTableHandler(4, 2, 1)
    raises(ValueError, lambda: table.add([1, 2, 3]))
    raises(TypeError, lambda: table.add(["1"] * 4))
    raises(ValueError, lambda: matrix.add(np.ones((3, 2)), [0, 1]))
    raises(ValueError, lambda: matrix.add(np.ones((2, 4))))
    mv.barrier()
    equal(table.get(), np.ones(4))
    equal(matrix.get(), np.ones((4, 2)))


# ---- Adds are never lost -----------------------------------------------------------------------


@case
def concurrent_adds_to_small_arrays_are_exact():
    for size in (1, 3, 4):
        table = mv.ArrayTableHandler(size)
        ones = np.ones(size, np.float32)
        mv.barrier()
        for _ in range(10_000):
            table.add(ones)
        mv.barrier()
        equal(table.get(), np.full(size, 10_000 * mv.size()))


@case
def concurrent_adds_to_a_large_array_are_exact():
    table = mv.ArrayTableHandler(1_000_003)
    ones = np.ones(1_000_003, np.float32)
    mv.barrier()
    for _ in range(LARGE_ADDS):
        table.add(ones)
    mv.barrier()
    equal(table.get(), np.full(1_000_003, LARGE_ADDS * mv.size()))


@case
def concurrent_adds_to_rows_with_duplicates_are_exact():
    matrix = mv.MatrixTableHandler(7, 5)
    ids = np.array([0, 3, 3, 6, 0, 3])
    ones = np.ones((6, 5), np.float32)
    mv.barrier()
    for _ in range(10_000):
        matrix.add(ones, ids)
    mv.barrier()
    expected = np.zeros((7, 5))
    np.add.at(expected, ids, 10_000 * mv.size())
    equal(matrix.get(), expected)


@case
def add_get_returns_every_state_once():
    table = mv.ArrayTableHandler(1, dtype="int64")
    rounds = 3000
    mv.barrier()
    seen = [int(table.add_get(np.ones(1, np.int64))[0]) for _ in range(rounds)]
    equal(seen, sorted(set(seen)))
    states = mv.ArrayTableHandler(mv.size() * rounds + 1, dtype="int32")
    mine = np.zeros(states.size, np.int32)
    mine[seen] = 1
    states.add(mine)
    mv.barrier()
    equal(states.get(), [0] + [1] * (states.size - 1))


@case
def learning_rate_is_the_same_for_all():
    table = mv.MatrixTableHandler(3, 2, 100, updater="sgd", learning_rate=0.5, dtype="float64")
    table.add(np.full((3, 2), 2))
    mv.barrier()
    equal(table.get(), np.full((3, 2), 100 - mv.size()))
    mv.barrier()
    if mv.is_master_worker():
        table.set_option(learning_rate=0.25)
    mv.barrier()
    equal(table.options["learning_rate"], 0.25)
    table.add([[4, 4]], [1])
    mv.barrier()
    equal(table.get([0, 1]), [[100 - mv.size()] * 2, [100 - 2 * mv.size()] * 2])


@case
def random_programs_agree_with_a_model():
    for number in range(12):
        seed = SEED + number
        try:
            _random_program(seed)
        except BaseException:
            worker.report(seed=seed)
            raise


def _random_program(seed):
    common = random.Random(seed)  # the same on every rank
    dtype = common.choice(("float32", "float64", "int32", "int64"))
    rows, columns = common.randrange(1, 30), common.choice((1, 2, 5, 64, 3000))
    start = np.random.default_rng(seed).integers(-9, 10, (rows, columns)).astype(dtype)
    matrix = mv.MatrixTableHandler(rows, columns, start, dtype=dtype)
    for phase in range(common.randrange(1, 5)):
        # Integers, so that the order in which the adds arrive does not show.
        for rank in range(mv.size()):
            added = _program_of(rank, seed + 1000 * phase, rows, columns, dtype, matrix)
            start = start + added
        mv.barrier()
        equal(matrix.get(), start)
        ids = [common.randrange(rows) for _ in range(5)]
        equal(matrix.get(ids, sync=True), start[ids])
        mv.barrier()


def _program_of(rank, seed, rows, columns, dtype, matrix):
    """Return what the program of `rank` adds, and run it where that is this rank."""
    rng = random.Random(seed * 31 + rank)
    numbers = np.random.default_rng(seed * 31 + rank)
    mine = rank == mv.rank()
    total = np.zeros((rows, columns), dtype)
    for _ in range(rng.randrange(25)):
        kind = rng.randrange(4)
        ids = [rng.randrange(rows) for _ in range(rng.randrange(2 * rows))]
        some = numbers.integers(-9, 10, (len(ids), columns)).astype(dtype)
        whole = numbers.integers(-9, 10, (rows, columns)).astype(dtype)
        if kind == 0:
            np.add.at(total, ids, some)
            if mine:
                matrix.add(some, ids)
        elif kind == 1:
            total += whole
            if mine:
                matrix.add(whole)
        elif kind == 2:
            total += whole
            if mine:
                equal(matrix.add_get(whole).shape, (rows, columns))
        elif mine:
            equal(matrix.get(ids).shape, (len(ids), columns))
    return total


def main():
    """Run all cases."""
    worker.begin()
    outcomes = {}
    for name, function in CASES.items():
        print(f"rank {worker.RANK}: {name}", flush=True)  # noqa: T201 (the test shows it)
        try:
            mv.init(timeout=TIMEOUT)
            function()  # some end the session and open others
            mv.barrier()
            mv.shutdown()
            outcomes[name] = "ok"
        except Exception as error:
            outcomes[name] = traceback.format_exc()
            if mv.is_initialized():
                api.current_session().leave(f"{name} failed: {error}")
        worker.report(outcomes=outcomes)


if __name__ == "__main__":
    main()
