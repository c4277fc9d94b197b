"""Cases about the values that a get returns, and about rows."""

import hashlib

import numpy as np
from cases import case, equal, repeats, texts_of_ranks

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
def collective_get_is_bitwise_identical_on_all_workers():
    rng = np.random.default_rng(mv.rank())
    table = mv.ArrayTableHandler(1003)
    for _ in range(20):
        table.add(rng.standard_normal(1003).astype(np.float32))
        bits = texts_of_ranks(hashlib.sha256(table.get(sync=True).tobytes()).hexdigest())
        equal(bits, [bits[0]] * mv.size())
