"""Cases about the values that a get returns, and about rows."""

import hashlib
import random

import numpy as np
from cases import case, equal, raises, repeats, texts_of_ranks

import multiverso as mv


@case
def barrier_is_a_fence():
    table, matrix = mv.ArrayTableHandler(1000), mv.MatrixTableHandler(30, 7)
    for step in range(1, 60):
        table.add(np.ones(1000, np.float32))
        matrix.add(np.ones((2, 7)), [mv.rank(), 29])
        mv.barrier()
        equal(table.get(), np.full(1000, step * mv.size()))
        equal(matrix.get([29, 0]), [[step * mv.size()] * 7, [step] * 7])
        mv.barrier()


@case
def worker_sees_its_own_adds_immediately():
    table, matrix = mv.ArrayTableHandler(mv.size()), mv.MatrixTableHandler(mv.size(), 3)
    mine = np.zeros(mv.size(), np.float32)
    mine[mv.rank()] = 1
    for step in range(1, repeats(2000)):
        table.add(mine)
        matrix.add([[1, 2, 3]], [mv.rank()])
        assert table.get()[mv.rank()] == step
        equal(matrix.get([mv.rank()]), [[step, 2 * step, 3 * step]])
        assert matrix.get()[mv.rank(), 2] == 3 * step


@case
def rows_are_never_torn():
    # Every add changes all columns of a row equally, so a row with different columns is torn.
    rng = np.random.default_rng(mv.rank())
    initial = mv.initializers.Zeros()
    tables = [
        mv.MatrixTableHandler(20, 512, updater=updater, **options)
        for updater in ("add", "rowwise_adagrad")
        for options in ({}, {"init_value": initial})
    ]
    for _ in range(repeats(300)):
        table = tables[rng.integers(len(tables))]
        added, read = rng.integers(0, 20, (2, 30))
        table.add(np.broadcast_to(rng.integers(-9, 10, (30, 1)), (30, 512)), added)
        rows = table.get(read)
        assert (rows == rows[:, :1]).all(), "a row was read while it was being changed"
    for table in tables:
        whole = table.get()
        assert (whole == whole[:, :1]).all()


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
def collective_get_contains_exactly_the_adds_before_it():
    table = mv.ArrayTableHandler(257)
    matrix = mv.MatrixTableHandler(40, 3)
    rng = random.Random(mv.rank())
    for step in range(1, repeats(100)):
        for _ in range(rng.randrange(300)):  # the ranks arrive at different times
            pass
        table.add(np.ones(257, np.float32))
        equal(table.get(sync=True), np.full(257, step * mv.size()))
        matrix.add(np.ones((40, 3), np.float32))
        equal(matrix.get(sync=True), np.full((40, 3), step * mv.size()))
        rows = [rng.randrange(40) for _ in range(rng.randrange(5))]  # each rank its own
        matrix.add(np.ones((40, 3), np.float32))
        equal(matrix.get(rows, sync=True), np.full((len(rows), 3), step * mv.size() + mv.size()))
        matrix.add(-np.ones((40, 3), np.float32))
        mv.barrier()


@case
def collective_get_is_bitwise_identical_on_all_workers():
    rng = np.random.default_rng(mv.rank())
    table = mv.ArrayTableHandler(1003)
    for _ in range(20):
        table.add(rng.standard_normal(1003).astype(np.float32))
        bits = texts_of_ranks(hashlib.sha256(table.get(sync=True).tobytes()).hexdigest())
        equal(bits, [bits[0]] * mv.size())


@case
def duplicate_rows_accumulate_and_are_returned_each_time():
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
